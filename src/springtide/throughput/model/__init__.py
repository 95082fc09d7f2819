"""The form that predicts step times: physics, beliefs, fitting, intervals, and the forms it is measured against."""

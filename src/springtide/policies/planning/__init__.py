"""The planner under every promise: plans as columns, progressive filling, admission, reservations, the forecast."""

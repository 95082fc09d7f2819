"""Any training script recorded as it is, and recordings compared: `springtide verify --stock`."""

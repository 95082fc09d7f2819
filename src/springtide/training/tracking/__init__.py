"""What `run.log` records as one curve in a tracker of the user's: TensorBoard, MLflow or W&B."""

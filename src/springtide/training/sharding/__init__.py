"""Models of `run.fully_shard`: parameters, gradients and optimizer state cut into a shard per process."""

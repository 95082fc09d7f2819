"""The runtime inside a training process: logical workers, fixed-order reduction, rescaling, checkpoints."""

"""One training script, as a user of each system would write it: run by `benchmarks.elasticity`."""

"""Logical workers: contexts, turns of a global step, data, randomness, metrics."""

"""Levels D0, D1, D2: switches, tested operators, CUDA, self-checks."""

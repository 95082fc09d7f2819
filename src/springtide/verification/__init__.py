"""Proof by bits: the runs that `springtide verify` makes on the executor's own attempts, and how they are compared."""

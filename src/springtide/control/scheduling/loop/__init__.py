"""What carries the reconciler from step to step: calls of other threads, transactions, calls of the executor."""

"""What carries the reconciler from step to step: calls of other threads, transactions, the line to the executor."""

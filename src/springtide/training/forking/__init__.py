"""A warm process that forks training processes, and what it imports ahead."""

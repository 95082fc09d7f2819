"""Executors: what starts, resizes and stops the processes of jobs, and says what became of them."""

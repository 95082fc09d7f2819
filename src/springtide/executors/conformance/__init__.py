"""What every executor must do, as checks that any of them can run."""

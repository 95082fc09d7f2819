"""Routes to what a job leaves: logs, files, checkpoints, receipts."""

"""The executor of this machine: an agent process that owns the processes of jobs, and its client."""

"""What became of jobs, summed up: promises kept, and what was used."""

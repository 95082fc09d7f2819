"""Worker processes and the fork servers they come from."""

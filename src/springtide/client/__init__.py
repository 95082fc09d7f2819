"""The HTTP client: the verbs of the command line as methods."""

"""Training frameworks on the elastic runtime: each keeps its framework's own loop and takes turns within it."""

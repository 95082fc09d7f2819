"""A cluster through Ray: it finds nodes and starts the agent of each host there; training itself does not need it."""

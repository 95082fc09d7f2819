"""Routes of the server itself: its state, nodes, users, projects and what was used."""

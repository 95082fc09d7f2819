"""Which devices a share becomes: pure functions over a tree of nodes."""

"""Clusters of several device types: one pool of nodes per type, and what is decided across them."""

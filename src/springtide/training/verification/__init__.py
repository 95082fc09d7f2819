"""Proof by bits: the runs that springtide verify makes, and how their digests are compared."""

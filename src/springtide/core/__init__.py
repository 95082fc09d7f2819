"""Values and book-keeping shared by every other part: no clock, no randomness, no I/O."""

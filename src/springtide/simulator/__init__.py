"""Replays traces on a virtual clock with the same policies that decide live."""

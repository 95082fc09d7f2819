"""Who gets how many devices: pure functions (now, Snapshot) -> Decision."""

"""Files by URL: where they lie, and how they are written there, once, whole or not at all."""

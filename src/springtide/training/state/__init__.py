"""What a run is at a step boundary, and how it gets to disk and back."""

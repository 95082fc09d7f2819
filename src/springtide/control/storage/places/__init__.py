"""Where what jobs leave lies when that is not the state directory: folders they name, and object storage."""

"""What charts of time are drawn with: axes, bars and marks, the lanes of devices; as plain values."""

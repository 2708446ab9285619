"""Feed an unmodified training with other inputs, and time it."""

"""Trees of files: scanned, sent, received, and laid out for a run."""

"""See checkpoints appear in a training, kill it after one, and put state back where it was resumed."""

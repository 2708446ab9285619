"""Observe checkpoints of a training, kill it after one, and restore state when it is resumed."""

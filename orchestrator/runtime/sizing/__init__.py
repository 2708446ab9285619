"""Measure what a training step takes at several batch sizes."""

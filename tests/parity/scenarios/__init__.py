"""Planted differences, and innocent ones, with what must be said of each."""

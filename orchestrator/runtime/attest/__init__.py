"""Inspect a computer and its Python environment."""

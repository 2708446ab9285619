"""Measure what the input of a training costs, and try fixes."""

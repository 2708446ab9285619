"""From a project folder to an open, verified machine."""

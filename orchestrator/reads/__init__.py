"""The files that a project reads, beside those that its profile declares."""

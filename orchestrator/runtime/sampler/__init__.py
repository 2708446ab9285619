"""Sample what a run uses of the machine, from outside of its processes."""

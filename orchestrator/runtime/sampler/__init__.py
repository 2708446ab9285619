"""Sample what a run uses of the machine, from outside its processes."""

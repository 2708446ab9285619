"""The inputs of a run, its results and its record; a machine is reached only through a session."""

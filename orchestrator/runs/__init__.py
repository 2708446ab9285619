"""What a run is given, what it leaves, and its record; asks a machine only through a session."""

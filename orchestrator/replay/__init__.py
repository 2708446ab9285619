"""Run a recorded command again with interventions, and search for the cause of a difference."""

"""Upload from the machine to a run's store, during the run and at its end."""

"""From the machine into a run's store, while the run goes on and at its end."""

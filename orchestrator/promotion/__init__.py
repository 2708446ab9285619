"""The gate that a run's model must pass, and which run's model is current."""

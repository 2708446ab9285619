"""From a plan to a machine that is ready, what it costs, and its proven end."""

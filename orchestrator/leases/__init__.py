"""From a plan to a ready machine, its cost, and its confirmed deletion."""

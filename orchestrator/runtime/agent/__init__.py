"""Start a run, supervise it, and end the machine: the part that stays when nobody is connected."""

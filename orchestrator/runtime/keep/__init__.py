"""Copy complete checkpoints of a run aside while it trains, so that they can leave the machine."""

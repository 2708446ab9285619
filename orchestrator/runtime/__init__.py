"""What runs on the machine and in the training's own process. Standard library only."""

"""Time training steps, and the pipeline that feeds them, in the process of the run."""

"""What the input of a training costs: measured, with fixes tried."""

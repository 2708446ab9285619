"""Machines on this computer: real ones over real ssh, as isolated as it allows."""

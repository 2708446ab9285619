"""Machines on this computer: real ones, reached over ssh, as isolated as this computer allows."""

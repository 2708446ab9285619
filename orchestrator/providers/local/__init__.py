"""Machines on this computer, reached over ssh, as isolated as this computer allows."""

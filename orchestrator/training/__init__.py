"""One run on a machine, from its first byte to its verified record here."""

"""One run on a machine, from sending its first byte to its verified record here."""

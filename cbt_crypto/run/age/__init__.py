"""How old drives are when a cell is measured: counted, and brought about."""

"""One cell: measured, proved beside its neighbours, and brought to the archive."""

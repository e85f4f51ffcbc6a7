"""One cell's records: what each client process and each node did in the measured window."""

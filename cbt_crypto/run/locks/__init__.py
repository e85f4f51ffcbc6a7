"""One run at a time, for each host, device and archive."""

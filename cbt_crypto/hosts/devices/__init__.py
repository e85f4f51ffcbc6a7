"""Block devices on a host: what is on them, whose they are, what they are made into."""

"""Block devices on a host: what lies on them, whose they are, what they are made into."""

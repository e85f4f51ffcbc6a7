"""`cbt-crypto init`: from host names to a campaign file, by asking the hosts what they have."""

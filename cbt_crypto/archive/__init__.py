"""What is on disk: an archive's folders and documents, read as untrusted data."""

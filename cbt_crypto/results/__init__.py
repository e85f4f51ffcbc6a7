"""The parse stage: an archive's files become records, and nothing here knows of tables."""

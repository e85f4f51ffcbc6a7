"""The same tables in the terminal, in Markdown, CSV and JSON."""

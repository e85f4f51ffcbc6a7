"""Volumes that their clients encrypt."""

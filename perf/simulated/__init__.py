"""Simulated campaigns: what disturbs them, and when they end."""

"""A small engine of our own with CBT's names: docs/contract.md.

It writes nothing outside `tmp_dir`, ends only its own processes, and fails at the first error.
"""

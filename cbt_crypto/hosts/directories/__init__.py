"""Directories of ours on the hosts: made, proved to be ours, and removed; also those of keys."""

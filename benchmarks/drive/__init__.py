"""Scenarios that load a drive without Ceph."""

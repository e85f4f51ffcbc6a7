"""Overlay `cpuset`: the daemons of OSDs on chosen cores."""

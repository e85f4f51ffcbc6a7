"""Overlay `ceph_build`: which build of Ceph the daemons are of."""

"""What does a change to a Ceph cluster's deployment cost? Deployed, proved, measured, compared."""

__version__ = "1.0.0"

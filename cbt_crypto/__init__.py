"""What does a change to a Ceph cluster's deployment cost? Deployed, proved, measured, compared.

A plugin for CBT, the Ceph Benchmarking Tool. `docs/` describes the file, the archive and the
seams; the stages are `plan`, `campaign` (deploy, run), `results` (parse) and `report`.
"""

__version__ = "1.0.0"

"""The places that one cell is about, of all that the campaign names."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

from cbt_crypto.benchmarks.base import Scenario
from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.hosts.site import Site
from cbt_crypto.plan.file.cluster import ClusterSection
from cbt_crypto.plan.layout import drives_of, site_of


def cell_site(cluster: ClusterSection, scenario: Scenario, stack: Optional[Stack] = None) -> Site:
    """The places of one cell: the cluster and its active clients, or a drive and its host.

    With a `stack`, the drive's `path` is what this configuration offers.
    """
    site = site_of(cluster)
    name = scenario.drive_name
    if name is None:
        return replace(site, active_clients=scenario.active_clients(site.clients))
    drive = next(drive for drive in drives_of(cluster) if drive.name == name)
    if stack is not None:
        drive = replace(drive, path=stack.drive_path(drive))
    host = (drive.host,)
    return replace(site, osds=(), clients=host, active_clients=host, drives=(drive,))

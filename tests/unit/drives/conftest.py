"""Campaigns on drives, and the places of their cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.hosts.site import Site
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.layout import cell_site

DRIVES = {
    "NVMe": {"host": "c0", "device": "/dev/nvme0n1", "plp": True},
    "RAID-0": {"host": "c0", "raid0": ["/dev/sda", "/dev/sdb"], "chunk_kib": 64},
    "RAID-0 of LUKS": {"host": "c1", "raid0": ["/dev/sda", "/dev/sdb"], "encrypt": "members"},
}


@pytest.fixture
def on_drives(campaign_of: Callable[..., Campaign]) -> Callable[..., Campaign]:
    """A campaign on drives alone, with `benchmarks` and keys of the `cluster` section."""

    def make(benchmarks: dict[str, Any], **cluster: Any) -> Campaign:
        section = {"osds": ..., "mons": ..., "mgrs": ..., "drives": DRIVES, **cluster}
        sections = {"rbd_single_client": ..., **benchmarks}
        return campaign_of(cluster=section, benchmarks=sections)

    return make


@pytest.fixture
def place_of() -> Callable[..., Site]:
    """The site of a campaign's first cell on a drive, in a configuration."""

    def make(campaign: Campaign, drive: str, configuration: str = "Default") -> Site:
        scenarios = (s for found in campaign.scenarios.values() for s in found)
        scenario = next(s for s in scenarios if s.drive_name == drive)
        return cell_site(campaign.cluster, scenario, Stack(campaign.configurations[configuration]))

    return make

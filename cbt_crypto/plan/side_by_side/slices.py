"""How drives and memory are divided among groups, and which OSD is whose on which deployment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cbt_crypto.hosts.site import Osd, Site
from cbt_crypto.plan.file.cluster import ClusterSection
from cbt_crypto.units import size_bytes

#: Ceph's own smallest osd_memory_target, and its default, in bytes.
LEAST_MEMORY = 896 << 20
_USUAL_MEMORY = 4 << 30


def memory_target(cluster: ClusterSection) -> int:
    """Bytes that the OSDs of one drive aim at together, for each of `osds_per_device`."""
    named = cluster.settings.osd_memory_target
    return size_bytes(named) if named else _USUAL_MEMORY


def osds_per_device(cluster: ClusterSection) -> int:
    """The section's; `contradictions` refuses a list of them side by side."""
    per_device = cluster.osds_per_device
    assert isinstance(per_device, int)
    return per_device


def share_of_memory(cluster: ClusterSection, groups: int) -> int:
    """Bytes that each OSD aims at, in whole MiB."""
    return memory_target(cluster) // groups >> 20 << 20


def divided(cluster: ClusterSection, groups: int) -> ClusterSection:
    """The section with a slice of each drive, and a part of the memory, for each group."""
    per_device = osds_per_device(cluster)
    memory = f"{share_of_memory(cluster, groups) >> 20}M"
    settings = cluster.settings.model_copy(update={"osd_memory_target": memory})
    return cluster.model_copy(update={"osds_per_device": per_device * groups, "settings": settings})


def engine_keys(cluster: ClusterSection) -> dict[str, Any]:
    """Keys in which the section that an engine is given differs from the file's."""
    if cluster.layout != "side_by_side":
        return {}
    settings = cluster.settings.model_dump(mode="json", exclude_none=True)
    return {"osds_per_device": cluster.osds_per_device, "settings": settings}


def group_number(osd: Osd, per_device: int, groups: int, deployment: int) -> int:
    """The number of the group that an OSD belongs to, on the deployment of that number.

    `per_device` is how many OSDs are on each drive. Slices lie on a drive in the order of these
    numbers: with each deployment every group moves on to the next one, so that none owns the
    better slice of a drive, or the luckier numbers of OSDs, by which CRUSH places.
    """
    return (osd.number % per_device + deployment) % groups


def site_of_group(
    site: Site, section: ClusterSection, count: int, number: int, deployment: int
) -> Site:
    """The site as the group of that number, of so many, sees it on that deployment.

    Its own OSDs, the others idle, its own pools and ceph.conf. `section` has the drives divided.
    """
    per_device = osds_per_device(section)
    own = {osd for osd in site.osds if group_number(osd, per_device, count, deployment) == number}
    return replace(
        site,
        osds=tuple(osd for osd in site.osds if osd in own),
        idle=tuple(osd for osd in site.osds if osd not in own),
        group=name_of(number),
        conf=conf_of(site, number),
        slices=deployment,
    )


def conf_of(site: Site, number: int) -> str:
    """The ceph.conf of a group's clients."""
    return f"{site.conf.removesuffix('.conf')}.{name_of(number)}.conf"


def name_of(number: int) -> str:
    """What a group's CRUSH device class and rule are called, and what its pools' names end in."""
    return f"group{number}"

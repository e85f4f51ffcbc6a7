"""From the `cluster` section to a Site, and what in it makes figures mean less than they seem."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Optional

from cbt_crypto.benchmarks.base import Scenario
from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.hosts.devices import lvm_and_md
from cbt_crypto.hosts.site import Drive, Osd, Site
from cbt_crypto.plan.cells import Cell
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.file.checks import origin_of
from cbt_crypto.plan.file.cluster import (
    CONTROL,
    ClusterSection,
    PoolProfile,
    Variant,
    at,
    code_of,
    pieces_of,
)
from cbt_crypto.plan.file.field_types import keys_of
from cbt_crypto.plan.side_by_side import memory_target
from cbt_crypto.units import counted, size_text


def site_of(cluster: ClusterSection) -> Site:
    """The cluster's places, OSDs numbered in the file's order; of lists, the first value counts."""
    cluster = at(cluster)
    osds: list[Osd] = []
    for host in origin_of(cluster).osd_hosts:
        count = cluster.osds_per_node * per_device(cluster)
        osds += [_osd(cluster, host, n, len(osds) + n) for n in range(count)]
    return Site(
        tmp_dir=cluster.tmp_dir,
        conf=conf_path(cluster),
        head=cluster.head,
        clients=tuple(cluster.clients),
        osds=tuple(osds),
        beside=tuple(cluster.osds if cluster.use_existing and cluster.proof != "none" else ()),
        mons=tuple(cluster.mons),
        mgrs=tuple(cluster.mgrs),
        active_clients=tuple(cluster.clients),
        wipe=tuple(cluster.wipe) if isinstance(cluster.wipe, list) else cluster.wipe,
        discard=cluster.discard,
        ceph_cmd=cluster.ceph_cmd,
        client_id=cluster.client_id,
    )


def drives_of(cluster: ClusterSection) -> tuple[Drive, ...]:
    """The drives of `cluster.drives`, in the file's order."""
    drives = []
    for name, section in cluster.drives.items():
        folder = f"{cluster.tmp_dir}/drives/{_short(name)}"
        array = f"/dev/md/cbt-crypto-{_short(folder)}"
        drives.append(
            Drive(
                name=name,
                host=section.host,
                devices=section.devices,
                folder=folder,
                array=array if section.raid0 is not None else None,
                chunk_kib=section.chunk_kib,
                encrypts_members=section.encrypt == "members",
                plp=section.plp,
            )
        )
    return tuple(drives)


def drives_used(campaign: Campaign, cells: Iterable[Cell]) -> tuple[Drive, ...]:
    """The drives that `cells` work on."""
    used = {cell.scenario.drive_name for cell in cells}
    return tuple(drive for drive in drives_of(campaign.cluster) if drive.name in used)


def sites_of(campaign: Campaign, cells: Iterable[Cell]) -> list[Site]:
    """The cluster's places in each variant that `cells` are measured in."""
    variants = dict.fromkeys(cell.variant for cell in cells)
    return [site_of(at(campaign.cluster, variant)) for variant in variants]


def whole_site(campaign: Campaign) -> Site:
    """All places of a campaign: its cluster's, its drives, and what overlays change of hosts."""
    site = replace(site_of(campaign.cluster), drives=drives_of(campaign.cluster))
    overlays = (overlay for named in campaign.configurations.values() for overlay in named)
    changed = ((host, overlay.name) for overlay in overlays for host in overlay.way_back(site))
    return replace(site, changed=tuple(dict.fromkeys(changed)))


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def section_of(config: Mapping[str, Any]) -> ClusterSection:
    """The section, from what an engine's settings made of it: they add keys of their own."""
    keys = keys_of(ClusterSection)
    return ClusterSection.model_validate({k: v for k, v in config.items() if k in keys})


def ceph_dir(cluster: ClusterSection) -> str:
    """Where a deployed cluster keeps everything, on every host."""
    return f"{cluster.tmp_dir}/ceph"


def conf_path(cluster: ClusterSection) -> str:
    """ceph.conf on every host: ours; for a cluster that is there already the one that is named."""
    return origin_of(cluster).conf(f"{ceph_dir(cluster)}/ceph.conf")


def per_device(cluster: ClusterSection) -> int:
    """How many OSDs share a device."""
    count = cluster.osds_per_device
    return count[0] if isinstance(count, list) else count


def _osd(cluster: ClusterSection, host: str, n: int, osd_id: int) -> Osd:
    base = ceph_dir(cluster)
    data_dir = f"{base}/osd.{osd_id}"
    is_file = cluster.osd_file_size is not None
    disk = None if is_file else _device(cluster, host, n // per_device(cluster))
    device = disk or f"{data_dir}.block"
    if disk and per_device(cluster) > 1:
        device = lvm_and_md.path(lvm_and_md.group_name(base, host, disk), f"osd.{osd_id}-data")
    return Osd(
        id=osd_id,
        host=host,
        device=device,
        disk=disk if disk != device else None,
        data_dir=data_dir,
        admin_socket=f"{base}/run/osd.{osd_id}.asok",
        pid_file=f"{base}/run/osd.{osd_id}.pid",
        is_file=is_file,
        number=n,
    )


def _device(cluster: ClusterSection, host: str, n: int) -> str:
    devices = cluster.osd_devices
    if isinstance(devices, str):
        return devices.replace("{n}", str(n))
    return (devices[host] if isinstance(devices, dict) else devices)[n]


def cell_site(
    cluster: ClusterSection,
    scenario: Scenario,
    stack: Optional[Stack] = None,
    whole: Optional[Site] = None,
) -> Site:
    """The places of one cell: the cluster and its active clients, or a drive and its host.

    `stack` chooses the drive's `path`; `whole` is the cluster's site if it is made already.
    """
    site = site_of(cluster) if whole is None else whole
    name = scenario.drive_name
    if name is None:
        encryption = stack.volume_encryption() if stack is not None else None
        clients = scenario.active_clients(site.clients)
        filesystem = getattr(scenario, "filesystem", None)
        on_nbd = getattr(scenario, "on_nbd", False)
        site = replace(site, active_clients=clients, filesystem=filesystem, on_nbd=on_nbd)
        return replace(site, volume_encryption=encryption)
    drive = next(drive for drive in drives_of(cluster) if drive.name == name)
    if stack is not None:
        drive = replace(drive, path=stack.drive_path(drive))
    host = (drive.host,)
    return replace(site, osds=(), clients=host, active_clients=host, drives=(drive,))


def copies(cluster: ClusterSection, pool: Optional[PoolProfile]) -> float:
    """Bytes on OSDs for each byte of a volume in a pool."""
    return 1 if pool is None else pieces_of(cluster, pool) / code_of(cluster, pool).get("k", 1)


def cautions(campaign: Campaign, cells: Iterable[Cell]) -> Iterator[str]:
    """What of the file makes figures mean less: pools, configurations, reads that memory serves."""
    yield from () if campaign.cluster.use_existing else _of_pools(at(campaign.cluster))
    own, baseline = campaign.cluster.configurations, str(campaign.baseline)
    for name in own:
        if name not in (baseline, CONTROL) and own[name] == own.get(baseline):
            yield f"cluster.configurations.{name}: is the same as the baseline, {baseline}"
    asked: dict[tuple[str, int, Variant], Cell] = {}
    for cell in cells:
        mode = str(cell.parameters.get("mode", ""))
        if cell.scenario.needs_cluster and ("read" in mode or mode in ("rw", "randrw")):
            # The cells of all rounds, and of all configurations, have this in common.
            key = cell.scenario.name, int(cell.parameters.get("vol_size", 0)), cell.variant
            asked.setdefault(key, cell)
    warnings = (_warning(campaign, cell) for cell in asked.values())
    yield from dict.fromkeys(filter(None, warnings))


def _of_pools(cluster: ClusterSection) -> Iterator[str]:
    hosts = len(set(cluster.osds))
    for name, pool in cluster.pool_profiles.items():
        key, pieces = f"cluster.pool_profiles.{name}", pieces_of(cluster, pool)
        if (even := 1 << round(math.log2(pool.pg_size))) != pool.pg_size:
            said = f"{pool.pg_size} is no power of two, so some groups are twice as large as others"
            yield f"{key}.pg_size: {said}; {even} is"
        if 1 < hosts < pieces:
            yield f"{key}: of {pieces} pieces of an object on {hosts} hosts some share a host"


def _warning(campaign: Campaign, cell: Cell) -> Optional[str]:
    cluster = at(campaign.cluster, cell.variant)
    site = site_of(cluster)
    osds = len(site.osds) // max(1, len(campaign.groups))
    volumes = cell.scenario.volumes(site)
    if not osds or not volumes:
        return None
    pool = cluster.pool_profiles.get(volumes[0].data_pool or volumes[0].pool)
    of_each = copies(cluster, pool)
    size = sum(volume.size_mb for volume in volumes) << 20
    memory = int(memory_target(cluster) * osds / of_each)
    if size > memory:
        return None
    larger = 2 * (memory >> 20) // len(volumes) + 1
    held = f"{counted(osds, 'OSD')} with osd_memory_target {size_text(memory_target(cluster))}"
    return (
        f"{cell.scenario.name}: its {counted(len(volumes), 'volume')} of {size_text(size)} "
        f"{'fits' if len(volumes) == 1 else 'together fit'} into the memory of {held} and "
        f"{of_each:g} {'copy' if of_each == 1 else 'copies'}: reads measure memory and not "
        f"drives; with vol_size: {larger} (MiB) or more at least half of them reach drives"
    )

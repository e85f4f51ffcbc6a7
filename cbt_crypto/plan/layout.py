"""From the `cluster` section to a Site: which OSD is where, on which device, with which paths."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Optional

from cbt_crypto.benchmarks.base import Scenario
from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.hosts.devices import lvm_and_md
from cbt_crypto.hosts.site import Drive, Osd, Site
from cbt_crypto.plan.file.checks import origin_of
from cbt_crypto.plan.file.cluster import ClusterSection, PoolProfile, at


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


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def section_of(config: Mapping[str, Any]) -> ClusterSection:
    """The section, from what an engine's settings made of it: they add keys of their own."""
    fields = ClusterSection.model_fields
    keys = {name for key, info in fields.items() for name in (key, info.alias) if name}
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


def pieces_of(cluster: ClusterSection, pool: PoolProfile) -> int:
    """On how many OSDs an object of a pool is."""
    code = cluster.erasure_profiles.get(pool.erasure_profile or "")
    return pool.replication if code is None else code.erasure_k + code.erasure_m


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
        return replace(site, active_clients=clients, volume_encryption=encryption)
    drive = next(drive for drive in drives_of(cluster) if drive.name == name)
    if stack is not None:
        drive = replace(drive, path=stack.drive_path(drive))
    host = (drive.host,)
    return replace(site, osds=(), clients=host, active_clients=host, drives=(drive,))

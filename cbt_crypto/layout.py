"""From the `cluster` section to a Site: which OSD is where, on which device, with which paths."""

from __future__ import annotations

from cbt_crypto.file.cluster import ClusterSection
from cbt_crypto.site import Osd, Site


def site_of(cluster: ClusterSection) -> Site:
    """The cluster's places. OSD ids count through the hosts in the file's order."""
    osds: list[Osd] = []
    if not cluster.use_existing:
        for host in cluster.osds:
            osds += [_osd(cluster, host, n, len(osds) + n) for n in range(cluster.osds_per_node)]
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
        ceph_cmd=cluster.ceph_cmd,
    )


def ceph_dir(cluster: ClusterSection) -> str:
    """Where a deployed cluster keeps everything, on every host."""
    return f"{cluster.tmp_dir}/ceph"


def conf_path(cluster: ClusterSection) -> str:
    """ceph.conf on every host: ours, or the system's for a cluster that is there already."""
    return "/etc/ceph/ceph.conf" if cluster.use_existing else f"{ceph_dir(cluster)}/ceph.conf"


def _osd(cluster: ClusterSection, host: str, n: int, osd_id: int) -> Osd:
    base = ceph_dir(cluster)
    data_dir = f"{base}/osd.{osd_id}"
    is_file = cluster.osd_file_size is not None
    return Osd(
        id=osd_id,
        host=host,
        device=f"{data_dir}.block" if is_file else _device(cluster, host, n),
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

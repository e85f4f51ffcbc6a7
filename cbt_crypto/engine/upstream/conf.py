"""ceph.conf for a cluster that upstream deploys below `tmp_dir`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Callable, Optional

from cbt_crypto.engine.embedded.options import Sections, base_options, setting_options, without
from cbt_crypto.hosts import ceph_conf
from cbt_crypto.hosts.site import Osd, Site
from cbt_crypto.plan.file.cluster import ClusterSection
from cbt_crypto.plan.layout import ceph_dir


def sections(
    cluster: ClusterSection, site: Site, extra: Mapping[str, Mapping[str, str]],
    device: Callable[[Osd], str], db_device: Callable[[Osd], Optional[str]],
) -> Sections:  # fmt: skip
    """The same options as on the embedded engine, and where upstream puts keys and devices."""
    base = _upstream_places(cluster)
    of_file = ceph_conf.read(Path(cluster.conf_file)) if cluster.conf_file else {}
    return ceph_conf.merged(
        setting_options(cluster),
        without(of_file, base),
        base,
        _devices(site, device, db_device),
        extra,
    )


def _upstream_places(cluster: ClusterSection) -> Sections:
    sections = base_options(cluster, "")
    directory = ceph_dir(cluster)
    # Upstream's monmaptool makes the cluster's id up.
    del sections["global"]["fsid"]
    sections["mgr"]["keyring"] = f"{directory}/mgr.$id/keyring"
    sections["osd"]["keyring"] = f"{directory}/osd.$id/keyring"
    # Its benchmarks remove a pool before they make it.
    sections["mon"]["mon_allow_pool_delete"] = "true"
    return sections


def _devices(
    site: Site, device: Callable[[Osd], str], db_device: Callable[[Osd], Optional[str]]
) -> Sections:
    """Upstream's mkfs names no device; BlueStore reads them here."""
    by_osd: Sections = {}
    for osd in site.osds:
        options = {"bluestore_block_path": device(osd)}
        database = db_device(osd)
        if database:
            options["bluestore_block_db_path"] = database
        by_osd[f"osd.{osd.id}"] = options
    return by_osd

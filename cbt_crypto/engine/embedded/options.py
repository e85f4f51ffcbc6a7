"""What every ceph.conf of this engine says, and what the file's keys add to it."""

from __future__ import annotations

import math
import shlex

from cbt_crypto.engine.embedded.pools import failure_domain
from cbt_crypto.hosts.ceph_conf import mon_vector
from cbt_crypto.plan.file.cluster import ClusterSection
from cbt_crypto.plan.layout import ceph_dir, per_device, pieces_of, site_of
from cbt_crypto.units import size_bytes

Sections = dict[str, dict[str, str]]


#: Manager modules that are loaded. Each takes up to seconds on a cluster that lives for minutes,
#: and some work in the background while a cell is measured.
_MODULES = ("balancer", "pg_autoscaler", "status")
#: Option of a manager's command line, in the shell text that follows `without_modules`.
WITHOUT_MODULES = '--mgr-disabled-modules="$modules" '


def without(sections: Sections, base: Sections) -> Sections:
    """People's ceph.conf less what a cluster below `tmp_dir` decides itself.

    That is: other clusters' daemons, and options that would lead a daemon out of `tmp_dir`.
    """
    decided = {name for options in base.values() for name in options}
    return {
        section: {name: value for name, value in options.items() if name not in decided}
        for section, options in sections.items()
        if section in ("global", "mon", "mgr", "osd", "client")
    }


def without_modules(conf: str, ceph_conf: str = "ceph-conf") -> str:
    """Shell text that puts the modules a manager shall do without into `$modules`.

    Every release has others, so it is the release's own directory that is asked.
    """
    wanted = "|".join(_MODULES)
    return (
        f"folder=$({shlex.quote(ceph_conf)} -c {shlex.quote(conf)} "
        "--show-config-value mgr_module_path)\n"
        f'modules=$(ls "$folder" | grep -vxE \'({wanted})\' | tr "\\n" " ")'
    )


def file_size(cluster: ClusterSection) -> int:
    """Bytes of one OSD's file, in whole MiB: its part of `osd_file_size`; 0 without files."""
    size = size_bytes(cluster.osd_file_size) if cluster.osd_file_size else 0
    return size // per_device(cluster) >> 20 << 20


def base_options(cluster: ClusterSection, fsid: str) -> Sections:
    """Identity, paths and authentication: what a cluster below `tmp_dir` cannot do without.

    msgr2 alone is bound: a monitor that also speaks msgr1 leaves room for unencrypted traffic.
    """
    base = ceph_dir(cluster)
    mons = {name: address for named in cluster.mons.values() for name, address in named.items()}
    sections: Sections = {
        "global": {
            "fsid": fsid,
            "mon_host": " ".join(mon_vector(address) for address in mons.values()),
            "mon_initial_members": ",".join(mons),
            "auth_allow_insecure_global_id_reclaim": "false",
            "ms_bind_msgr1": "false",
            "keyring": f"{base}/keyring",
            "run_dir": f"{base}/run",
            "admin_socket": f"{base}/run/$name.asok",
            "pid_file": f"{base}/run/$name.pid",
            "log_file": f"{base}/log/$name.log",
            "crash_dir": f"{base}/crash",
        },
        "client": {"admin_socket": "", "log_file": "/dev/null"},
        # Monitors gather changes for 1 s by default, which each step of a deployment would wait
        # for. They are not in the way of client IO, so nothing that is measured changes.
        "mon": {"mon_data": f"{base}/mon.$id", "paxos_propose_interval": "0.05"},
        "mgr": {"mgr_data": f"{base}/mgr.$id"},
        "osd": {"osd_data": f"{base}/osd.$id", "osd_objectstore": cluster.fs},
    }
    if cluster.osd_file_size:
        sections["osd"]["bluestore_block_size"] = str(file_size(cluster))
    sections.update({f"osd.{osd.id}": {"host": osd.host} for osd in site_of(cluster).osds})
    return sections


def setting_options(cluster: ClusterSection) -> Sections:
    """The keys of `cluster.settings` and the pool profiles as options."""
    settings = cluster.settings
    options = {
        "auth_cluster_required": "cephx",
        "auth_service_required": "cephx",
        "auth_client_required": "cephx",
        "rbd_cache": str(settings.rbd_cache).lower(),
        "osd_pool_default_pg_autoscale_mode": "on" if settings.pg_autoscaler else "off",
        "mon_max_pg_per_osd": str(_pgs_per_osd(cluster)),
        # Else a large pool starts with 1,024 placement groups and grows while it is measured.
        "mon_osd_max_initial_pgs": "65536",
        "osd_crush_chooseleaf_type": "1" if failure_domain(cluster) == "host" else "0",
        "mon_allow_pool_size_one": "true",
        # Else each new OSD measures itself for some seconds, and schedules by what it found: a
        # difference between configurations that nobody asked for.
        "osd_mclock_skip_benchmark": "true",
    }
    if settings.osd_memory_target:
        options["osd_memory_target"] = str(size_bytes(settings.osd_memory_target))
    return {"global": options}


def _pgs_per_osd(cluster: ClusterSection) -> int:
    # One OSD a device is counted, however many there are: of configurations side by side, each
    # has pools of its own on its share of a device's OSDs.
    osds = max(1, len(cluster.osds) * cluster.osds_per_node)
    copies = sum(pool.pg_size * pieces_of(cluster, pool) for pool in cluster.pool_profiles.values())
    return max(250, 2 * math.ceil(copies / osds))

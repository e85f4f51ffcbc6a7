"""CBT's own test plans, known by keys that only CBT has: translated, or refused in a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Optional

from cbt_crypto.plan.file.document import KeyPath
from cbt_crypto.units import whole

_OWN = "or run the file with CBT's own cbt.py"
_GATEWAY = f"object gateways are not deployed here; name urls of others, {_OWN}"
_TIERS = f"cache tiers are not deployed here; remove it, {_OWN}"
_VALGRIND = f"daemons do not run under valgrind here; remove it, {_OWN}"

#: CBT's benchmarks that do not run here -> what to use instead.
BENCHMARKS: Mapping[str, str] = {
    "cephtestrados": f"it measures nothing; remove it, {_OWN}",
    "nullbench": f"it measures nothing; remove it, {_OWN}",
}
#: Drivers of CBT's client endpoints that cannot be had here -> why.
DRIVERS: Mapping[str, str] = {
    "rbd-tcmu": "what targetcli made would have to be removed by clearing its whole configuration"
}
#: Those that are file systems of Ceph's own.
_CEPHFS = ("cephfs-fuse", "cephfs-kernel")
#: Keys of `cluster` that would change what is measured -> what to do instead.
REFUSED: Mapping[str, str] = {
    "crimson_cpusets": f"use the overlay cpuset, {_OWN}",
    "recovery_test": f"use the key recovery of a scenario, {_OWN}",
    "tiering": _TIERS,
    "cache_profiles": _TIERS,
    "crush_profiles": f"use Ceph's default rules, {_OWN}",
    "newstore_block": f"OSDs are BlueStore here; remove it, {_OWN}",
    "rgw_pools": _GATEWAY,
    **dict.fromkeys(("osd_valgrind", "mon_valgrind", "mgr_valgrind", "rgw_valgrind"), _VALGRIND),
}
#: Keys of `cluster` that CBT's modules read, where its checkout is the engine.
PASSED = (
    "rados_cmd", "ceph-authtool_cmd", "osd_online_rate", "osd_online_timeout",
    "osd_parallel_creates", "rbd-nbd_cmd", "rbd-fuse_cmd", "radosgw-admin_cmd", "rgws",
    "mdss", "ceph-mds_cmd", "ceph-fuse_cmd", "mount_cmd",
)  # fmt: skip
#: Commands of `cluster` that this program wraps.
_PROGRAMS = (
    "ceph-osd_cmd", "ceph-mon_cmd", "ceph-mgr_cmd", "ceph-mds_cmd", "ceph-fuse_cmd", "mount_cmd",
    "rados_cmd",
)  # fmt: skip
_ROLES = ("head", "clients", "osds", "mons", "mgrs", "mdss")
_PLACES = "everything is below tmp_dir"
_NOT_STARTED = "nothing here starts it"
_NO_FILES = "OSDs are BlueStore and need no file system"
#: Keys of `cluster` without effect here -> why.
UNUSED: Mapping[str, str] = {
    "fs": _NO_FILES,
    "mkfs_opts": _NO_FILES,
    "mount_opts": _NO_FILES,
    "clusterid": _PLACES,
    "pid_dir": _PLACES,
    "log_dir": _PLACES,
    "core_dir": _PLACES,
    "mnt_dir": _PLACES,
    "ceph-run_cmd": "daemons are started directly, so that a crash shows",
    "ceph.conf": "CBT does not read it either; conf_file is the key",
    "pdsh_ssh_args": "CBT reads it from the section common alone",
    "health_wait": "the wait for a healthy cluster is exact",
    "version_compat": "pools are made as the cluster's release wants them",
    "is_teuthology": "every cell runs",
    "ceph-rgw_cmd": _NOT_STARTED,
    "cephfs_pools": "CBT does not read it either; a CephFS endpoint makes its own pools",
    "idle_duration": "nothing is measured before the first cell",
    "disable_balancer": "settings.balancer says it",
}
#: What CBT makes of a pool without a profile.
_DEFAULT_POOL: Mapping[str, Mapping[str, Any]] = {"default": {"pg_size": 1024, "pgp_size": 1024}}
#: Sections beside those of this program -> why they are left alone.
SECTIONS: Mapping[str, str] = {
    "common": "CBT's modules read it",
    "client_endpoints": "CBT's modules read it, for fio and hsbench",
    "report": "CBT's librbdfio reads it, with create_report",
}


def is_of_cbt(data: Any) -> bool:
    """Return whether only CBT knows a key of the file, or a form of one."""
    cluster = data.get("cluster") if isinstance(data, dict) else None
    if not isinstance(cluster, dict):
        return False
    benchmarks = data.get("benchmarks")
    return (
        any(key in cluster for key in (*REFUSED, *PASSED, *UNUSED) if key != "fs")
        or any(section in data for section in SECTIONS)
        or (isinstance(benchmarks, dict) and any(name in benchmarks for name in BENCHMARKS))
        or isinstance(cluster.get("mons"), (str, list))
        or ("head" not in cluster and cluster.get("use_existing") is True)
        or any("@" in str(host) for host in _hosts(cluster))
    )


def refusal(data: Mapping[str, Any]) -> Optional[tuple[KeyPath, str]]:
    """Return the first key of CBT's file that cannot be honoured, and what to use instead."""
    return next(_refusals(data), None)


def _refusals(data: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    cluster = data["cluster"]
    for name in _mapping(data, "benchmarks"):
        if name in BENCHMARKS:
            yield ("benchmarks", name), f"does not run here: {BENCHMARKS[name]}"
    for key in cluster:
        if key in REFUSED:
            yield ("cluster", key), f"is not supported: {REFUSED[key]}"
    yield from _refused_endpoints(data)
    yield from _refused_gateways(data)
    yield from _refused_mdss(data)
    yield from _refused_programs(cluster)
    if {"configurations", "matrix"} & cluster.keys() and "use_existing" not in cluster:
        wrong = "is missing; write false to deploy the cluster. This file is written as CBT's are "
        wrong += "(mons as a list, for example), which take true for granted"
        yield ("cluster", "use_existing"), wrong
    for role in _ROLES:
        if any("^" in str(host) for host in _hosts({role: cluster.get(role)})):
            yield ("cluster", role), "names a file of pdsh's; write the hosts themselves"
    users = _users(cluster) | ({str(cluster["user"])} if "user" in cluster else set())
    if len(users) > 1:
        names = " and ".join(sorted(users))
        yield ("cluster", "user"), f"hosts are reached as {names}; use one user for all"


def _refused_gateways(data: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    cluster = data["cluster"]
    if "rgws" in cluster and not cluster.get("use_existing", True):
        yield ("cluster", "rgws"), f"is not supported: {_GATEWAY}"
    elif isinstance(cluster.get("rgws"), list) and "cosbench" in _mapping(data, "benchmarks"):
        wrong = "is a list, which CBT's own cosbench cannot read; write {host: {client.NAME: ~}}"
        yield ("cluster", "rgws"), wrong


def _refused_mdss(data: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    cluster = data["cluster"]
    if cluster.get("use_existing", True):
        return
    mdss = cluster.get("mdss")
    drivers = (_endpoint(data, part).get("driver") for part in _fio_parts(data))
    driver = next((driver for driver in drivers if driver in _CEPHFS), None)
    if driver is None:
        return
    if not (isinstance(mdss, dict) and all(isinstance(named, dict) for named in mdss.values())):
        wrong = f"has to name who serves the driver {driver}: write {{host: {{a: ~}}}}"
        yield ("cluster", "mdss"), wrong
        return
    others = {_bare(host) for host in _hosts({**cluster, "mdss": None})}
    for host in map(_bare, mdss):
        if host not in others:
            wrong = f"names {host}, which has no other role; name a host of head, clients, "
            yield ("cluster", "mdss"), f"{wrong}osds, mons or mgrs"


def _refused_programs(cluster: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    for key in _PROGRAMS:
        if len(str(cluster.get(key, "")).split()) > 1:
            wrong = f"is the path of one program here, not {cluster[key]!r}; write its path, and "
            wrong += f"what OSDs have in their environment as the overlay osd_service, {_OWN}"
            yield ("cluster", key), wrong


def _fio_parts(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    section = _mapping(data, "benchmarks").get("fio")
    parts = section if isinstance(section, list) else [section]
    return [part for part in parts if isinstance(part, dict)]


def _refused_endpoints(data: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    for part in _fio_parts(data):
        name, endpoint = part.get("client_endpoints"), _endpoint(data, part)
        if not endpoint:
            wrong = f"has no {name!r}, which benchmarks.fio names; it is one name, and no list"
            yield ("client_endpoints",), wrong
        elif (driver := str(endpoint.get("driver"))) in DRIVERS:
            path = ("client_endpoints", str(name), "driver")
            yield path, f"{driver} is not supported: {DRIVERS[driver]}; use librbd or rbd-kernel"


def _endpoint(data: Mapping[str, Any], part: Mapping[str, Any]) -> Mapping[str, Any]:
    return _mapping(_mapping(data, "client_endpoints"), part.get("client_endpoints"))


def _mapping(data: Mapping[str, Any], name: object) -> Mapping[str, Any]:
    """Return a section; empty where it is no mapping, which whoever checks it reports."""
    section = data.get(name) if isinstance(name, str) else None
    return section if isinstance(section, dict) else {}


def translated(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return CBT's file in this program's words; its keys in PASSED stay with CBT's modules."""
    kept = {name: section for name, section in data.items() if name not in SECTIONS}
    cluster = translated_cluster(data["cluster"])
    dropped = {*PASSED, *UNUSED} - {"fs"}
    kept["cluster"] = {key: value for key, value in cluster.items() if key not in dropped}
    if benchmarks := _mapping(data, "benchmarks"):
        kept["benchmarks"] = {name: _in_our_words(each) for name, each in benchmarks.items()}
    for part in _fio_parts(kept):
        endpoint = _endpoint(data, part)
        part["driver"] = endpoint.get("driver")
        part["endpoints_per_client"] = endpoint.get("endpoints_per_client", 1)
        part.setdefault("pool_profile", endpoint.get("pool_profile", "default"))
        if endpoint.get("driver") in _CEPHFS and not cluster["use_existing"]:
            part["mds_hosts"] = ",".join(map(str, _mapping(cluster, "mdss")))
    profiles = _mapping(data, "monitoring_profiles")
    if "top" in profiles:
        kept["monitoring_profiles"] = {k: v for k, v in profiles.items() if k != "top"}
    return kept


def translated_cluster(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return CBT's `cluster` section with this program's forms, and all other keys as they are."""
    cluster = dict(section)
    users = _users(cluster)
    if users:
        cluster["user"] = users.pop()
    mons = cluster.get("mons")
    hosts = [mons] if isinstance(mons, str) else mons
    if isinstance(hosts, list) and all(isinstance(host, str) for host in hosts):
        cluster["mons"] = {h: {chr(ord("a") + n): _bare(h)} for n, h in enumerate(hosts)}
    if "head" not in cluster and cluster.get("clients"):
        # CBT asks it nothing about devices without a cluster.
        cluster["head"] = next(_hosts({"clients": cluster["clients"]}))
    for role in _ROLES:
        if role in cluster:
            cluster[role] = _bare(cluster[role])
    if cluster.get("fs") not in (None, "bluestore"):
        del cluster["fs"]
    # What CBT takes for granted, and this program does not.
    cluster.setdefault("use_existing", True)
    profiles = cluster.get("pool_profiles") or _DEFAULT_POOL
    if isinstance(profiles, dict):
        profiles = {name: _with_numbers(profile) for name, profile in profiles.items()}
    cluster["pool_profiles"] = profiles
    return cluster


def _with_numbers(profile: Any) -> Any:
    """Return a pool's profile without a kind of pool where the number of replicas belongs."""
    if isinstance(profile, dict) and profile.get("replication") in ("replicated", "erasure"):
        return {key: value for key, value in profile.items() if key != "replication"}
    return profile


def notes(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield what has no effect here, key by key with why."""
    for key in data["cluster"]:
        if (
            key in UNUSED
            and UNUSED[key] != _NOT_STARTED
            and (key != "fs" or data["cluster"][key] != "bluestore")
        ):
            yield f"cluster.{key} has no effect: {UNUSED[key]}"
    for section in data:
        if section == "report":
            yield f"report has no effect here: {SECTIONS[section]}"
    if "top" in _mapping(data, "monitoring_profiles"):
        yield (
            "monitoring_profiles.top has no effect: CBT ends it by its name, and more with it;"
            " use collectl or sampler"
        )
    for name, section in _mapping(data, "benchmarks").items():
        if isinstance(section, dict) and "acceptable" in section:
            yield f"benchmarks.{name}.acceptable has no effect: cbt-crypto gate compares archives"


def _in_our_words(section: Any) -> Any:
    if isinstance(section, list):
        return [_in_our_words(part) for part in section]
    if not isinstance(section, dict):
        return section
    given = {key: value for key, value in section.items() if key != "acceptable"}
    seconds = {key: whole(str(given.get(key, ""))) for key in ("time", "ramp")}
    return {**given, **{key: number for key, number in seconds.items() if number is not None}}


def _hosts(cluster: Mapping[str, Any]) -> Iterator[Any]:
    for role in _ROLES:
        value = cluster.get(role) or []
        yield from value if isinstance(value, (list, dict)) else [value]


def _users(cluster: Mapping[str, Any]) -> set[str]:
    return {str(host).rpartition("@")[0] for host in _hosts(cluster)} - {""}


def _bare(value: Any) -> Any:
    if isinstance(value, str):
        return value.rpartition("@")[2]
    if isinstance(value, dict):
        return {_bare(host): daemons for host, daemons in value.items()}
    return [_bare(host) for host in value] if isinstance(value, list) else value

"""What in the `cluster` section does not go together, although each value by itself is valid."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Optional

from cbt_crypto.benchmarks.base import Scenario
from cbt_crypto.cluster_overlays.base import Overlay
from cbt_crypto.hosts.ceph_conf import ADMIN
from cbt_crypto.plan.file.cluster import ClusterSection, PoolProfile
from cbt_crypto.plan.file.document import KeyPath
from cbt_crypto.results.precision.deployments import FIRST
from cbt_crypto.units import counted

#: Where, and one sentence.
Contradiction = tuple[KeyPath, str]


def of_any(cluster: ClusterSection) -> Iterator[Contradiction]:
    """What contradicts something else in the section, wherever its cluster comes from."""
    yield from _twice(("cluster", "clients"), cluster.clients, "host")
    yield from _neighbours(cluster)
    yield from _drives(cluster)


def of_existing(cluster: ClusterSection) -> Iterator[Contradiction]:
    """What cannot be had of a cluster that is there already."""
    if cluster.drives:
        yield ("cluster", "drives"), "does not go with use_existing; measure them in another file"
    if cluster.discard:
        yield ("cluster", "discard"), "would destroy a cluster that exists; leave it out"
    if cluster.order == "interleaved":
        sentence = "is interleaved, which changes the cluster; with use_existing leave it out"
        yield ("cluster", "order"), sentence


def of_deployed(cluster: ClusterSection, needs_cluster: bool = True) -> Iterator[Contradiction]:
    """What cannot be deployed; `needs_cluster`: whether any scenario works on a Ceph cluster."""
    yield from _order(cluster)
    if cluster.proof == "none":
        yield ("cluster", "proof"), "none is for clusters that exist already; leave it out"
    if cluster.client_id != ADMIN:
        yield ("cluster", "client_id"), "is for clusters that exist already; leave it out"
    for key in ("osds", "mons", "mgrs"):
        if needs_cluster and not getattr(cluster, key):
            yield ("cluster", key), "is empty; name at least one host"
    yield from _twice(("cluster", "osds"), cluster.osds, "host")
    for key, daemons in (("mons", cluster.mons), ("mgrs", cluster.mgrs)):
        names = [name for named in daemons.values() for name in named]
        yield from _twice(("cluster", key), names, "daemon")
    yield from _devices(cluster)
    for name, profile in cluster.pool_profiles.items():
        yield from _erasure(cluster, name, profile)
        if profile.pgp_size > profile.pg_size:
            path = ("cluster", "pool_profiles", name, "pgp_size")
            yield path, f"is larger than pg_size, {profile.pg_size}; lower it"
        if profile.min_size is not None and profile.min_size > profile.replication:
            path = ("cluster", "pool_profiles", name, "min_size")
            yield path, f"is larger than replication, {profile.replication}; lower it"


def until_precise(cluster: ClusterSection) -> Iterator[Contradiction]:
    """What does not go with a precision, of which `iterations` are the most deployments."""
    path = ("cluster", "iterations")
    if cluster.iterations > 1 and cluster.order != "rounds":
        wrong = f"must be 1 where time is a precision and order is {cluster.order}, as all is on "
        yield path, f"{wrong}one cluster; leave it out"
    elif cluster.layout == "side_by_side" and 1 < cluster.iterations < FIRST:
        yield path, too_few_deployments(FIRST)


def too_few_deployments(least: int) -> str:
    """What is wrong with `iterations` that are fewer, where time is a precision."""
    return (
        f"is at least {least} where time is a precision: so many deployments tell how far "
        "deployments are apart; raise it, or give seconds"
    )


def of_recovery(
    cluster: ClusterSection, scenarios: Mapping[str, Sequence[Scenario]]
) -> Iterator[Contradiction]:
    """Where an OSD cannot be taken out of the cluster while a scenario loads it."""
    asked = [
        name
        for name, each in scenarios.items()
        if any(scenario.osd_out_after_s is not None for scenario in each)
    ]
    if not asked:
        return
    path = ("benchmarks", asked[0], "recovery")
    if cluster.use_existing:
        yield path, "takes an OSD out, for which the campaign must deploy the cluster; leave it out"
        return
    if cluster.layout == "side_by_side":
        sentence = "moves what groups of OSDs hold, and does not go with side_by_side; "
        yield path, f"{sentence}measure it in another file"
    shared, replicas = cluster.osds_per_device, cluster.replication
    osds = cluster.osds_per_node * (shared if isinstance(shared, int) else min(shared))
    osds *= 1 if cluster.osd_drives else len(cluster.osds)
    replication = max(
        (profile.replication for profile in cluster.pool_profiles.values()), default=3
    )
    codes = [code.erasure_k + code.erasure_m for code in cluster.erasure_profiles.values()]
    most = max([*(replicas if isinstance(replicas, list) else [replicas or replication]), *codes])
    if osds <= most:
        yield (
            path,
            (
                f"takes one of {counted(osds, 'OSD')} out, and the rest could not hold {most} "
                "pieces of each object; add OSDs, or lower replication"
            ),
        )


def of_client_libraries(
    configurations: Mapping[str, Sequence[Overlay]], scenarios: Mapping[str, Sequence[Scenario]]
) -> Iterator[Contradiction]:
    """Where clients are to have other libraries of Ceph, and their kernel does all IO."""
    replacing = {
        (name, overlay.name)
        for name, overlays in configurations.items()
        for overlay in overlays
        if overlay.replaces_client_libraries
    }
    for scenario in (one for each in scenarios.values() for one in each):
        for name, overlay in sorted(replacing):
            if scenario.configuration == name and not scenario.uses_client_libraries:
                yield (
                    ("cluster", "configurations", name, overlay, "clients"),
                    f"changes nothing for {scenario.name}, whose IO the clients' kernel does; "
                    f"leave clients out, or list other configurations under {scenario.name}",
                )


def _erasure(cluster: ClusterSection, name: str, profile: PoolProfile) -> Iterator[Contradiction]:
    wanted = profile.erasure_profile
    if wanted is None:
        return
    path = ("cluster", "pool_profiles", name, "erasure_profile")
    code = cluster.erasure_profiles.get(wanted)
    if code is None:
        yield path, f'"{wanted}" is none of cluster.erasure_profiles; add it there'
        return
    shared = cluster.osds_per_device
    osds = len(cluster.osds) * cluster.osds_per_node
    osds *= shared if isinstance(shared, int) else min(shared)
    pieces = code.erasure_k + code.erasure_m
    if osds < pieces:
        yield path, f"makes {pieces} pieces, and the cluster has {counted(osds, 'OSD')}; add OSDs"


def _neighbours(cluster: ClusterSection) -> Iterator[Contradiction]:
    hosts = {cluster.head, *cluster.clients, *cluster.osds, *cluster.mons, *cluster.mgrs}
    for host in (cluster.neighbours.hosts or ()) if cluster.neighbours else ():
        if host not in hosts:
            yield (
                ("cluster", "neighbours", "hosts"),
                f'"{host}" is no host of the campaign; name one of its own',
            )


def _order(cluster: ClusterSection) -> Iterator[Contradiction]:
    if cluster.order != "interleaved":
        return
    if cluster.rebuild_every_test or cluster.rebuild not in ("needed", "never"):
        yield (
            ("cluster", "order"),
            "is interleaved: configurations take turns on one cluster; say rebuild: needed",
        )


def _devices(cluster: ClusterSection) -> Iterator[Contradiction]:
    if cluster.osd_file_size:
        if cluster.discard and not cluster.drives:
            sentence = "needs devices, and osd_file_size has OSDs on files, which are made anew"
            yield ("cluster", "discard"), f"{sentence} for each deployment; leave it out"
        return
    devices = cluster.osd_devices
    if isinstance(devices, str):
        if cluster.osds_per_node > 1 and "{n}" not in devices:
            yield (
                ("cluster", "osd_devices"),
                f"is one device for osds_per_node: {cluster.osds_per_node}; put {{n}} where the "
                "OSD's number goes, or list the devices",
            )
        return
    if isinstance(devices, dict):
        for unknown in devices.keys() - set(cluster.osds):
            yield (
                ("cluster", "osd_devices", unknown),
                "is none of the hosts in cluster.osds; add it there, or remove it",
            )
    for host, listed in _device_lists(cluster):
        path: KeyPath = ("cluster", "osd_devices", *([host] if host else []))
        yield from _twice(path, listed, "device")
        if len(listed) < cluster.osds_per_node:
            yield (
                path,
                f"names {counted(len(listed), 'device')} for osds_per_node: "
                f"{cluster.osds_per_node}; add devices or lower osds_per_node",
            )


def _device_lists(cluster: ClusterSection) -> Iterable[tuple[Optional[str], list[str]]]:
    if isinstance(cluster.osd_devices, list):
        return [(None, cluster.osd_devices)]
    if isinstance(cluster.osd_devices, dict):
        return [(host, cluster.osd_devices.get(host, [])) for host in cluster.osds]
    return []


def _twice(path: KeyPath, names: list[str], kind: str) -> Iterator[Contradiction]:
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield path, f'names the {kind} "{name}" twice; keep one'


def _drives(cluster: ClusterSection) -> Iterator[Contradiction]:
    """What in `drives` does not go together with itself or with the rest of the section."""
    for name in cluster.osd_drives:
        if name not in cluster.drives:
            yield ("cluster", "osd_drives"), f'"{name}" is none of cluster.drives; add it there'
    for name, drive in cluster.drives.items():
        path = ("cluster", "drives", name)
        if drive.host not in cluster.clients:
            yield (
                (*path, "host"),
                f'"{drive.host}" is none of the hosts in cluster.clients; add it there',
            )
        for device in sorted({each for each in drive.devices if drive.devices.count(each) > 1}):
            yield (*path, "raid0"), f'names the device "{device}" twice; keep one'

"""The same OSDs from a cell's beginning to its end, and how evenly they were loaded.

An OSD that was restarted has an empty cache and a process that no overlay's start has touched; one
that monitors held for dead had its load taken over by others. Either is no cell of a cluster that
runs in its configuration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

from cbt_crypto.cluster_overlays.base import (
    Finding,
    Overlay,
    Seen,
    Verdict,
    Watch,
    judge_all,
    name_of,
)
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.site import Osd, Site
from cbt_crypto.run.cell import daemons_on_host
from cbt_crypto.run.cell.watch import WatchRecord

#: Of the verdict in proof.json, and of what is watched.
NAME = "osds"
#: OSD -> the epoch of the OSD map since which it is up.
UpFrom = Mapping[int, int]


def watch(site: Site) -> Mapping[str, Watch]:
    """The processes of OSDs."""
    source = shell.program(daemons_on_host)
    return {
        host: Watch(
            source,
            {
                name_of(osd): {"pid_file": osd.pid_file, "socket": osd.admin_socket}
                for osd in site.osds_of(host)
            },
        )
        for host in site.osd_hosts
    }


def judge(site: Site, seen: Mapping[str, Sequence[Seen]], up_from: Sequence[UpFrom]) -> Verdict:
    """Whether each OSD is one process from beginning to end, and up all the time.

    `up_from` is of before and after the cell.
    """
    findings = {osd: _finding(osd, seen.get(osd.host, ()), up_from) for osd in site.osds}
    return judge_all(Overlay(), findings, "were the same processes throughout, and up")


def lost(site: Site, seen: Mapping[str, Sequence[Seen]]) -> Optional[str]:
    """A sentence on the first OSD that ended and is not back; None when there is none.

    The monitors would be asked in vain whether it is up.
    """
    for osd in site.osds:
        looks = [look.value.get(name_of(osd)) for look in seen.get(osd.host, ())]
        if looks and looks[0] and not looks[-1]:
            return f"{name_of(osd)} on {osd.host}: {_fault(looks, ())}"
    return None


def _finding(osd: Osd, seen: Sequence[Seen], up_from: Sequence[UpFrom]) -> Finding:
    looks = [look.value.get(name_of(osd)) for look in seen]
    runs = [run for n, run in enumerate(looks) if n == 0 or run != looks[n - 1]]
    epochs = [look.get(osd.id) for look in up_from]
    evidence = {"pid": None, "start_ticks": None, "up_from": epochs[-1] if epochs else None}
    if runs and runs[-1]:
        evidence |= {"pid": runs[-1][0], "start_ticks": runs[-1][1]}
    return Finding(_fault(runs, epochs), evidence)


def _fault(runs: Sequence[Any], epochs: Sequence[Optional[int]]) -> Optional[str]:
    if not runs or runs[0] is None:
        return "it was not running when the cell began"
    if runs[-1] is None:
        return f"process {runs[0][0]} ended in the middle of the cell"
    if len(runs) > 1:
        return (
            f"it was restarted in the middle of the cell (process {runs[0][0]}, then {runs[-1][0]})"
        )
    if None in epochs:
        return "the monitors did not say since when it is up"
    if len(set(epochs)) > 1:
        return (
            "the monitors took it for down in the middle of the cell (it is up since epoch "
            f"{epochs[-1]} of the OSD map, and was since {epochs[0]})"
        )
    return None


def served(records: Mapping[str, WatchRecord]) -> dict[str, dict[str, int]]:
    """OSD name -> operations of clients that it served in the cell, and its placement groups.

    Without those that did not say it both times.
    """
    return {name: counts for record in records.values() for name, counts in _served(record)}


def _served(record: WatchRecord) -> Iterator[tuple[str, dict[str, int]]]:
    looks = record.counted.get(NAME, [])
    if len(looks) < 2:
        return
    first, last = looks[0], looks[-1]
    for name in first:
        if name in last:
            yield name, {**last[name], "ops": last[name]["ops"] - first[name]["ops"]}

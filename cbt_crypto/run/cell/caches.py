"""Brings the OSDs' caches into the state that a cell's file asks for, the same for every row."""

from __future__ import annotations

from typing import Any

from cbt_crypto.benchmarks.base import ClusterCommands, Scenario
from cbt_crypto.cluster_overlays.base import name_of
from cbt_crypto.hosts import admin_socket
from cbt_crypto.hosts.admin_socket import Question
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.site import HostOutputs, HostScripts, Osd, Site

#: Reading every volume once takes at most so long, beyond what its size takes.
_PATIENCE_S = 600
_READ_MB_PER_S = 1


def fill(
    remote: Remote, site: Site, scenario: Scenario, run_dir: str, commands: ClusterCommands
) -> None:
    """Read the volumes into the caches where the file wants them warm; else do nothing.

    Raises RunError where volumes cannot be read.
    """
    if scenario.cache_state(site) != "warm":
        return
    volumes = scenario.volumes(site)
    limit = _PATIENCE_S + sum(volume.size_mb for volume in volumes) / _READ_MB_PER_S
    scripts = scenario.warm_scripts(volumes, run_dir, commands)
    remote.run(scripts, "read the volumes into the OSDs' caches", limit)


def emptying(site: Site, scenario: Scenario) -> HostScripts:
    """Scripts for `cache drop` at every OSD, where the file wants caches empty."""
    if scenario.cache_state(site) != "drop":
        return {}
    return {
        host: admin_socket.script([_emptying(osd) for osd in site.osds_of(host)])
        for host in site.osd_hosts
    }


def outcome(site: Site, scenario: Scenario, printed: HostOutputs) -> dict[str, Any]:
    """What was done, as cell.json has it; `printed` is of `emptying`.

    `faults` are sentences of OSDs that did not empty theirs.
    """
    state = scenario.cache_state(site)
    return {"state": state, "faults": _faults(site, printed) if state == "drop" else []}


def _faults(site: Site, printed: HostOutputs) -> list[str]:
    """An OSD says nothing when all went well."""
    answers = admin_socket.parse(printed)
    faults = {
        osd.id: answers.fault(name_of(osd), osd.host) or answers.values[name_of(osd)].strip()
        for osd in site.osds
    }
    return [f"osd.{osd} did not empty its cache: {why}" for osd, why in faults.items() if why]


def _emptying(osd: Osd) -> Question:
    return Question(name_of(osd), osd.admin_socket, {"prefix": "cache drop"}, is_text=True)

"""Brings the OSDs' caches into the state that a cell's file asks for, the same for every row."""

from __future__ import annotations

from typing import Any

from cbt_crypto.benchmarks.base import ClusterCommands, Scenario
from cbt_crypto.cluster_overlays.findings import name_of
from cbt_crypto.hosts import admin_socket
from cbt_crypto.hosts.admin_socket import Question
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.site import Osd, Site

#: Reading every volume once takes at most so long, beyond what its size takes.
_PATIENCE_S = 600
_READ_MB_PER_S = 1


def bring(
    remote: Remote, site: Site, scenario: Scenario, run_dir: str, commands: ClusterCommands
) -> dict[str, Any]:
    """Empty the caches, or fill them; what was done, as cell.json has it.

    `faults` are sentences of OSDs that did not empty theirs. Raises RunError where volumes cannot
    be read.
    """
    state = scenario.cache_state(site)
    faults: list[str] = []
    if state == "drop":
        faults = _drop(remote, site)
    elif state == "warm":
        volumes = scenario.volumes(site)
        limit = _PATIENCE_S + sum(volume.size_mb for volume in volumes) / _READ_MB_PER_S
        scripts = scenario.warm_scripts(volumes, run_dir, commands)
        remote.run(scripts, "read the volumes into the OSDs' caches", limit)
    return {"state": state, "faults": faults}


def _drop(remote: Remote, site: Site) -> list[str]:
    """`cache drop` at every OSD, in one call for all hosts: it says nothing when all went well."""
    scripts = {
        host: admin_socket.script([_emptying(osd) for osd in site.osds_of(host)])
        for host in site.osd_hosts
    }
    answers = admin_socket.parse(remote.run(scripts, "empty the OSDs' caches", 120))
    faults = {
        osd.id: answers.fault(name_of(osd), osd.host) or answers.values[name_of(osd)].strip()
        for osd in site.osds
    }
    return [f"osd.{osd} did not empty its cache: {why}" for osd, why in faults.items() if why]


def _emptying(osd: Osd) -> Question:
    return Question(name_of(osd), osd.admin_socket, {"prefix": "cache drop"}, is_text=True)

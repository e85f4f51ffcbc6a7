"""Runs the declared neighbours' load beside a cell, and measures the CPU time that it got."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Optional

from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.errors import RunError
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.site import Site
from cbt_crypto.plan.file.cluster import Neighbours

#: Host -> what its neighbours did: `cores` of CPU time they got, of those `asked`, in `seconds`.
Seen = dict[str, dict[str, float]]

# argv[1] names the pid file. Session members are counted: stress-ng's workers are in its session.
_CPU_TIME = """
import glob, json, os, sys, time
pid = open(json.loads(sys.argv[1])).read().strip()
ticks, found = 0, 0
for path in glob.glob("/proc/[0-9]*/stat"):
    try:
        words = open(path).read().rpartition(")")[2].split()
    except OSError:
        continue
    if words[3] == pid and words[0] != "Z":
        ticks, found = ticks + int(words[11]) + int(words[12]), found + 1
print(json.dumps({"cpu_s": ticks / os.sysconf("SC_CLK_TCK"), "processes": found,
                  "time": time.time()}))
"""

_ENDED = """
[ -z "$pid" ] || { echo "the neighbours' load does not end" >&2; exit 1; }
"""


def declared(config: Mapping[str, Any]) -> Optional[Neighbours]:
    """The neighbours of a `cluster` section; None where there are none."""
    section = config.get("neighbours")
    return None if section is None else Neighbours.model_validate(section)


def hosts_of(neighbours: Neighbours, site: Site) -> tuple[str, ...]:
    """The hosts that have them, each once."""
    named = neighbours.hosts or [host for role in neighbours.roles for host in site.role(role)]
    return tuple(dict.fromkeys(named))


@contextlib.contextmanager
def running(
    neighbours: Optional[Neighbours], remote: Remote, stack: Stack, site: Site
) -> Iterator[Seen]:
    """The load runs while the block does; what it got is in the value afterwards.

    Raises RunError when it ended by itself or got too little.
    """
    seen: Seen = {}
    if neighbours is None:
        yield seen
        return
    hosts = hosts_of(neighbours, site)
    file = f"{site.tmp_dir}/neighbours.pid"
    stop = dict.fromkeys(hosts, shell.stop_in_background(file, ("TERM", "KILL")) + _ENDED)
    look = dict.fromkeys(hosts, shell.python(_CPU_TIME, file))
    try:
        start = {host: start_script(neighbours, stack, site, host, file) for host in hosts}
        remote.run(start, "start the neighbours' load", 60)
        before = remote.run(look, "look at the neighbours' load", 60)
        yield seen
        after = remote.run(look, "look at the neighbours' load", 60)
    finally:
        remote.run(stop, "end the neighbours' load", 60)
    for host in hosts:
        seen[host] = got(neighbours, json.loads(before[host]), json.loads(after[host]))
        check_load(neighbours, host, seen[host])


def start_script(neighbours: Neighbours, stack: Stack, site: Site, host: str, file: str) -> str:
    """Shell text that starts the load on a host, in a session of its own.

    On a client host it is confined like client processes: it stands for what runs beside them.
    """
    words = [neighbours.stress_cmd, "--cpu", str(neighbours.cpu), "--cpu-load"]
    words += [str(neighbours.cpu_load), *shlex.split(neighbours.args), "--timeout", "0", "--quiet"]
    command = " ".join(shlex.quote(word) for word in words)
    if host in site.clients:
        command = stack.wrap_client(host, command)
    output = shlex.quote(f"{file}.out")
    start = shell.start_in_background(f"sh -c {shlex.quote(command)}", file, f"{file}.out")
    return (
        f"cd /tmp; export SUDO\n{start}; sleep 1\n"
        f"kill -0 $! 2>/dev/null || {{ tail -n 3 {output} >&2; exit 1; }}"
    )


def got(
    neighbours: Neighbours, before: Mapping[str, float], after: Mapping[str, float]
) -> dict[str, float]:
    """What a host's neighbours got between two looks."""
    seconds = after["time"] - before["time"]
    return {
        "asked": neighbours.cpu * neighbours.cpu_load / 100,
        "cores": round((after["cpu_s"] - before["cpu_s"]) / seconds, 3),
        "processes": after["processes"],
        "seconds": round(seconds, 3),
    }


def check_load(neighbours: Neighbours, host: str, measured: Mapping[str, float]) -> None:
    """Raise RunError when a host's neighbours ended, or got less than `least_percent`."""
    if not measured["processes"]:
        raise RunError(f"{host}: the neighbours' load ended before the cell did")
    if measured["cores"] < measured["asked"] * neighbours.least_percent / 100:
        raise RunError(
            f"{host}: the neighbours' load got {measured['cores']:g} of the "
            f"{measured['asked']:g} cores that it asked for"
        )

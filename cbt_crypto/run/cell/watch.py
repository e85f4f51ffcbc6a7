"""What is looked at on the hosts while a cell is measured, from before its first probe on.

One process a host looks every few seconds at all that overlays and proofs want watched, and writes
down what changes. That something was in force before and after a cell says nothing of between.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from cbt_crypto.cluster_overlays.base import Seen, Watch
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.site import HostScripts
from cbt_crypto.run.cell import watch_on_host

#: Name -> host -> what is watched there.
Watches = Mapping[str, Mapping[str, Watch]]

#: Seconds from one look to the next.
EVERY_S = 5
#: Seconds until the first look must have been taken.
_PATIENCE_S = 60
#: How the section of a script's output begins that has the watcher's lines.
MARKER = "@cbt-crypto-watched"


@dataclass
class Record:
    """What one host's watcher wrote.

    `seen` and `counted` are by name: values in the order of their appearance, and counters at the
    beginning and at the end. `looks` is 0 where it ended before it was told to.
    """

    seen: dict[str, list[Seen]] = field(default_factory=dict)
    counted: dict[str, list[Any]] = field(default_factory=dict)
    looks: int = 0
    longest_gap_s: float = 0.0


def start(watches: Watches, directory: str) -> HostScripts:
    """Shell text that starts a watcher on each host that has something to watch.

    It ends one that an earlier cell left. `ready` waits for its first look.
    """
    by_host: dict[str, dict[str, Any]] = {}
    for name, hosts in watches.items():
        for host, watch in hosts.items():
            one = {"source": watch.source, "argument": watch.argument}
            by_host.setdefault(host, {})[name] = one
    return {host: _start(own, directory) for host, own in by_host.items()}


def _start(watches: Mapping[str, Any], directory: str) -> str:
    asked = {"watches": watches, "file": _file(directory), "every_s": EVERY_S}
    # By standard input, as command lines are shown to everybody, and sampled by collectl.
    program = f"{shell.definitions(watch_on_host)}main(json.loads({json.dumps(asked)!r}))"
    return (
        f"{shell.stop_in_background(_pid_file(directory))}\n"
        f"rm -f {shlex.quote(_file(directory))}\n"
        f"setsid $SUDO python3 -I - >{shlex.quote(_file(directory))}.said 2>&1 "
        f"<<'PYTHON_PROGRAM' &\n{program}\nPYTHON_PROGRAM\n"
        f"echo $! > {shlex.quote(_pid_file(directory))}"
    )


def ready(directory: str) -> str:
    """Shell text that waits until everything was looked at once."""
    where = shlex.quote(_file(directory))
    return (
        f"n=0; until grep -q since {where} 2>/dev/null; do\n"
        f"    [ $n -lt {20 * _PATIENCE_S} ] || {{ tail -n 3 {where}.said >&2; exit 1; }}\n"
        "    n=$((n + 1)); sleep 0.05\ndone"
    )


def stop(directory: str) -> str:
    """Shell text that ends the watcher after a last look, and prints what it wrote."""
    where = shlex.quote(_file(directory))
    return (
        f"{shell.stop_in_background(_pid_file(directory))}\n"
        f"cat {where} 2>/dev/null || :\nrm -f {where} {where}.said"
    )


def parse(text: str) -> Record:
    """What a watcher wrote; lines that are torn or somebody else's are left out."""
    found = Record()
    for line in text.splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            said = json.loads(line)
            if "looks" in said:
                found.looks = int(said["looks"])
                found.longest_gap_s = float(said["longest_gap_s"])
            elif "counted" in said:
                found.counted.setdefault(said["name"], []).append(said["counted"])
            else:
                seen = Seen(said["value"], float(said["since"]))
                found.seen.setdefault(said["name"], []).append(seen)
    return found


def seen_of(name: str, records: Mapping[str, Record]) -> dict[str, Sequence[Seen]]:
    """Host -> what was seen there of that name."""
    return {host: record.seen[name] for host, record in records.items() if name in record.seen}


def fault(name: str, hosts: Sequence[str], records: Mapping[str, Record]) -> Optional[str]:
    """Why what these hosts saw of that name does not cover the cell; None when it does."""
    for host in hosts:
        record = records.get(host)
        if record is None or record.looks < 2 or not record.seen.get(name):
            return f"what watched {host} during the cell ended before the cell did"
        for seen in record.seen[name]:
            if isinstance(seen.value, Mapping) and "error" in seen.value:
                return f"{host} could not be watched during the cell: {seen.value['error']}"
    return None


def _file(directory: str) -> str:
    return f"{directory}/watched.jsonl"


def _pid_file(directory: str) -> str:
    return f"{directory}/watched.pid"

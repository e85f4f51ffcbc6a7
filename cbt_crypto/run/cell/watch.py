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

#: Seconds from one look to the next. A look takes 4 us for each thread of an OSD: of a host with
#: 2,000 of them, 0.4 % of one CPU.
EVERY_S = 2
#: Seconds until the first look must have been taken.
_PATIENCE_S = 60
#: How the section of a script's output begins that has the watcher's lines.
MARKER = "@cbt-crypto-watched"


@dataclass
class WatchRecord:
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
    base = _base(directory)
    asked = {"watches": watches, "base": base, "every_s": EVERY_S}
    program = shell.call_of_main(watch_on_host, asked)
    where = shlex.quote(base)
    return (
        f"{shell.stop_in_background(f'{base}.pid')}\n"
        f"rm -f {where}.*\nmkfifo -m 600 {where}.ask {where}.told\n"
        f"{shell.start_python(program, f'{base}.pid', f'{base}.said', as_root=True)}"
    )


#: Nothing here waits for a watcher that has ended. Its pipes are opened both ways, as that waits
#: for nobody; the answer is then read from an end that is closed when the watcher ends, and that is
#: open before it is asked, so that no answer is lost.
_ASKING = """
is_watching() {
    [ -r "$watched.pid" ] && read -r watcher < "$watched.pid" || return 1
    [ -r "/proc/$watcher/stat" ] && read -r stat < "/proc/$watcher/stat" || return 1
    case ${stat##*) } in [ZX]*) return 1 ;; esac
}
ask_watcher() {
    { exec 8< "$watched.told"; } 9<> "$watched.told"
    echo "$1" 1<> "$watched.ask"
    read -r told <&8 || told=
    exec 8<&-
}
python_of_watcher() {
    is_watching || { $SUDO python3 -I -S "$@"; return; }
    cat > "$watched.program"; : > "$watched.out"; : > "$watched.err"
    printf %s "$2" > "$watched.argument"
    ask_watcher run
    [ -n "$told" ] || { $SUDO python3 -I -S "$@" < "$watched.program"; return; }
    cat "$watched.out"
    [ ! -s "$watched.err" ] || cat "$watched.err" >&2
    return "$told"
}"""


def asked(directory: str) -> str:
    """Shell text: the watcher runs programs of `shell.python` that follow, if it is still there."""
    return f"watched={shlex.quote(_base(directory))}{_ASKING}\n{shell.PYTHON}=python_of_watcher\n"


def ready(directory: str) -> str:
    """Shell text that waits until everything was looked at once.

    Programs of `shell.python` that follow are run by the watcher from then on.
    """
    return f"""{asked(directory)}
n=0; until [ -s "$watched.jsonl" ]; do
    is_watching && [ $n -lt {10 * _PATIENCE_S} ] || {{ tail -n 3 "$watched.said" >&2; exit 1; }}
    n=$((n + 1)); sleep 0.1
done"""


def stop(directory: str) -> str:
    """Shell text that ends the watcher after a last look, and prints what it wrote."""
    return f"""{asked(directory)}
! is_watching || ask_watcher end
# It ends by itself now; what is looked up of a process to be killed would cost more than a wait.
n=0; while is_watching && [ $n -lt 20 ]; do sleep 0.05; n=$((n + 1)); done
is_watching || rm -f "$watched.pid"
{shell.stop_in_background(f"{_base(directory)}.pid")}
cat "$watched.jsonl" 2>/dev/null || :
rm -f "$watched".*"""


def parse(text: str) -> WatchRecord:
    """What a watcher wrote; lines that are torn or somebody else's are left out."""
    found = WatchRecord()
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


def seen_of(name: str, records: Mapping[str, WatchRecord]) -> dict[str, Sequence[Seen]]:
    """Host -> what was seen there of that name."""
    return {host: record.seen[name] for host, record in records.items() if name in record.seen}


def fault(name: str, hosts: Sequence[str], records: Mapping[str, WatchRecord]) -> Optional[str]:
    """Why what these hosts saw of that name does not cover the cell; None when it does."""
    for host in hosts:
        record = records.get(host)
        if record is None or record.looks < 2 or not record.seen.get(name):
            return f"what watched {host} during the cell ended before the cell did"
        for seen in record.seen[name]:
            if isinstance(seen.value, Mapping) and "error" in seen.value:
                return f"{host} could not be watched during the cell: {seen.value['error']}"
    return None


def _base(directory: str) -> str:
    return f"{directory}/watched"

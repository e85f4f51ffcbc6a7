"""What is looked at on the hosts while a cell is measured, from before its first probe on.

One process a host looks every few seconds for all overlays and proofs, and writes changes.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Optional

from cbt_crypto.cluster_overlays.base import Seen, Watch
from cbt_crypto.engine.contract import CellOutcome, LiveFigures
from cbt_crypto.errors import HostError
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.remote import NONSENSE, Remote
from cbt_crypto.hosts.site import HostScripts, Site
from cbt_crypto.results.readers.fio import iops_now
from cbt_crypto.run.cell import watch_on_host
from cbt_crypto.units import counted

#: Name -> host -> what is watched there.
Watches = Mapping[str, Mapping[str, Watch]]

#: Seconds from one look to the next. A look takes 4 us for each thread of an OSD: of a host with
#: 2,000 of them, 0.4 % of one CPU.
EVERY_S = 2
#: Seconds until the first look must have been taken.
_PATIENCE_S = 60
#: Seconds from one look to the next in which something may be changed, and changed back.
_LONGEST_GAP_S = 60
#: How the section of a script's output begins that has the watcher's lines.
MARKER = "@cbt-crypto-watched"


@dataclass
class WatchRecord:
    """What one host's watcher wrote; `looks` is 0 where it ended before it was told to.

    By name: `seen`, values in order; `counted`, counters at the beginning and the end.
    """

    seen: dict[str, list[Seen]] = field(default_factory=dict)
    counted: dict[str, list[Any]] = field(default_factory=dict)
    looks: int = 0
    longest_gap_s: float = 0.0


def start(watches: Watches, directory: str) -> HostScripts:
    """Shell text that starts a watcher on each host with something to watch; an old one ends."""
    by_host: dict[str, dict[str, Any]] = {}
    for name, hosts in watches.items():
        for host, watch in hosts.items():
            one = {"source": watch.source, "argument": watch.argument}
            by_host.setdefault(host, {})[name] = one
    return {host: _start(own, directory) for host, own in by_host.items()}


def _start(watches: Mapping[str, Any], directory: str) -> str:
    base = _base(directory)
    order = {"watches": watches, "base": base, "every_s": EVERY_S}
    program = shell.call_of_main(watch_on_host, order)
    where = shlex.quote(base)
    return (
        f"{shell.stop_in_background(f'{base}.pid')}\n"
        f"rm -f {where}.*\nmkfifo -m 600 {where}.ask {where}.told\n"
        f"{shell.start_python(program, f'{base}.pid', f'{base}.said', as_root=True)}"
    )


def asked(directory: str, text: str = "") -> str:
    """Shell text: the watcher runs programs of `shell.python` that follow, if it is still there."""
    text = shell.calling(__file__, f"{shell.PYTHON}=python_of_watcher\n{text}")
    return f"watched={shlex.quote(_base(directory))}\n{text}"


def ready(directory: str) -> str:
    """Shell text that waits for a look at everything; later programs run in the watcher."""
    return asked(directory, f"wait_for_look {20 * _PATIENCE_S}")


def stop(directory: str) -> str:
    """Shell text that ends the watcher after a last look, and prints what it wrote."""
    end = shell.stop_in_background(f"{_base(directory)}.pid")
    show = 'cat "$watched.jsonl" 2>/dev/null || :\nrm -f "$watched".*'
    return asked(directory, f"ask_to_end\n{end}\n{show}")


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
        if record.longest_gap_s > _LONGEST_GAP_S:
            return f"what watched {host} stood still for {record.longest_gap_s:.0f} s of the cell"
        for seen in record.seen[name]:
            if isinstance(seen.value, Mapping) and "error" in seen.value:
                return f"{host} could not be watched during the cell: {seen.value['error']}"
    return None


def _base(directory: str) -> str:
    return f"{directory}/watched"


#: Seconds until the first look, and from one to the next: each is a command on every client.
FIRST_S, LIVE_EVERY_S = 2.0, 10.0
_TIMEOUT_S = 5
#: Characters of a file's end that hold fio's last line.
_END = 400
_FILE = "@live"


def script(run_dir: str) -> str:
    """Shell text that prints the last lines of a host's processes."""
    return shell.call(__file__, "last_lines", run_dir, _FILE, str(_END))


def parse_live(printed: Mapping[str, str], processes: int, in_flight: Optional[int]) -> LiveFigures:
    """What all processes say, by host. Raises ValueError while some say nothing."""
    said = [iops_now(text) for host in printed.values() for text in host.split(_FILE)[1:]]
    rates = [rate for rate in said if rate is not None]
    iops = sum(rates)
    if len(rates) != processes or iops <= 0:
        raise ValueError("not all processes say how much they do")
    return LiveFigures(iops, None if in_flight is None else in_flight / iops)


@dataclass(frozen=True)
class Onlooker:
    """Who is told, and what there is to look at."""

    tell: Callable[[LiveFigures], None]
    hosts: Sequence[str]
    processes: int
    in_flight: Optional[int]


def followed(
    remote: Remote, run_dir: str, onlooker: Optional[Onlooker]
) -> contextlib.AbstractContextManager[None]:
    """Look every few seconds while the block runs; nothing that goes wrong with it matters."""
    if onlooker is None:
        return contextlib.nullcontext()
    return aside(partial(_follow, remote, run_dir, onlooker), _TIMEOUT_S)


@contextlib.contextmanager
def aside(follow: Callable[[threading.Event], None], patience_s: float) -> Iterator[None]:
    """Run `follow` beside the block, whose end is its event."""
    ended = threading.Event()
    thread = threading.Thread(target=follow, args=(ended,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(patience_s)


def _follow(remote: Remote, run_dir: str, onlooker: Onlooker, ended: threading.Event) -> None:
    scripts = dict.fromkeys(onlooker.hosts, script(run_dir))
    wait = FIRST_S
    while not ended.wait(wait):
        wait = LIVE_EVERY_S
        with contextlib.suppress(HostError, OSError, *NONSENSE):
            printed = remote.run(scripts, "read what fio does now", _TIMEOUT_S)
            figures = parse_live(printed, onlooker.processes, onlooker.in_flight)
            if not ended.is_set():
                onlooker.tell(figures)


#: Of the verdict in proof.json.
NAME = "group"
#: Bytes of clients that an idle OSD may move: what has to do with images, and no load.
BACKGROUND_BYTES = 1 << 20


def moved(site: Site, by_osd: Mapping[str, Mapping[str, Any]], seconds: float) -> CellOutcome:
    """What passed the OSDs in `seconds`, for cell.json: those measured, and those that idled."""
    idle = {f"osd.{osd.id}" for osd in site.idle}
    measured = {name: about for name, about in by_osd.items() if name not in idle}
    if not site.group:
        return {"storage": measured}
    took = {"seconds": round(seconds, 3)}
    idled = {name: {**about, **took} for name, about in by_osd.items() if name in idle}
    return {"storage": measured, "group": site.group, "slices": site.slices, "idle": idled}


def judged(
    proof: Mapping[str, Any],
    site: Site,
    placed: Mapping[str, Collection[int]],
    outcome: CellOutcome,
) -> dict[str, Any]:
    """proof.json with the verdict on the group, if any; `placed`: pool -> its groups' OSDs."""
    if not site.group:
        return dict(proof)
    own_pools = {
        name: sorted(osds) for name, osds in placed.items() if name.endswith(f".{site.group}")
    }
    idle = outcome.get("idle", {})
    client_bytes = {name: _client_bytes(about) for name, about in idle.items()}
    fault = _misplaced(site, own_pools) or _busy(site, client_bytes)
    own_osds = ", ".join(f"osd.{osd.id}" for osd in site.osds)
    total = sum(size or 0 for size in client_bytes.values())
    idle_osds = counted(len(site.idle), "idle OSD")
    claim = f"its pools are on {own_osds} alone, and {idle_osds} moved {total} bytes of clients"
    verdict = {
        "overlay": NAME,
        "present": True,
        "options": {"name": site.group},
        "proved": fault is None,
        "reason": f"{site.group}: {fault or claim}",
        "evidence": {"pools": own_pools, "client_bytes_of_idle_osds": client_bytes},
    }
    return {
        **proof,
        "proved": bool(proof["proved"]) and fault is None,
        "overlays": [*proof["overlays"], verdict],
    }


def _misplaced(site: Site, pools: Mapping[str, Collection[int]]) -> Optional[str]:
    """What contradicts that its pools are on its own OSDs."""
    if not pools:
        return "no answer says where its pools are"
    own_osds = {osd.id for osd in site.osds}
    for name, osds in pools.items():
        strange = sorted(set(osds) - own_osds)
        if strange or not osds:
            where = ", ".join(f"osd.{osd}" for osd in strange) or "no OSD"
            return f"the pool {name} is on {where}, which is not the group's"
    return None


def _busy(site: Site, client_bytes: Mapping[str, Optional[int]]) -> Optional[str]:
    """What contradicts that the others idled."""
    for osd in site.idle:
        name = f"osd.{osd.id}"
        size = client_bytes.get(name)
        if size is None:
            return f"{name}, which was to idle, did not say what it moved"
        if size > BACKGROUND_BYTES:
            return f"clients moved {size} bytes through {name}, which was to idle"
    return None


def _client_bytes(about: Mapping[str, Any]) -> Optional[int]:
    counters = about.get("counters", {})
    sizes = [counters.get(key) for key in ("client_read_bytes", "client_written_bytes")]
    return None if None in sizes else sum(sizes)

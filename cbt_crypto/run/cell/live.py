"""What a cell's clients do at this moment, for people who look on. No result rests on it.

Each fio writes how much it did in the last second to a file of its own (`fio_job.run`); the ends of
these are read while the cell runs.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from cbt_crypto.engine.contract import LiveFigures
from cbt_crypto.errors import HostError
from cbt_crypto.hosts.remote import Remote

#: Seconds until the first look, and from one to the next: each is a command on every client.
FIRST_S, EVERY_S = 2.0, 10.0
_TIMEOUT_S = 5
#: Characters of a file's end that hold fio's last line.
_END = 400
_FILE = "@live"
#: `[r=12.3k,w=4567 IOPS]`, as fio writes it: in thousands, each direction that it has.
_IOPS = re.compile(r"\[((?:[rwt]=[\d.]+[kMG]?,?)+) IOPS\]")
_RATE = re.compile(r"=([\d.]+)([kMG]?)")
_FACTORS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}


def script(run_dir: str) -> str:
    """Shell text that prints the last lines of a host's processes."""
    return (
        f"cd {shlex.quote(run_dir)} 2>/dev/null || exit 0\n"
        f'for file in live.*; do [ -f "$file" ] || continue; echo "{_FILE}"; '
        f'tail -c {_END} "$file" | tr "\\r" "\\n"; echo; done'
    )


def parse(printed: Mapping[str, str], processes: int, in_flight: Optional[int]) -> LiveFigures:
    """What all processes say, by host. Raises ValueError while some say nothing."""
    said = [_iops(text) for host in printed.values() for text in host.split(_FILE)[1:]]
    rates = [rate for rate in said if rate is not None]
    iops = sum(rates)
    if len(rates) != processes or iops <= 0:
        raise ValueError("not all processes say how much they do")
    return LiveFigures(iops, None if in_flight is None else in_flight / iops)


def _iops(text: str) -> Optional[float]:
    """The last IOPS that a process printed, of all directions."""
    matches = _IOPS.findall(text)
    if not matches:
        return None
    return sum(float(number) * _FACTORS[unit] for number, unit in _RATE.findall(matches[-1]))


@dataclass(frozen=True)
class Onlooker:
    """Who is told, and what there is to look at."""

    tell: Callable[[LiveFigures], None]
    hosts: Sequence[str]
    processes: int
    in_flight: Optional[int]


@contextlib.contextmanager
def followed(remote: Remote, run_dir: str, onlooker: Optional[Onlooker]) -> Iterator[None]:
    """Look every few seconds while the block runs; nothing that goes wrong with it matters."""
    if onlooker is None:
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(
        target=_follow, args=(remote, run_dir, onlooker, ended), name="live", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_TIMEOUT_S)


def _follow(remote: Remote, run_dir: str, onlooker: Onlooker, ended: threading.Event) -> None:
    scripts = dict.fromkeys(onlooker.hosts, script(run_dir))
    wait = FIRST_S
    while not ended.wait(wait):
        wait = EVERY_S
        with contextlib.suppress(HostError, OSError, ValueError):
            printed = remote.run(scripts, "read what fio does now", _TIMEOUT_S)
            figures = parse(printed, onlooker.processes, onlooker.in_flight)
            if not ended.is_set():
                onlooker.tell(figures)

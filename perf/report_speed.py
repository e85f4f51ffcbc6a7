"""How fast archives are read and reported, beside the tools that people use for parts of it.

    python perf/report_speed.py [--times 10] [--fio-plot PYTHON]

A generated archive of a published campaign's size (7 configurations, 3 scenarios, up to 50 fio
processes, 300 s, 10 nodes of 128 threads), the same again when one of its cells is new and when
none is, then one of `--times` its size; our reading of a log of two million lines beside fio-plot's
reader, and of a collectl file beside `collectl -p`. fio-plot is taken from the interpreter PYTHON,
or installed with pip into a scratch environment.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from rich.console import Console
from rich.table import Table
from synthetic_archive import (
    Load,
    SyntheticCampaign,
    SyntheticCell,
    SyntheticScenario,
    write_archive,
)
from synthetic_files import collectl_raw

from cbt_crypto.results.readers.collectl import read_collectl
from cbt_crypto.results.readers.fio_log import read_fio_log

#: What a report of the published size may take, and how many times a peer's time we may not need.
LIMIT_S, LIMIT_MIB = 10.0, 512.0
#: What a report may take of the first one's time when one cell is new, and when none is.
LIMIT_ONE_NEW, LIMIT_NONE_NEW = 0.6, 0.5
LOG_RATIO, COLLECTL_RATIO = 8.0, 20.0
LOG_LINES = 2_000_000
COLLECTL_SECONDS, COLLECTL_THREADS = 600, 64
RUNS = 5

_FIO_PLOT = """\
import sys, time
from fio_plot.fiolib.dataimport import readLogData
start = time.perf_counter()
assert len(readLogData({}, {"filename": sys.argv[1]})) == int(sys.argv[2])
print(time.perf_counter() - start)
"""


@dataclass(frozen=True)
class Usage:
    """Of a process and its children."""

    seconds: float
    mib: float


def main() -> int:
    """Print what was measured; exit 1 when a limit was missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--times", type=int, default=10, help="size of the second archive; 0: none")
    parser.add_argument("--fio-plot", metavar="PYTHON", help="interpreter that has fio-plot")
    arguments = parser.parse_args()
    console = Console()
    busy = os.getloadavg()[0]
    table = Table("what", "ours", "peer or limit", "ratio", "wanted", "", box=None)
    with tempfile.TemporaryDirectory(prefix="report-speed-") as name:
        scratch = Path(name)
        met = [
            _log(scratch, arguments.fio_plot, table),
            _collectl(scratch, table),
            *_archives(scratch, arguments.times, table),
        ]
    console.print(table)
    if busy > len(os.sched_getaffinity(0)) / 2:
        console.print(f"{busy:.1f} other processes wanted to run: seconds are more than need be")
    return 0 if all(met) else 1


def _row(table: Table, cells: tuple[str, ...], met: bool) -> bool:
    table.add_row(*cells, "met" if met else "MISSED")
    return met


def _best(*timed: Callable[[], float]) -> list[float]:
    """The shortest time of each, taken in turns so that a busy moment hits all alike."""
    rounds = [[one() for one in timed] for _ in range(RUNS)]
    return [min(times) for times in zip(*rounds)]


def _timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def _log(scratch: Path, python: str | None, table: Table) -> bool:
    """A log without averaging against fio-plot's reader, both without the start of Python."""
    log = scratch / "output_iops.1.log"
    lines = (
        f"{1_700_000_000_000 + n // 7}, {(n * 7919) % 3_000_000}, {n & 1}, 4096, 0\n"
        for n in range(LOG_LINES)
    )
    log.write_text("".join(lines))
    interpreter = python or _with_fio_plot(scratch)
    command = [interpreter, "-c", _FIO_PLOT, str(log), str(LOG_LINES)]

    def peer() -> float:
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    ours, theirs = _best(lambda: _timed(lambda: read_fio_log(log)), peer)
    cells = (f"{LOG_LINES:,} lines of a log", f"{ours:.2f} s", f"fio-plot {theirs:.2f} s")
    ratio = theirs / ours
    return _row(table, (*cells, f"{ratio:.1f}", f"at least {LOG_RATIO:g}"), ratio >= LOG_RATIO)


def _with_fio_plot(scratch: Path) -> str:
    venv.create(scratch / "venv", with_pip=True)
    python = str(scratch / "venv/bin/python")
    subprocess.run([python, "-m", "pip", "install", "-q", "fio-plot"], check=True)
    return python


def _collectl(scratch: Path, table: Table) -> bool:
    """One node's file against the playback of its processors."""
    raw = scratch / "node-20231114-000000.raw"
    states = {"user": 30.0, "sys": 12.0, "softirq": 2.0}
    raw.write_bytes(collectl_raw(states, 1_700_000_000, COLLECTL_SECONDS, COLLECTL_THREADS, 200))
    subprocess.run(["gzip", str(raw)], check=True)
    packed = raw.with_suffix(".raw.gz")
    what = f"collectl, {COLLECTL_SECONDS} s of {COLLECTL_THREADS} threads"
    if shutil.which("collectl") is None:
        table.add_row(what, "", "collectl is not installed", "", "", "not compared")
        return False
    command = ["collectl", "-p", str(packed), "-sc", "-P"]

    def peer() -> float:
        return _timed(lambda: subprocess.run(command, check=True, capture_output=True))

    ours, theirs = _best(lambda: _timed(lambda: read_collectl(packed)), peer)
    ratio = theirs / ours
    cells = (what, f"{ours * 1000:.0f} ms", f"collectl -p {theirs:.2f} s", f"{ratio:.1f}")
    return _row(table, (*cells, f"at least {COLLECTL_RATIO:g}"), ratio >= COLLECTL_RATIO)


def _archives(scratch: Path, times: int, table: Table) -> list[bool]:
    """A report of the published size, made anew and again, and one of a multiple of it."""
    one, changed, again = reports(scratch, 1)
    limit = (f"{LIMIT_S:g} s, {LIMIT_MIB:g} MiB", "", "below")
    met = [
        _row(
            table,
            ("report of the published size", _shown(one), *limit),
            one.seconds < LIMIT_S and one.mib < LIMIT_MIB,
        ),
        _of_first(table, "the same, one cell being new", changed, one, LIMIT_ONE_NEW),
        _of_first(table, "the same, none being new", again, one, LIMIT_NONE_NEW),
    ]
    if times:
        many, *_ = reports(scratch, times)
        ratios = many.seconds / one.seconds, many.mib / one.mib
        cells = (
            f"report of {times} times that",
            _shown(many),
            "",
            f"{ratios[0]:.1f} and {ratios[1]:.1f}",
            f"at most {times} and 2",
        )
        met.append(_row(table, cells, ratios[0] <= times and ratios[1] <= 2))
    return met


def _shown(usage: Usage) -> str:
    return f"{usage.seconds:.1f} s, {usage.mib:.0f} MiB"


def _of_first(table: Table, what: str, usage: Usage, first: Usage, limit: float) -> bool:
    ratio = usage.seconds / first.seconds
    cells = (what, _shown(usage), "the first report", f"{ratio:.2f}", f"at most {limit:g}")
    return _row(table, cells, ratio <= limit)


def reports(
    scratch: Path, iterations: int, environment: Mapping[str, str] = MappingProxyType({})
) -> tuple[Usage, Usage, Usage]:
    """Of an archive: its first report, the next when one cell has changed, and one more."""
    root = write_archive(_published(iterations), scratch / f"archive-{iterations}")
    cache = {**environment, "XDG_CACHE_HOME": str(scratch / "cache")}
    command = [sys.executable, "-m", "cbt_crypto", "report", str(root)]
    first = _usage(command, cache)
    next(root.glob("results/*/id-*/proof.json")).touch()
    # a change as young as that is not kept
    time.sleep(3)
    changed, again = _usage(command, cache), _usage(command, cache)
    shutil.rmtree(root)
    return first, changed, again


def _published(iterations: int) -> SyntheticCampaign:
    """The article's shape: every process writes all logs, and every node is sampled."""
    names = [f"Configuration {number}" for number in range(7)]

    def load(cell: SyntheticCell) -> Load:
        share = 1 - 0.04 * names.index(cell.configuration)
        iops = (15_000.0 if cell.op_size == 4096 else 60.0) * share
        return Load(iops, 1000 * cell.scenario.iodepth / iops)

    return SyntheticCampaign(
        scenarios=[
            SyntheticScenario("rbd_multi_client", 5, 10),
            SyntheticScenario("rbd_single_client", 1, 1),
            SyntheticScenario("rbd_single_client_sync", 1, 1, (4096,), iodepth=1),
        ],
        configurations=names,
        load=load,
        seconds=300,
        ramp=30,
        iterations=iterations,
        osd_hosts=5,
        threads=128,
        processes_per_host=200,
        at_once=True,
    )


def _usage(command: list[str], environment: dict[str, str]) -> Usage:
    """Run a command; its wall time and the largest memory of it and its children together.

    Reading how much memory a process has takes the processor that is measured, so not too often.
    """
    start = time.perf_counter()
    peak = 0.0
    environment = {**os.environ, **environment}
    # Not from the current directory, whose modules would be taken in place of those of PYTHONPATH.
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment, cwd="/") as process:
        while process.poll() is None:
            peak = max(peak, sum(_mib(pid) for pid in _family(process.pid)))
            time.sleep(0.5)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: exit status {process.returncode}")
    return Usage(time.perf_counter() - start, peak)


def _family(pid: int) -> list[int]:
    """A process and all below it."""
    try:
        tasks = Path(f"/proc/{pid}/task")
        children = [c for t in tasks.iterdir() for c in (t / "children").read_text().split()]
    except OSError:
        return []
    return [pid, *(below for child in children for below in _family(int(child)))]


def _mib(pid: int) -> float:
    """Its share of the memory that it has, so that what is shared counts once."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) / 1024


if __name__ == "__main__":
    sys.exit(main())

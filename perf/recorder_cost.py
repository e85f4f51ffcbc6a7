"""What the recorder of each cell costs: its share of one core, and the IOPS with it and without.

    python perf/recorder_cost.py [--threads 600] [--seconds 240] [--write]

First the recorder alone, beside processes called `ceph-osd` that have so many threads together.
Then real Ceph on this machine, two OSDs on files: cells with and without it take turns on one
cluster, for at most so many seconds each. `--write` puts both into docs/method-seen.md. Exits with
1 if the recorder took more than 1 % of a core with 600 threads or on real Ceph, or lost IOPS.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any
from unittest import mock

import yaml
from one_machine import POOL, cluster_section
from rich.console import Console

from cbt_crypto.cli import cbt_crypto
from cbt_crypto.hosts import samplers
from cbt_crypto.report.build import build
from cbt_crypto.report.model import Comparison
from cbt_crypto.run.cell.measure import attempt as measured

PAGE = Path(__file__).resolve().parent.parent / "docs" / "method-seen.md"
BEGIN, END = "<!-- recorder -->\n", "<!-- end -->\n"
WITH, WITHOUT = "recorded", "not recorded"
GOAL_PERCENT, GOAL_THREADS = 1.0, 600
PORT = 13374
#: Of OSDs: about as many as of two OSDs of today's releases.
_THREADS_A_PROCESS = 75
_SLEEPER = """
import sys, threading, time
for _ in range(int(sys.argv[1]) - 1):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print(flush=True)
for n in iter(int, 1):
    time.sleep(0.01)
"""


@dataclass(frozen=True)
class Alone:
    """The recorder beside `threads` of OSDs."""

    threads: int
    percent: float
    every: int


def cpu_s(pid: int) -> float:
    """Seconds that a process of one thread ran: ticks would miss what is done between them."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


@contextlib.contextmanager
def osds(folder: Path, threads: int) -> Iterator[None]:
    """Processes with the name of OSDs, whose threads sleep, but for one that hardly does."""
    program = folder / "ceph-osd"
    program.symlink_to(Path(sys.executable).resolve())
    whole, rest = divmod(threads, _THREADS_A_PROCESS)
    running = []
    try:
        for number in [_THREADS_A_PROCESS] * whole + [rest] * bool(rest):
            command = [str(program), "-c", _SLEEPER, str(number)]
            running.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        for process in running:
            assert process.stdout is not None
            process.stdout.readline()
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def alone(threads: int, seconds: float) -> Alone:
    """Run the recorder beside so many threads, and count what it took."""
    with tempfile.TemporaryDirectory(prefix="recorder-") as name:
        folder = Path(name)
        with osds(folder, threads):
            run = folder / "run"
            run.mkdir()
            start = samplers.start_recorder(str(run), name, has_clients=True)
            subprocess.run(["sh", "-c", f"SUDO=\n{start}"], check=True)
            pid = int((run / ".recording.pid").read_text())
            try:
                time.sleep(2)
                began, used = time.monotonic(), cpu_s(pid)
                time.sleep(seconds)
                percent = 100 * (cpu_s(pid) - used) / (time.monotonic() - began)
            finally:
                stop = samplers.stop_recorder(str(run))
                subprocess.run(["sh", "-c", f"SUDO=\n{stop}"], check=True)
            every = re.findall(r'"every":(\d+)', (run / "recording").read_text())
            return Alone(threads, percent, int(every[-1]))


class Watched:
    """The recorders that run below a directory meanwhile: the seconds and CPU time of each."""

    def __init__(self, directory: Path) -> None:
        self.seen: dict[int, list[tuple[float, float]]] = {}
        self._directory = directory
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.5):
            for file in self._directory.glob("**/.recording.pid"):
                with contextlib.suppress(OSError, ValueError, IndexError):
                    pid = int(file.read_text())
                    if not file.with_name(samplers.RECORDING_FILE).stat().st_size:
                        continue
                    looks = self.seen.setdefault(pid, [])
                    looks[1:] = [(time.monotonic(), cpu_s(pid))]

    @property
    def percent(self) -> float:
        """Of one core, over all their cells; clients begin after the first sample."""
        spans = [(last[0] - first[0], last[1] - first[1]) for first, *_, last in self._whole()]
        return 100 * sum(cpu for _, cpu in spans) / sum(seconds for seconds, _ in spans)

    def _whole(self) -> list[list[tuple[float, float]]]:
        return [looks for looks in self.seen.values() if len(looks) > 1]


def on_ceph(seconds: int) -> tuple[Comparison, float]:
    """IOPS with the recorder in percent of those without it, and its share of one core."""
    started = samplers.recorders

    def attempt(cell: Any, *rest: Any, **options: Any) -> Any:
        recorders = started if cell.configuration == WITH else lambda *_: {}
        with mock.patch.object(samplers, "recorders", recorders):
            return measured(cell, *rest, **options)

    with tempfile.TemporaryDirectory(prefix="recorder-") as name:
        folder = Path(name)
        time_ = {"precision": "1%", "min": min(60, seconds), "max": seconds, "block": 6}
        cluster = cluster_section(
            folder, PORT, pool_profiles=POOL, order="interleaved", control=False,
            baseline=WITHOUT, configurations={WITHOUT: {}, WITH: {}},
        )  # fmt: skip
        load = {"vol_size": 256, "iodepth": 16, "time": time_, "op_size": 4096, "mode": "randread"}
        document = {"cluster": cluster, "benchmarks": {"rbd_single_client": load}}
        config, archive = folder / "campaign.yaml", folder / "archive"
        config.write_text(yaml.safe_dump(document, sort_keys=False))
        words = ["run", "--cbt", "embedded", "-a", str(archive), str(config)]
        patched = mock.patch("cbt_crypto.run.campaign.attempt", attempt)
        with Watched(folder) as watched, patched, contextlib.suppress(SystemExit):
            cbt_crypto.main(words, standalone_mode=False)
        recordings = list(archive.glob("results/*/id-*/recording.*"))
        cells = {cell.name: cell for cell in build(archive).cells}
        assert len(recordings) == len(cells[WITH].runs), "the wrong cells were recorded"
        return cells[WITH].comparisons["iops"], watched.percent


def page(rows: Sequence[Alone], iops: Comparison, percent: float) -> str:
    """What docs/method-seen.md says of it."""
    lines = [
        f"Measured {date.today()} on {os.cpu_count()} processors:",
        "",
        "| threads of OSDs | threads are read each | the recorder takes |",
        "|---:|---|---:|",
        *(f"| {row.threads:,} | {row.every} s | {row.percent:.2f} % of a core |" for row in rows),
        "",
        f"On real Ceph (two OSDs on files, 4 KiB random reads) it took {percent:.2f} % of a core. "
        f"IOPS with it were {iops.percent:.1f} % ({iops.low:.1f} to {iops.high:.1f}) of those "
        f"without it ({iops.basis}).",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure, print, and judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--threads", type=int, action="append", help="default: 60, 600 and 1500")
    parser.add_argument("--seconds", type=int, default=240, help="default: 240")
    parser.add_argument("--write", action="store_true", help="write docs/method-seen.md")
    options = parser.parse_args()
    rows = [alone(threads, 20) for threads in options.threads or (60, 600, 1500)]
    iops, percent = on_ceph(options.seconds)
    text = page(rows, iops, percent)
    Console().print(text, markup=False, highlight=False)
    if options.write:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        PAGE.write_text(f"{before}{BEGIN}{text}{END}{after}", encoding="utf-8")
    dear = [row for row in rows if row.threads <= GOAL_THREADS and row.percent > GOAL_PERCENT]
    has_lost = bool(iops.differs) and iops.percent < 100
    return 1 if dear or percent > GOAL_PERCENT or has_lost else 0


if __name__ == "__main__":
    sys.exit(main())

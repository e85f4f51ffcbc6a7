"""How much time goes into what measures nothing, in two checkouts of this project, pair by pair.

    python perf/pairs.py OLD NEW [--pairs 3] [--emulated OLD_ARCHIVE NEW_ARCHIVE] [--write FILE]

Both run on this machine in turns, as root: a campaign of one cell of 10 s, from nothing to nothing,
one of two cells with a restart between them, and the first and second report of an archive of the
article's size. `--emulated` adds what two archives of
`make quickstart` say, made before by each checkout: commands and seconds by step. `--write` puts
the tables into docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Optional

import yaml
from one_machine import POOL, cluster_section
from report_speed import reports

SECONDS = 10
PORT = 13340
#: Figure -> seconds that it is to take at most.
GOALS: dict[str, Optional[float]] = {
    "a whole run of one cell, less its 10 s": 5.0,
    "deployment, 2 OSDs": 1.5,
    "a cell, beyond its time": 1.2,
    "restart": 1.8,
    "--help": 0.2,
    "--plan": 0.35,
    "first report of the article's size": 6.0,
    "its memory, MiB": 300.0,
    "the same report, nothing new": 1.5,
    # Of what a busy machine disturbs less.
    "processor time of the whole run, without daemons": None,
    "commands on the host in the whole run (count)": None,
}
_LIMIT_S = 300
#: Steps of an archive that are shown: those that took the most.
_STEPS = 15
_ABOUT = """\
# Performance

Time of a campaign that measures nothing. `perf/pairs.py OLD NEW` makes this page: both checkouts
run in turns on one machine, and each figure is the median of its runs.
"""

Figures = dict[str, float]


def campaign(directory: Path, secure: bool) -> Path:
    """The file of a campaign of one configuration, or of two with a restart between them."""
    configurations: dict[str, Any] = {"Unencrypted": {}}
    if secure:
        configurations["Secure messenger"] = {"secure_messenger": {}}
    section = cluster_section(
        directory, PORT, pool_profiles=POOL, configurations=configurations, baseline="Unencrypted"
    )
    load = {"vol_size": 64, "iodepth": 4, "time": SECONDS, "mode": "randread", "op_size": 4096}
    path = directory / "campaign.yaml"
    path.write_text(yaml.safe_dump({"cluster": section, "benchmarks": {"rbd_single_client": load}}))
    return path


def seconds_of(checkout: Path, *arguments: str) -> float:
    """How long the checkout's cbt.py takes. Raises CalledProcessError."""
    began = time.monotonic()
    subprocess.run(
        [sys.executable, str(checkout / "cbt.py"), *arguments], check=True,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        stdin=subprocess.DEVNULL, capture_output=True, timeout=_LIMIT_S,
    )  # fmt: skip
    return time.monotonic() - began


def processor_s() -> float:
    """Seconds that all children that were waited for have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measured(checkout: Path) -> Figures:
    """All figures of one checkout, once."""
    found = {"--help": seconds_of(checkout, "--help")}
    with tempfile.TemporaryDirectory(prefix="pairs-") as name:
        directory = Path(name)
        first, _, again = reports(directory, 1, {"PYTHONPATH": str(checkout)})
        found["first report of the article's size"] = first.seconds
        found["its memory, MiB"] = first.mib
        found["the same report, nothing new"] = again.seconds
        for secure in (False, True):
            file, archive = campaign(directory, secure), directory / f"archive{secure}"
            words = ("--cbt", "embedded", "--no-report", "-a", str(archive), str(file))
            used = processor_s()
            whole = seconds_of(checkout, *words)
            used = processor_s() - used
            steps = list(steps_of(archive))
            if not secure:
                found["--plan"] = seconds_of(checkout, "--cbt", "embedded", "--plan", str(file))
                found["processor time of the whole run, without daemons"] = used
                commands = sum(count for count, _ in by_step(archive).values())
                found["commands on the host in the whole run (count)"] = commands
                found["a whole run of one cell, less its 10 s"] = whole - SECONDS
                found["deployment, 2 OSDs"] = _seconds(steps, step="deploy", how="rebuild")
                found["a cell, beyond its time"] = _seconds(steps, step="measure") - SECONDS
            else:
                found["restart"] = _seconds(steps, step="deploy", how="restart")
    return found


def steps_of(archive: Path) -> Iterator[dict[str, Any]]:
    """The steps of a campaign's timeline, in either of the forms that it has had."""
    results = archive / "results"
    for path in sorted(results.glob("timeline.json*")):
        text = path.read_text(encoding="utf-8")
        try:
            yield from json.loads(text)["steps"]
        except (ValueError, KeyError):
            yield from (step for step in map(json.loads, text.splitlines()) if "step" in step)


def _seconds(steps: Sequence[dict[str, Any]], **wanted: str) -> float:
    """Of the first step that says all that."""
    return next(float(step["seconds"]) for step in steps if wanted.items() <= step.items())


def by_step(archive: Path) -> dict[str, tuple[int, float]]:
    """Step -> how many commands it took, and seconds, of an archive's commands.log."""
    found: dict[str, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    for line in (archive / "results" / "commands.log").read_text(encoding="utf-8").splitlines():
        parts = line.split("\t")
        if len(parts) > 4 and parts[1].endswith(" s"):
            count, seconds = found[parts[4]]
            found[parts[4]] = count + 1, seconds + float(parts[1][:-2])
    return dict(found)


def table(old: Sequence[Figures], new: Sequence[Figures]) -> list[str]:
    """Rows of Markdown: the medians of both, their ratio, and the goal."""
    rows = [
        "| native, s where nothing else is said | old | new | new / old | goal |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name, goal in GOALS.items():
        before, now = (statistics.median(run[name] for run in runs) for runs in (old, new))
        wanted = "" if goal is None else f"{goal:g}"
        rows.append(f"| {name} | {before:.2f} | {now:.2f} | {now / before:.2f} | {wanted} |")
    return rows


def emulated(old: Path, new: Path) -> list[str]:
    """Rows of Markdown: the steps that took the most in either archive."""
    before, now = by_step(old), by_step(new)
    seconds = {name: max(a.get(name, (0, 0.0))[1] for a in (before, now)) for name in before | now}
    shown = sorted(seconds, key=lambda name: -seconds[name])[:_STEPS]
    rows = ["| emulated quickstart | commands, old | new | s, old | new |",
            "| --- | ---: | ---: | ---: | ---: |"]  # fmt: skip
    for name in (*shown, ""):
        pairs = [a.get(name, (0, 0.0)) if name else _sum(a) for a in (before, now)]
        (count, taken), (later_count, later) = pairs
        title = name or "all commands"
        rows.append(f"| {title} | {count} | {later_count} | {taken:.0f} | {later:.0f} |")
    return rows


def _sum(steps: dict[str, tuple[int, float]]) -> tuple[int, float]:
    return sum(count for count, _ in steps.values()), sum(taken for _, taken in steps.values())


def main() -> None:
    """Measure, and print the tables or write them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--emulated", type=Path, nargs=2, metavar=("OLD", "NEW"))
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    # As installed, where Python does not compile each module at each start.
    for name in ("CBT_HOME", "PYTHONDONTWRITEBYTECODE"):
        os.environ.pop(name, None)
    pairs = [(measured(options.old), measured(options.new)) for _ in range(options.pairs)]
    load = " ".join(f"{one:.1f}" for one in os.getloadavg())
    note = f"{len(pairs)} pairs on {os.cpu_count()} CPUs; load at the end: {load}."
    lines = [note, "", *table([old for old, _ in pairs], [new for _, new in pairs])]
    if options.emulated:
        lines += ["", *emulated(*options.emulated)]
    text = "\n".join(lines) + "\n"
    print(text)
    if options.write:
        options.write.write_text(f"{_ABOUT}\n{text}", encoding="utf-8")


if __name__ == "__main__":
    main()

"""How soon is a percent known? The article's way and `order: interleaved`, on this machine.

    python perf/time_to_answer.py [--precision 20%] [--seconds 300] [--limit 4]

Three configurations on two OSDs of real Ceph: the second differs from the baseline by a restart
(secure messenger), the third by a live change (OSDs on one core). What is compared is the time from
the start of the first command to the end of the last one, deployments and tearing down included:

(b) one campaign in turns, until both percentages have the precision or its longest time is over;
(a) campaigns as the article made them: a new cluster for each configuration and a fixed time, one
    campaign after another until the intervals of the same percents, from run to run, are as narrow
    as those of (b). It is ended as soon as it has taken `--limit` times as long.

The article measured for 300 s. Fewer `--seconds` are in favour of its way, whose runs differ by
cluster more than by second. Exit status 1 when (b) took more than 1/limit of (a)'s time.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from one_machine import POOL, cluster_section
from rich.console import Console
from scipy.special import stdtrit

ROOT = Path(__file__).resolve().parent.parent
BASELINE = "crc"
CONFIGURATIONS: dict[str, Any] = {
    BASELINE: {},
    "Secure messenger (restart)": {"secure_messenger": {}},
    "OSDs on 1 core (live)": {"cpuset": {"osd_cores": 1}},
}
#: Fewer than two runs of each say nothing of how runs differ.
_FEWEST = 2


def campaign(directory: Path, cluster: Mapping[str, Any], measured: Any) -> Path:
    """Write a campaign into a directory of its own."""
    directory.mkdir()
    own = {"control": False, "configurations": CONFIGURATIONS, "rebuild": ..., **cluster}
    section = cluster_section(directory, 13431, **{"pool_profiles": POOL, **own})
    load = {
        "vol_size": 128, "iodepth": 16, "op_size": 4096, "mode": "randread", "time": measured,
    }  # fmt: skip
    path = directory / "campaign.yaml"
    document = {"cluster": section, "benchmarks": {"rbd_single_client": load}}
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


#: What runs a campaign on this machine.
HERE = (sys.executable, str(ROOT / "cbt.py"))


def run(config: Path, limit_s: float | None = None, program: Sequence[str] = HERE) -> bool:
    """Run a campaign to its end, report included; False when it was ended at the limit."""
    command = [*program, "-a", str(config.parent / "archive")]
    output = config.parent / "output"
    with output.open("w") as file:
        process = subprocess.Popen(
            [*command, str(config)], stdin=subprocess.DEVNULL, stdout=file, stderr=file
        )
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            process.wait()
            return False
    if status:
        sys.exit(f"{output.read_text()[-3000:]}\nA campaign ended with exit status {status}.")
    return True


def report_of(config: Path) -> None:
    """Write the report of a campaign again; one that was ended has none yet."""
    command = [sys.executable, "-m", "cbt_crypto", "report", str(config.parent / "archive")]
    subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL)


def cells(config: Path) -> dict[str, dict[str, Any]]:
    """Configuration -> its cell of the campaign's report."""
    report = json.loads((config.parent / "archive" / "report.json").read_text())
    ((section,),) = [table["sections"] for table in report["tables"]]
    return {cell["name"]: cell for cell in section["cells"]}


def halves_of_report(config: Path) -> dict[str, float]:
    """Configuration -> half the interval of its percent's logarithm, as the report has it."""
    return {
        name: math.log(cell["comparisons"]["iops"]["high"] / cell["comparisons"]["iops"]["percent"])
        for name, cell in cells(config).items()
        if name != BASELINE
    }


def halves_of_runs(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Half an interval from run to run: Student's, of the pooled variance."""
    names = [name for name in CONFIGURATIONS if name != BASELINE]
    if len(runs) < _FEWEST:
        return dict.fromkeys(names, math.inf)
    logs = np.log([[one[name] for name in CONFIGURATIONS] for one in runs])
    degrees = len(CONFIGURATIONS) * (len(runs) - 1)
    deviation = math.sqrt(float(logs.var(axis=0, ddof=1).mean()) * 2 / len(runs))
    return dict.fromkeys(names, float(stdtrit(degrees, 0.975)) * deviation)


def in_turns(directory: Path, precision: str, console: Console) -> tuple[float, dict[str, float]]:
    """(b): seconds, and the halves that it reached."""
    until = {"precision": precision, "min": 16, "max": 48, "block": 4}
    config = campaign(directory, {"rebuild": "needed", "order": "interleaved"}, until)
    started = time.monotonic()
    run(config)
    seconds = time.monotonic() - started
    for name, cell in cells(config).items():
        if name != BASELINE:
            iops = cell["comparisons"]["iops"]
            console.print(
                f"  {name}: {iops['percent']:.1f} % ({iops['low']:.1f} to {iops['high']:.1f}), "
                f"{iops['basis']}", highlight=False, soft_wrap=True,
            )  # fmt: skip
    return seconds, halves_of_report(config)


def one_by_one(
    directory: Path, seconds: int, wanted: Mapping[str, float], limit_s: float
) -> tuple[float, list[dict[str, float]], bool]:
    """(a): seconds, the IOPS of each campaign, and whether every interval became as narrow."""
    runs: list[dict[str, float]] = []
    started = time.monotonic()
    while True:
        config = campaign(directory / f"{len(runs)}", {"rebuild": "configuration"}, seconds)
        whole = run(config, limit_s - (time.monotonic() - started))
        if whole:
            runs.append({name: cell["figures"]["iops"] for name, cell in cells(config).items()})
        shutil.rmtree(config.parent / "cluster", ignore_errors=True)
        halves = halves_of_runs(runs)
        taken = time.monotonic() - started
        if all(halves[name] <= half for name, half in wanted.items()):
            return taken, runs, True
        if not whole or taken >= limit_s:
            return taken, runs, False


def main() -> int:
    """Print both times; 1 when the method's is more than its share."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--precision", default="20%", help="of the percents (default: 20%%)")
    parser.add_argument(
        "--seconds", type=int, default=300, help="of a cell in the article's way (300)"
    )
    parser.add_argument(
        "--limit", type=float, default=4, help="times as long, at most (default: 4)"
    )
    options = parser.parse_args()
    console = Console(width=100)
    with tempfile.TemporaryDirectory(prefix="time-to-answer-") as name:
        directory = Path(name)
        console.print(f"(b) in turns, until +-{options.precision}", highlight=False)
        ours, halves = in_turns(directory / "turns", options.precision, console)
        console.print(f"  took {ours:.0f} s", highlight=False)
        console.print(f"(a) a new cluster each, {options.seconds} s a cell", highlight=False)
        (directory / "one").mkdir()
        theirs, runs, reached = one_by_one(
            directory / "one", options.seconds, halves, options.limit * ours
        )
    for name, half in halves_of_runs(runs).items():
        shown = f"+-{100 * math.expm1(half):.0f} %" if math.isfinite(half) else "no interval"
        wanted = f"+-{100 * math.expm1(halves[name]):.0f} %"
        console.print(f"  {name}: {shown}, where (b) has {wanted}", highlight=False)
    ending = "as narrow" if reached else "ended, not as narrow yet"
    console.print(f"  {len(runs)} campaigns took {theirs:.0f} s: {ending}", highlight=False)
    share = ours / theirs
    console.print(
        f"(b) took {'' if reached else 'less than '}{share:.2f} of the time of (a)", highlight=False
    )
    return 0 if share <= 1 / options.limit else 1


if __name__ == "__main__":
    if shutil.which("ceph-osd") is None:
        sys.exit("ceph-osd is missing; install ceph-osd, ceph-mon, ceph-mgr, ceph-common, fio")
    sys.exit(main())

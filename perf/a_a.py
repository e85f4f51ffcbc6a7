"""Whether a report keeps its head: two names for one configuration, and one that does differ.

    python perf/a_a.py [--rounds 4] [--seconds 8] [--small] [--archive DIR]

Real Ceph on this machine: two OSDs on files, built anew for each round. `Same` and `Same again` are
one configuration, so a report that is right says "not shown" of all but the twentieth cell;
`Secure messenger` encrypts, so the loss of its small random reads is real. Every round is judged by
itself too, as a campaign without repetitions would be. Exits with 1 unless at least 90 % of the
repeated cells are within noise and every loss of the secure messenger's is said to be real.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from one_machine import POOL, cluster_section
from rich.console import Console
from rich.table import Table as Grid

from cbt_crypto.archive.folder import open_archive
from cbt_crypto.plan.cells import Cell
from cbt_crypto.plan.file import read_campaign
from cbt_crypto.plan.order import cells_of
from cbt_crypto.report.build import assemble, read_runs
from cbt_crypto.report.figures.group import baseline_of
from cbt_crypto.report.model import Comparison, Report, ReportOptions

ROOT = Path(__file__).resolve().parent.parent
BASELINE, TWIN, OTHER = "Same", "Same again", "Secure messenger"
#: Share of the twin's cells that must be within noise. An interval of 95 % is wrong about one in
#: twenty, so of ten cells nine are the most that can be asked for.
WANTED_SHARE = 0.9
PORT = 13370


@dataclass(frozen=True)
class Compared:
    """One cell's percent of the baseline."""

    round: str
    configuration: str
    load: str
    iops: Comparison

    @property
    def verdict(self) -> str:
        """As the report has it."""
        return {False: "not shown", True: "real", None: "no verdict"}[self.iops.differs]


@dataclass(frozen=True)
class Judged:
    """What a report says of the twin and of the other configuration, and of all its figures."""

    cells: tuple[Compared, ...]
    #: Of the twin: comparisons of every figure that has an interval, and those within noise.
    figures: int
    figures_within: int

    def of(self, configuration: str) -> list[Compared]:
        """The cells of one configuration."""
        return [cell for cell in self.cells if cell.configuration == configuration]

    @property
    def share(self) -> float:
        """The share of the twin's cells that are within noise."""
        return within(self.of(TWIN)) / max(len(self.of(TWIN)), 1)


def main() -> int:
    """Measure, print what the report says, and judge it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=4, help="default: 4")
    parser.add_argument("--seconds", type=int, default=8, help="of each cell (default: 8)")
    parser.add_argument("--small", action="store_true", help="small random reads of one client")
    parser.add_argument("--archive", type=Path, help="keep it there, and go on with it if it is")
    parser.add_argument("--prefix", default="", help="command to run each round under, as nice")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="a-a-") as name:
        directory = Path(name)
        archive = arguments.archive or directory / "archive"
        campaign = write_campaign(
            directory, arguments.rounds, arguments.seconds, small=arguments.small
        )
        measure(campaign, archive, arguments.prefix.split())
        reports = judge(archive)
    _print(reports, Console())
    whole = reports[0]
    real = all(cell.verdict == "real" and cell.iops.percent < 100 for cell in whole.of(OTHER))
    return 0 if whole.share >= WANTED_SHARE and whole.of(OTHER) and real else 1


def write_campaign(directory: Path, rounds: int, seconds: int, *, small: bool) -> Path:
    """The file of the campaign: all three scenarios, or small random reads of a single client."""
    random = {"mode": ["randread", "randwrite"]}
    each = {"vol_size": 128, "time": seconds, "ramp": 1}
    single = {**each, "iodepth": 32}
    sizes = {"op_size": [4096, 4 << 20], **random}
    benchmarks = {
        "rbd_multi_client": {**each, "volumes_per_client": 3, "iodepth": 16, "workloads": sizes},
        "rbd_single_client": {**single, "workloads": sizes},
        "rbd_single_client_sync": {**each, "op_size": 4096, "workloads": random},
    }
    if small:
        benchmarks = {"rbd_single_client": {**single, "op_size": 4096, "mode": "randread"}}
    cluster = cluster_section(
        directory, PORT, osd_file_size="6G", pool_profiles=POOL, iterations=rounds,
        # its twin is one
        control=False,
        configurations={BASELINE: {}, TWIN: {}, OTHER: {"secure_messenger": {}}},
    )  # fmt: skip
    path = directory / "a_a.yaml"
    path.write_text(yaml.safe_dump({"cluster": cluster, "benchmarks": benchmarks}, sort_keys=False))
    return path


def measure(campaign: Path, archive: Path, prefix: Sequence[str] = ()) -> None:
    """Measure round by round, so that no configuration has a time of day of its own.

    Raises SystemExit when a round failed.
    """
    cells = cells_of(read_campaign(campaign))
    for number in sorted({cell.iteration for cell in cells}):
        command = [*prefix, sys.executable, str(ROOT / "cbt.py"), "--no-report", "-a", str(archive)]
        for cell in cells:
            if cell.iteration == number and _is_wanted(cell):
                # a glob has to match the whole label, and one label may begin another
                command += ["--only", f"?{cell.label[1:]}"]
        done = subprocess.run([*command, str(campaign)], check=False)
        if done.returncode:
            raise SystemExit(f"round {number + 1} ended with exit status {done.returncode}")


def _is_wanted(cell: Cell) -> bool:
    """Every workload of the twins, and small random reads of the other."""
    is_small_read = (cell.parameters["mode"], cell.parameters["op_size"]) == ("randread", 4096)
    return cell.configuration != OTHER or is_small_read


def judge(archive: Path) -> list[Judged]:
    """What the report says of all rounds together, then of each by itself."""
    opened = open_archive(archive)
    options = ReportOptions()
    baseline = baseline_of(opened.plan, options)
    runs = read_runs(opened.folder, opened.plan.cells)
    rounds = sorted({run.planned.iteration for run in runs})
    groups = {"all": runs}
    if len(rounds) > 1:
        groups |= {f"{n + 1}": [r for r in runs if r.planned.iteration == n] for n in rounds}
    return [
        _judged(name, assemble(opened, baseline, some, options)) for name, some in groups.items()
    ]


def _judged(name: str, report: Report) -> Judged:
    cells = []
    within_noise = []
    for table in report.tables:
        for section in table.sections:
            for cell in section.cells:
                if cell.is_baseline or "iops" not in cell.comparisons:
                    continue
                shown = f"{table.title}, {section.label}"
                cells.append(Compared(name, cell.name, shown, cell.comparisons["iops"]))
                if cell.name == TWIN:
                    within_noise += [
                        None if c.differs is None else not c.differs
                        for c in cell.comparisons.values()
                    ]
    known = [one for one in within_noise if one is not None]
    return Judged(tuple(cells), len(known), sum(known))


def within(cells: Iterable[Compared]) -> int:
    """How many are within noise."""
    return sum(cell.verdict == "not shown" for cell in cells)


def _print(reports: Sequence[Judged], console: Console) -> None:
    whole, *single = reports
    grid = Grid("load", "configuration", "percent", "95 % interval", "", box=None)
    for cell in whole.cells:
        low, high = cell.iops.low, cell.iops.high
        ends = "-" if low is None or high is None else f"{low:.1f} to {high:.1f}"
        grid.add_row(cell.load, cell.configuration, f"{cell.iops.percent:.2f}", ends, cell.verdict)
    console.print(grid)
    console.print(_sentence("all rounds", [whole]))
    if single:
        console.print(_sentence("rounds by themselves", single))


def _sentence(what: str, reports: Sequence[Judged]) -> str:
    twins = [cell for report in reports for cell in report.of(TWIN)]
    others = [cell for report in reports for cell in report.of(OTHER)]
    real = sum(cell.verdict == "real" for cell in others)
    unknown = sum(cell.verdict == "no interval" for cell in twins)
    figures = sum(report.figures for report in reports)
    calm = sum(report.figures_within for report in reports)
    return (
        f"{what}: {within(twins)} of {len(twins)} cells of {TWIN!r} within noise"
        f" ({unknown} too short to say; {calm} of {figures} figures of any kind);"
        f" {real} of {len(others)} losses of {OTHER!r} real"
    )


if __name__ == "__main__":
    sys.exit(main())

"""How soon is a percent known, with what another deployment would change? Three ways, real Ceph.

    python perf/time_to_verdict.py [--precision 20%] [--seconds 300] [--directory DIR] [--lab NAME]

The secure messenger against crc, which differ by new daemons, on two OSDs of this machine; with
`--lab`, LUKS against plain, which differ by new OSDs, on node0 of a lab that is up, with two disks.
Each way goes on until the interval of their percent, over deployments, is as narrow as asked:

(c) side by side: both on every deployment, in turns;
(b) in rounds: a new deployment of each in every round, in random order;
(a) as the article made its campaigns: a new cluster for each configuration and a fixed time, one
    campaign after another. Its interval is Student's, with the variance pooled, which favours it.

(b) is ended when it has taken `--rounds-limit` times as long as (c), (a) at `--limit` times. What
the three say of the percent is printed beside one another: where clusters of their own and groups
side by side do not agree, that is the finding. With `--directory`, what is there already is not
measured again, so that ways can be measured one at a time (`--only`). Exit status 1 when (c) took
more than 1/limit of (a)'s time or 1/rounds-limit of (b)'s, or where intervals of (b) and (c) do not
overlap.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import time_to_answer
import yaml
from one_machine import cluster_section
from rich.console import Console
from rich.table import Table

from cbt_crypto.results.repetition import student

POOL = {"rbd": {"pg_size": 16, "pgp_size": 16, "replication": 2}}
LOAD = {"iodepth": 16, "op_size": 65536, "mode": "randread"}
#: Turns of each side by side on each deployment, and seconds of a visit in rounds.
TURNS, VISIT_S = 2, 10
#: More deployments than any of these needs.
MOST = 40


@dataclass(frozen=True)
class Answer:
    """What a way took, the percent with its interval, and how many deployments it rests on."""

    seconds: float
    percent: float
    low: float
    high: float
    deployments: int
    reached: bool

    def overlaps(self, other: Answer) -> bool:
        """Whether their intervals have a percent in common."""
        return self.low <= other.high and other.low <= self.high


@dataclass(frozen=True)
class Place:
    """Where campaigns run, what they compare, and what ran one there."""

    configurations: Mapping[str, Any]
    section: Mapping[str, Any]
    #: MiB of a volume, and what OSDs may remember where two groups share a machine.
    vol_size: int
    memory: str
    #: Seconds of a turn side by side: about what it costs to begin one, which is what takes the
    #: least time where turns differ by what happens within them.
    turn_s: int
    program: Sequence[str] = time_to_answer.HERE

    @classmethod
    def here(cls) -> Place:
        """This machine, whose OSDs are on sparse files."""
        section = cluster_section(Path("."), 13441, tmp_dir=..., osd_file_size="8G")
        return cls({"crc": {}, "secure": {"secure_messenger": {}}}, section, 256, "2G", 4)

    @classmethod
    def lab(cls, name: str) -> Place:
        """A node of a lab, with dm-crypt."""
        section = cluster_section(Path("."), 6789, tmp_dir=..., osd_file_size=...)
        nodes = {key: ["node0"] for key in ("clients", "osds")}
        daemons = {"mons": {"node0": {"a": "node0"}}, "mgrs": {"node0": {"x": None}}}
        own = {"osd_devices": "/dev/disk/by-partlabel/osd-device-{n}-data", "deploy_timeout": 600}
        program = (sys.executable, "-m", "cbt_crypto", "lab", "run", "--name", name)
        return cls(
            {"plain": {}, "LUKS": {"luks": {}}},
            {**section, "head": "node0", **nodes, **daemons, **own}, 32, "1800M", 8, program,
        )  # fmt: skip

    @property
    def names(self) -> tuple[str, str]:
        """The baseline, and what is compared with it."""
        baseline, other = self.configurations
        return baseline, other

    def campaign(self, directory: Path, cluster: Mapping[str, Any], measured: Any) -> Path:
        """Write a campaign into a directory of its own."""
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        section = {**self.section, "control": False, "configurations": self.configurations,
                   "pool_profiles": POOL, **cluster}  # fmt: skip
        if self.program is time_to_answer.HERE:
            section["tmp_dir"] = str(directory / "cluster")
        load = {"vol_size": self.vol_size, **LOAD, "time": measured}
        path = directory / "campaign.yaml"
        document = {"cluster": section, "benchmarks": {"rbd_single_client": load}}
        path.write_text(yaml.safe_dump(document, sort_keys=False))
        return path


def one_campaign(
    place: Place,
    directory: Path,
    cluster: Mapping[str, Any],
    precision: str,
    block: int,
    limit_s: float | None,
) -> Answer:
    """(b) or (c): one campaign, which ends by itself."""
    longest = MOST * block * TURNS
    until = {"precision": precision, "min": 1, "max": longest, "block": block}
    config = place.campaign(directory, {"iterations": MOST, "rebuild": "needed", **cluster}, until)
    began = time.monotonic()
    time_to_answer.run(config, limit_s, place.program)
    seconds = time.monotonic() - began
    time_to_answer.report_of(config)
    _, other = place.names
    row = time_to_answer.cells(config)[other]["comparisons"]["iops"]
    states = [
        json.loads(p.read_text()) for p in config.parent.glob("archive/results/0*/id-*/cell.json")
    ]
    built = {state.get("deployment") for state in states if state["configuration"] == other}
    half = math.log(row["high"] / row["percent"])
    reached = half <= math.log1p(float(precision.rstrip("%")) / 100)
    return Answer(seconds, row["percent"], row["low"], row["high"], len(built), reached)


def as_the_article(
    place: Place, directory: Path, seconds: int, precision: str, limit_s: float
) -> Answer:
    """(a): campaign after campaign, until their percentages from run to run are known as well."""
    wanted = math.log1p(float(precision.rstrip("%")) / 100)
    logs: list[dict[str, float]] = []
    began = time.monotonic()
    half = math.inf
    while half > wanted:
        left = limit_s - (time.monotonic() - began)
        config = place.campaign(directory / f"{len(logs)}", {"rebuild": "configuration"}, seconds)
        if left <= 0 or not time_to_answer.run(config, left, place.program):
            break
        found = time_to_answer.cells(config)
        logs.append({name: math.log(found[name]["figures"]["iops"]) for name in place.names})
        if len(logs) > 1:
            squares = [statistics.variance([one[name] for one in logs]) for name in place.names]
            half = student(2 * len(logs) - 2) * math.sqrt(sum(squares) / len(logs))
    taken = time.monotonic() - began
    baseline, other = place.names
    ratios = [one[other] - one[baseline] for one in logs]
    center = sum(ratios) / len(ratios) if ratios else math.nan
    ends = [100 * math.exp(center + side * min(half, 50.0)) for side in (-1, 0, 1)]
    return Answer(taken, ends[1], ends[0], ends[2], len(logs), half <= wanted)


def known(path: Path, measure: Any) -> Answer:
    """What a way found, measured unless it stands in `path` already."""
    if path.exists():
        return Answer(**json.loads(path.read_text()))
    answer: Answer = measure()
    path.write_text(json.dumps(asdict(answer)))
    return answer


def main() -> int:
    """Print what each way took and found; 1 when side by side took more than its share."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--precision", default="20%", help="of the percent (default: 20%%)")
    parser.add_argument("--seconds", type=int, default=300, help="of a cell in the article's way")
    parser.add_argument("--limit", type=float, default=10, help="of (a), in times of (c) (10)")
    parser.add_argument("--rounds-limit", type=float, default=3, help="of (b), the same (3)")
    parser.add_argument("--directory", type=Path, help="where campaigns and answers are kept")
    parser.add_argument("--lab", metavar="NAME", help="LUKS against plain, on node0 of this lab")
    parser.add_argument("--only", choices=("c", "b"), help="end after this way")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="time-to-verdict-") as name:
        root = options.directory or Path(name)
        root.mkdir(exist_ok=True)
        return _compare(root, options)


def _compare(root: Path, options: argparse.Namespace) -> int:
    precision = options.precision
    place = Place.lab(options.lab) if options.lab else Place.here()
    if not options.lab and shutil.which("ceph-osd") is None:
        sys.exit("ceph-osd is missing; install ceph-osd, ceph-mon, ceph-mgr, ceph-common, fio")
    layout = {"layout": "side_by_side", "turns": TURNS,
              "settings": {"osd_memory_target": place.memory}}  # fmt: skip
    beside = known(
        root / "c.json",
        lambda: one_campaign(place, root / "c", layout, precision, place.turn_s, None),
    )
    answers = {"(c) side by side": beside}
    if options.only != "c":
        limit = options.rounds_limit * beside.seconds
        order = {"order": "rounds"}
        answers["(b) in rounds"] = known(
            root / "b.json",
            lambda: one_campaign(place, root / "b", order, precision, VISIT_S, limit),
        )
    if options.only is None:
        limit = options.limit * beside.seconds
        answers["(a) as the article"] = known(
            root / "a.json",
            lambda: as_the_article(place, root / "a", options.seconds, precision, limit),
        )
    _show(answers, place)
    return 0 if _holds(answers, options) else 1


def _show(answers: Mapping[str, Answer], place: Place) -> None:
    baseline, other = place.names
    table = Table("way", "took", "deployments", f"{other}, % of {baseline}", "reached", box=None)
    for name, one in answers.items():
        interval = f"{one.percent:.1f} ({one.low:.1f} to {one.high:.1f})"
        end = "yes" if one.reached else "not yet, ended"
        table.add_row(name, f"{one.seconds:.0f} s", str(one.deployments), interval, end)
    Console(width=100).print(table)


def _holds(answers: Mapping[str, Answer], options: argparse.Namespace) -> bool:
    beside, *others = answers.values()
    limits = (options.rounds_limit, options.limit)
    shares = [other.seconds >= limit * beside.seconds for other, limit in zip(others, limits)]
    for name, other in list(answers.items())[1:]:
        print(f"side by side took {beside.seconds / other.seconds:.2f} of the time of {name}")
    if not others:
        return True
    agrees = beside.overlaps(others[0])
    print(f"intervals of (b) and (c) {'overlap' if agrees else 'DO NOT OVERLAP'}")
    return all(shares) and agrees


if __name__ == "__main__":
    sys.exit(main())

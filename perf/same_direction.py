"""Whether one campaign after another says the same of the secure messenger.

    python perf/same_direction.py [--campaigns 5] [--rounds 7] [--turns N] [--seconds 5]
        [--prefix COMMAND]

Real Ceph on this machine: two OSDs on files, built anew for each configuration of each round. With
`--turns` all configurations are side by side, and take so many turns on each deployment. What the
client reads lies in the OSDs' memory and is read in large pieces, so that the messenger is most
of the work. Exits with 1 unless every campaign has a verdict on `secure` in the same direction, and
none has one on the control. `--prefix` runs each campaign under a command, as `nice` or `flock`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

import yaml
from one_machine import cluster_section
from rich.console import Console
from rich.table import Table as Grid

from cbt_crypto.archive.folder import open_archive
from cbt_crypto.plan.file.cluster import CONTROL
from cbt_crypto.report.build import assemble, read_runs
from cbt_crypto.report.figures.group import baseline_of
from cbt_crypto.report.model import Comparison, ReportOptions

ROOT = Path(__file__).resolve().parent.parent
BASELINE, OTHER = "crc", "secure"
PORT = 13390
#: Else BlueStore begins with 128 MiB for all caches, and most of the reads would be of its files.
CACHE = """\
[osd]
bluestore cache autotune = false
bluestore cache size = 536870912
bluestore cache meta ratio = 0.1
bluestore cache kv ratio = 0.1
"""

#: Configuration -> its throughput in percent of the baseline's.
Verdicts = dict[str, Comparison]


def main() -> int:
    """Measure, print what each campaign says, and judge them together."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--campaigns", type=int, default=5, help="default: 5")
    parser.add_argument("--rounds", type=int, default=7, help="of each campaign (default: 7)")
    parser.add_argument("--turns", type=int, help="side by side, on each deployment")
    parser.add_argument("--seconds", type=int, default=5, help="of each cell (default: 5)")
    parser.add_argument("--prefix", default="", help="command to run each campaign under")
    arguments = parser.parse_args()
    console, campaigns = Console(), []
    for _ in range(arguments.campaigns):
        with tempfile.TemporaryDirectory(prefix="same-direction-") as name:
            directory = Path(name)
            path = write_campaign(directory, arguments.rounds, arguments.seconds, arguments.turns)
            campaigns.append(measured(path, directory / "archive", arguments.prefix.split()))
        _print(campaigns, console)
    return 0 if agree(campaigns) else 1


def write_campaign(directory: Path, rounds: int, seconds: int, turns: Optional[int] = None) -> Path:
    """The file of one campaign; a control is in it, as always."""
    conf = directory / "caches.conf"
    conf.write_text(CACHE)
    # Of four placement groups each OSD is primary of two; of 16, one of the two has 14.
    pool = {"pg_size": 4, "pgp_size": 4, "replication": 2}
    how: dict[str, Any] = {"rebuild": "configuration", "osd_file_size": "2G"}
    if turns is not None:
        how = {"rebuild": ..., "osd_file_size": "6G", "layout": "side_by_side", "turns": turns}
        how["settings"] = {"osd_memory_target": "3G"}
    cluster = cluster_section(
        directory, PORT, **how, iterations=rounds, conf_file=str(conf),
        pool_profiles={"rbd": pool},
        configurations={BASELINE: {}, OTHER: {"secure_messenger": {}}},
    )  # fmt: skip
    load = {
        "vol_size": 16, "order": 18, "cache": "warm", "op_size": 1 << 20, "mode": "randread",
        "iodepth": 8, "time": seconds, "ramp": 1,
    }  # fmt: skip
    path = directory / "same_direction.yaml"
    document = {"cluster": cluster, "benchmarks": {"rbd_single_client": load}}
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def measured(campaign: Path, archive: Path, prefix: Sequence[str] = ()) -> Verdicts:
    """Run a campaign, and read what its report says. Raises SystemExit when it failed."""
    command = [*prefix, sys.executable, str(ROOT / "cbt.py"), "--no-report", "-a", str(archive)]
    done = subprocess.run([*command, str(campaign)], check=False)
    if done.returncode:
        raise SystemExit(f"a campaign ended with exit status {done.returncode}")
    return verdicts(archive)


def verdicts(archive: Path) -> Verdicts:
    """What the report of an archive says of each row but the baseline."""
    opened, options = open_archive(archive), ReportOptions()
    runs = read_runs(opened.folder, opened.plan.cells)
    report = assemble(opened, baseline_of(opened.plan, options), runs, options)
    return {
        cell.name: cell.comparisons["iops"]
        for table in report.tables
        for section in table.sections
        for cell in section.cells
        if not cell.is_baseline and "iops" in cell.comparisons
    }


def agree(campaigns: Sequence[Verdicts]) -> bool:
    """Whether all have a verdict in the same direction, and none has one on the control."""
    directions = {
        one[OTHER].percent < 100 if OTHER in one and one[OTHER].differs else None
        for one in campaigns
    }
    calm = all(CONTROL in one and one[CONTROL].differs is False for one in campaigns)
    return len(directions) == 1 and None not in directions and calm


def _print(campaigns: Sequence[Verdicts], console: Console) -> None:
    grid = Grid("campaign", "configuration", "percent", "95 % interval", "p", "", box=None)
    words = {False: "not shown", True: "differs", None: "no verdict"}
    for number, rows in enumerate(campaigns, 1):
        for name, iops in rows.items():
            ends = "-" if iops.low is None else f"{iops.low:.1f} to {iops.high:.1f}"
            chance = "-" if iops.p is None else f"{iops.p:.3f}"
            grid.add_row(str(number), name, f"{iops.percent:.2f}", ends, chance,
                         words[iops.differs])  # fmt: skip
    console.print(grid)


if __name__ == "__main__":
    sys.exit(main())

"""A campaign of 1,000 nodes, without any: does anything grow faster than the nodes?

    python perf/thousand_nodes.py [--nodes 100 1000]

Each stage runs in a process of its own, for each number of OSD hosts (and a tenth as many clients):
plan: the file is read, and every cell and step planned; check: what the hosts must have is asked of
all of them and judged, over a stand-in that answers at once; deploy: the scripts that LUKS and the
secure messenger send to hosts; report: an archive with the samples of every node is read and
reported. Printed are seconds of processor time, the memory that the stage needs beyond an empty
Python, and the longest script for one host, which must not know how many others there are.

Exit status 1 where time or memory grows by more than the nodes do, with a fifth for chance, or a
host's script becomes longer.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Optional

import yaml
from rich.console import Console
from rich.table import Table
from synthetic_archive import Load, SyntheticCampaign, SyntheticScenario, write_archive

from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.hosts.remote import FRAME, Remote
from cbt_crypto.plan.file import read_campaign
from cbt_crypto.plan.layout import site_of
from cbt_crypto.plan.order import cells_of
from cbt_crypto.plan.steps import plan
from cbt_crypto.report.build import build
from cbt_crypto.report.terminal import show
from cbt_crypto.run.preflight.check import checks
from cbt_crypto.run.preflight.survey import survey

#: What chance may add to a ratio.
_CHANCE = 1.2
#: Memory and time below these are those of Python itself.
_LEAST_MIB, _LEAST_S = 16.0, 0.5
OSDS_PER_HOST = 8
LOADS = {"op_size": [4096, 65536, 1 << 20], "mode": ["randread", "randwrite"]}


def campaign_file(nodes: int, directory: Path) -> Path:
    """The article's configurations on hosts that do not exist."""
    cluster = {
        "head": "n-head",
        "clients": [f"n-client{number}" for number in range(max(nodes // 10, 1))],
        "osds": [f"n-osd{number}" for number in range(nodes)],
        "mons": {f"n-mon{number}": {f"m{number}": f"10.0.0.{number}"} for number in (1, 2, 3)},
        "mgrs": {"n-mon1": {"x": None}},
        "osds_per_node": OSDS_PER_HOST,
        "iterations": 3,
        "rebuild": "needed",
        "configurations": {
            "plain": {},
            "LUKS": {"luks": {}},
            "secure": {"secure_messenger": {}},
            "both": {"luks": {}, "secure_messenger": {}},
        },
    }
    path = directory / f"nodes{nodes}.yaml"
    loads = {"rbd_multi_client": {"time": 60, **LOADS}}
    path.write_text(yaml.safe_dump({"cluster": cluster, "benchmarks": loads}))
    return path


class Answers:
    """In an engine's place: every host does what it is told, at once, and says nothing."""

    def __init__(self) -> None:
        """Nothing was sent yet."""
        self.longest = 0
        self._text = ""

    def pdsh_each(self, commands: Mapping[str, str]) -> Answers:
        """Note how long the commands are."""
        self.longest = max(self.longest, *map(len, commands.values()))
        mark = re.findall(FRAME + "[0-9a-f]+", next(iter(commands.values())))[0]
        self._text = "".join(f"{host}: {mark} begin\n{host}: {mark} 0\n" for host in commands)
        return self

    timed_out = False

    def communicate(self, timeout: Optional[float] = None) -> tuple[str, str]:
        """What all hosts said."""
        return self._text, ""

    def _refuse(self, *of: object) -> None:
        raise NotImplementedError

    sync_files = make_remote_dir = clean_remote_dir = _refuse


def plan_stage(nodes: int, directory: Path) -> int:
    """Steps of the whole campaign."""

    return 0 if plan(read_campaign(campaign_file(nodes, directory))).steps else 1


def check_stage(nodes: int, directory: Path) -> int:
    """Ask all hosts for what every configuration needs; the longest script of one host."""

    campaign = read_campaign(campaign_file(nodes, directory))
    stacks = [Stack(overlays) for overlays in campaign.configurations.values()]
    wanted = checks(campaign, cells_of(campaign), stacks)
    answers = Answers()
    survey(Remote(answers, campaign.cluster.tmp_dir), site_of(campaign.cluster).hosts, wanted)
    return answers.longest


def deploy_stage(nodes: int, directory: Path) -> int:
    """The longest script for one host of those that overlays send."""

    campaign = read_campaign(campaign_file(nodes, directory))
    site, answers = site_of(campaign.cluster), Answers()
    remote = Remote(answers, campaign.cluster.tmp_dir)
    stack = Stack(campaign.configurations["both"])
    for scripts in (stack.before_osds(site), stack.after_osds(site)):
        remote.run(scripts, "deploy")
    return answers.longest


def report_stage(nodes: int, directory: Path) -> int:
    """Report an archive in which every node was sampled."""

    show(build(directory / f"archive{nodes}"), Console(file=io.StringIO(), width=200))
    return 0


STAGES: dict[str, Callable[[int, Path], int]] = {
    "plan": plan_stage,
    "check": check_stage,
    "deploy": deploy_stage,
    "report": report_stage,
}


def archive(nodes: int, directory: Path) -> None:
    """Two configurations under one workload, sampled on all nodes."""
    written = SyntheticCampaign(
        scenarios=[SyntheticScenario("rbd_multi_client", max(nodes // 10, 1), 1, (4096,))],
        configurations=["plain", "LUKS"],
        load=lambda cell: Load(10_000.0 if cell.configuration == "plain" else 9000.0, 5.0),
        seconds=10,
        ramp=0,
        osd_hosts=nodes,
        threads=8,
        processes_per_host=4,
    )
    write_archive(written, directory / f"archive{nodes}")


def measured(stage: str, nodes: int, directory: Path) -> dict[str, float]:
    """Processor seconds, MiB and the longest script of a stage, in a process of its own."""
    words = [sys.executable, __file__, "--stage", stage, "--in", str(directory), "--nodes"]
    done = subprocess.run([*words, str(nodes)], check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def run_stage(stage: str, nodes: int, directory: Path) -> None:
    """One stage, here; print what it took."""
    longest = STAGES[stage](nodes, directory)
    sides = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = sum(side.ru_utime + side.ru_stime for side in sides)
    mib = max(side.ru_maxrss for side in sides) / 1024
    print(json.dumps({"seconds": seconds, "mib": mib, "script": longest}))


def main() -> int:
    """Print every stage for every number of nodes; 1 where one grows too fast."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    parser.add_argument("--in", dest="directory", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stage:
        run_stage(options.stage, options.nodes[0], options.directory)
        return 0
    table = Table("stage", "nodes", "processor time", "memory", "longest script", box=None)
    with tempfile.TemporaryDirectory(prefix="thousand-nodes-") as name:
        directory = Path(name)
        for nodes in options.nodes:
            archive(nodes, directory)
        found = {
            stage: {nodes: measured(stage, nodes, directory) for nodes in (1, *options.nodes)}
            for stage in STAGES
            if stage != "report"
        }
        archive(1, directory)
        found["report"] = {
            nodes: measured("report", nodes, directory) for nodes in (1, *options.nodes)
        }
    wrong = [sentence for stage, taken in found.items() for sentence in _grown(stage, taken)]
    for stage, by_nodes in found.items():
        for nodes, one in by_nodes.items():
            _row(table, stage, nodes, one)
    Console(width=100).print(table)
    print("\n".join(wrong) if wrong else "Nothing grows faster than the nodes.")
    return 1 if wrong else 0


def _row(table: Table, stage: str, nodes: int, one: Mapping[str, Any]) -> None:
    script = f"{one['script']:.0f} bytes" if one["script"] else ""
    row = (stage, f"{nodes:,}", f"{one['seconds']:.1f} s", f"{one['mib']:.0f} MiB", script)
    table.add_row(*row)


def _grown(stage: str, taken: Mapping[int, Mapping[str, float]]) -> list[str]:
    """What grows faster than the nodes, beyond what one node takes."""
    one, *sizes = taken
    few, many = min(sizes), max(sizes)
    wrong = []
    for key, least in (("seconds", _LEAST_S), ("mib", _LEAST_MIB)):
        small, large = (max(taken[n][key] - taken[one][key], least) for n in (few, many))
        if large / small > _CHANCE * many / few:
            wrong.append(f"{stage}: {key} grow {large / small:.1f} times for {many / few:g}")
    if taken[many]["script"] > _CHANCE * taken[few]["script"]:
        wrong.append(f"{stage}: a host's script grows with the nodes")
    return wrong


if __name__ == "__main__":
    sys.exit(main())

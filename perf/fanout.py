"""How many pdsh and pdcp calls one deployment takes, for clusters of very different sizes.

    python perf/fanout.py [--osd-hosts 2 20 200]

Nothing leaves this machine: programs that note how they were called take the place of pdsh, pdcp
and ssh. The deployment is that of a configuration with LUKS and the secure messenger, eight OSDs a
host, from an empty host to prefilled volumes and back. Exits with 1 unless the numbers are the same
for all sizes.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import yaml
from rich.console import Console
from rich.table import Table

from cbt_crypto.engine.choice import embedded
from cbt_crypto.plan.file import read_campaign
from cbt_crypto.plan.steps import Measure, plan
from cbt_crypto.run.campaign import run_campaign
from cbt_crypto.run.progress import CampaignProgress

SIZES = (2, 20, 200)
OSDS_PER_HOST = 8
PROGRAMS = ("pdsh", "pdcp")

#: Starts what pdsh's exec module would start, for all hosts at once.
_PDSH = """\
import os, subprocess, sys
with open(os.environ["FANOUT_LOG"], "a") as log:
    log.write("pdsh\\n")
hosts, command = sys.argv[sys.argv.index("-w") + 1].split(","), sys.argv[sys.argv.index("-w") + 2:]
started = [subprocess.Popen([word.replace("%h", host) for word in command]) for host in hosts]
sys.exit(max(process.wait() for process in started))
"""
#: A host on which everything succeeds, and which makes a key when it is asked for one.
_SSH = (
    "script=$(cat)\n"
    "mark=$(printf %s \"$script\" | grep -o '@cbt-crypto-answer-[0-9a-f]*' | head -n 1)\n"
    'echo "$mark begin"\n'
    'case "$script" in *gen-print-key*) echo AQAhTwJrhpn1DRAA9jO1pPCjO4UjDjYZ3Ea7bQ== ;; esac\n'
    "paths=$(printf %s \"$script\" | sed -n 's/^prove identify //p'); comma='{'\n"
    'for path in $paths; do printf \'%s"%s": {"size": "1"}\' "$comma" "$path"; comma=,; done\n'
    '[ -z "$paths" ] || echo "}"\n'
    'echo; echo "$mark 0"'
)
_PDCP = 'echo pdcp >> "$FANOUT_LOG"'


def calls(osd_hosts: int, directory: Path) -> Counter[str]:
    """Program -> the number of its calls for one deployment on so many hosts."""
    log = directory / f"calls.{osd_hosts}"
    os.environ["FANOUT_LOG"] = str(log)
    deploy_and_remove(campaign_file(osd_hosts, directory))
    return Counter(log.read_text().split())


def campaign_file(osd_hosts: int, directory: Path) -> Path:
    """A campaign of one configuration, on hosts that do not exist."""
    cluster = {
        "head": "fanout-head",
        "clients": [f"fanout-client{number}" for number in range(5)],
        "osds": [f"fanout-osd{number}" for number in range(osd_hosts)],
        "mons": {f"fanout-mon{number}": {f"m{number}": f"10.0.0.{number}"} for number in (1, 2, 3)},
        "mgrs": {"fanout-mon1": {"x": None}},
        "osds_per_node": OSDS_PER_HOST,
        "configurations": {"LUKS + secure messenger": {"luks": {}, "secure_messenger": {}}},
    }
    path = directory / f"hosts{osd_hosts}.yaml"
    path.write_text(yaml.safe_dump({"cluster": cluster, "benchmarks": {"rbd_multi_client": {}}}))
    return path


def deploy_and_remove(path: Path) -> None:
    """What a campaign does around its cells. Raises what ended it early."""
    todo = plan(read_campaign(path))
    steps = tuple(step for step in todo.steps if not isinstance(step, Measure))
    with (path.parent / "progress").open("w") as silent:
        progress = CampaignProgress(Console(file=silent), cells=0, seconds=0)
        archive = path.with_suffix(".archive")
        outcome = run_campaign(replace(todo, steps=steps), embedded(), archive, path, progress)
    if outcome.error is not None:
        raise outcome.error


def put_programs_in_path(directory: Path) -> None:
    """Programs that note their calls, before those of the machine."""
    texts = {
        "pdsh": f"#!{sys.executable} -IS\n{_PDSH}",
        "pdcp": f"#!/bin/sh\n{_PDCP}\n",
        "ssh": f"#!/bin/sh\n{_SSH}\n",
    }
    for name, text in texts.items():
        path = directory / name
        path.write_text(text)
        path.chmod(0o755)
    os.environ["PATH"] = f"{directory}{os.pathsep}{os.environ['PATH']}"


def show(counted: dict[int, Counter[str]]) -> None:
    """One row a size."""
    table = Table(title="calls of one deployment", title_justify="left", box=None)
    for column in ("OSD hosts", "OSDs", *PROGRAMS):
        table.add_column(column, justify="right")
    for size, found in counted.items():
        numbers = (size, size * OSDS_PER_HOST, *(found[program] for program in PROGRAMS))
        table.add_row(*(f"{number:,}" for number in numbers))
    Console().print(table)


def main() -> int:
    """Count, print, and say by the exit status whether the numbers are the same."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--osd-hosts", type=int, nargs="+", default=SIZES, metavar="N")
    sizes = parser.parse_args().osd_hosts
    with tempfile.TemporaryDirectory(prefix="fanout-") as scratch:
        directory = Path(scratch)
        put_programs_in_path(directory)
        counted = {size: calls(size, directory) for size in sizes}
    show(counted)
    return 0 if len({tuple(sorted(found.items())) for found in counted.values()}) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())

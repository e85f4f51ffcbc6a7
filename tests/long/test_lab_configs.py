"""The lab versions of the published experiments, by the commands that each file says of itself."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cbt_crypto.lab import access, lifecycle, run
from cbt_crypto.lab.shape import Lab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(3600)]

CONFIGS = Path(__file__).parents[2] / "configs" / "lab"
#: The files of the published experiments, and of questions that labs ask; sync_writes is two, as
#: one part of it needs no Ceph.
FILES = (
    "as_deployed",
    "builds",
    "erasure_coding",
    "hci_tuning",
    "kbench_ext4",
    "luks_raw_device",
    "network_overhead",
    "recovery",
    "response_curves",
    "sync_writes",
    "sync_writes_ceph",
    "three_places",
    "tunnels",
    "where_to_encrypt",
)
_NAMED = re.compile(r"--name \S+")


def commands(config: Path, name: str, archive: Path) -> list[list[str]]:
    """The two commands of a file's own comment, for a lab of another name and another archive."""
    found = re.findall(r"^#\s+cbt-crypto (lab (?:up|run) .*)$", config.read_text(), re.MULTILINE)
    assert [text.split()[1] for text in found] == ["up", "run"]
    words = [shlex.split(f"{_NAMED.sub('', text)} --name {name}") for text in found]
    words[1][words[1].index("archive")] = str(archive)
    return words


@dataclass(frozen=True)
class Ran:
    """A campaign that has ended: what it printed, and its archive."""

    name: str
    status: int
    output: str
    archive: Path

    def documents(self, name: str) -> list[dict[str, Any]]:
        paths = sorted(self.archive.glob(f"results/0*/id-*/{name}"))
        return [json.loads(path.read_text()) for path in paths]


def _put_etcd_benchmark(lab: Lab, tool: str) -> None:
    run.put(lab, lab.head, "/root/etcd", {"benchmark": Path(tool)})
    access.run(lab, lab.head, "ln -s /root/etcd/benchmark /usr/local/bin/benchmark")


def _cbt_crypto(words: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cbt_crypto", *words]
    return subprocess.run(
        command, cwd=CONFIGS.parents[1], capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module", params=FILES)
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    file = str(request.param)
    name = f"{file.replace('_', '-')}-{os.getpid()}"
    archive = tmp_path_factory.mktemp(file) / "archive"
    up, run = commands(CONFIGS / f"{file}.yaml", name, archive)
    try:
        done = _cbt_crypto(up)
        assert done.returncode == 0, done.stdout + done.stderr
        if file == "sync_writes":
            _put_etcd_benchmark(lifecycle.running(name), request.getfixturevalue("etcd_benchmark"))
        done = _cbt_crypto(run)
        yield Ran(file, done.returncode, done.stdout + done.stderr, archive)
    finally:
        lifecycle.down(name)


def test_every_cell_is_measured_and_proved(ran: Ran) -> None:
    assert ran.status == 0, ran.output
    planned = json.loads((ran.archive / "results" / "plan.json").read_text())["cells"]
    cells = ran.documents("cell.json")
    assert len(cells) == len(planned) > 0
    assert {cell["state"] for cell in cells} == {"finished"}
    proofs = ran.documents("proof.json")
    assert len(proofs) == len(cells)
    assert all(proof["proved"] for proof in proofs)


def test_it_ends_in_tables_and_charts(ran: Ran, report_cells: Any) -> None:
    assert " as percent of " in ran.output
    assert (ran.archive / "report.html").stat().st_size > 0
    assert list((ran.archive / "charts").glob("*.svg"))
    cells = report_cells(ran.archive)
    assert {cell["state"] for cell in cells} == {"measured"}
    assert {cell["name"] for cell in cells if cell["is_baseline"]}


def test_rates_are_kept_within_two_percent(ran: Ran) -> None:
    """By fio's own words."""
    told = 0
    for path in ran.archive.glob("results/0*/id-*/cell.json"):
        cell = json.loads(path.read_text())
        if cell.get("rate_iops"):
            texts = [path.with_name(one["json"]).read_text() for one in cell["processes"]]
            outputs = [json.loads(text[text.index("{") :]) for text in texts]
            jobs = [job for output in outputs for job in output["jobs"]]
            done = sum(job["read"]["iops"] + job["write"]["iops"] for job in jobs)
            assert done == pytest.approx(cell["rate_iops"], rel=0.02)
            told += 1
    # Reads and writes at half of what they can do, of two configurations and the control.
    assert told == (2 * 3 if ran.name == "response_curves" else 0)

"""LUKS with and without flags, in turns on one deployment in a virtual machine, proved always."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from luks_campaigns import cells, run_campaign, steps
from real_labs import running_lab

from cbt_crypto.lab.shape import Kind, Shape

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1800)]

NAME = f"luks-turns-{os.getpid()}"
SHAPE = Shape(kind=Kind.VM, nodes=1, disks=2, disk_size=2**31, memory=5 * 2**29, cpus=2)
FLAGS = {
    "LUKS": set(),
    "LUKS, submit_from_crypt_cpus": {"submit_from_crypt_cpus"},
    "LUKS, no workqueues": {"no_read_workqueue", "no_write_workqueue"},
}
ROUNDS = 2


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """The archive, and what was printed."""
    archive = tmp_path_factory.mktemp("luks-turns") / "archive"
    configurations = {
        name: {"luks": dict.fromkeys(sorted(flags), True)} for name, flags in FLAGS.items()
    }
    with running_lab(NAME, SHAPE):
        printed = run_campaign(
            NAME, archive, settings={"osd_memory_target": "900M"}, rebuild="needed",
            order="interleaved", iterations=ROUNDS, configurations=configurations,
        )  # fmt: skip
        yield archive, printed


def test_it_deploys_once_and_prefills_once(ran: tuple[Path, str]) -> None:
    archive, printed = ran
    kinds = steps(archive)
    assert kinds.count(("deploy", "rebuild")) == 1
    assert kinds.count(("prefill", None)) == 1
    assert kinds.count(("deploy", "restart")) == 0
    assert kinds.count(("deploy", "live")) >= ROUNDS * (len(FLAGS) - 1)
    assert printed.count("prefill ") == 1


def test_every_block_proves_its_flags_before_and_after(ran: tuple[Path, str]) -> None:
    measured = cells(ran[0])
    assert len(measured) == ROUNDS * len(FLAGS)
    assert len({cell["deployment"] for cell in measured}) == 1
    for cell in measured:
        assert cell["state"] == "finished"
        proof = next(o for o in cell["proof"]["overlays"] if o["overlay"] == "luks")
        assert proof["proved"], proof["reason"]
        shown = json.dumps(proof["evidence"])
        wanted = FLAGS[cell["configuration"]]
        for flag in set().union(*FLAGS.values()):
            assert (flag in shown) is (flag in wanted), (cell["configuration"], shown)


def test_each_round_is_in_an_order_of_its_own(ran: tuple[Path, str]) -> None:
    measured = cells(ran[0])
    rounds = [
        [cell["configuration"] for cell in measured if cell["iteration"] == turn]
        for turn in range(ROUNDS)
    ]
    assert [cell["iteration"] for cell in measured] == sorted(
        cell["iteration"] for cell in measured
    )
    assert all(sorted(order) == sorted(FLAGS) for order in rounds)

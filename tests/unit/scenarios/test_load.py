"""Load that is given for all processes together: total_iodepth and rate."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from cbt_crypto.benchmarks import base
from cbt_crypto.benchmarks.base import ClusterCommands
from cbt_crypto.benchmarks.rbd import RbdMultiClient
from cbt_crypto.hosts.site import Site

pytestmark = pytest.mark.unit

COMMANDS = ClusterCommands(ceph="ceph", rbd="rbd", environment="env")
SITE = Site(tmp_dir="/t", conf="/t/c", head="a", clients=("a", "b"), osds=(), mons=(), mgrs=())


def _options(name: str, **options: Any) -> Mapping[str, list[str]]:
    """The values of one of fio's options on each host, process by process."""
    scenario = RbdMultiClient.model_validate({"configuration": "x", **options})
    texts = scenario.measure(SITE, "/run", COMMANDS, lambda host, command: command)
    return {host: re.findall(rf"--{name}=(\S+)", text) for host, text in texts.items()}


@pytest.mark.parametrize(
    ("total", "volumes", "expected"),
    [
        # CBT's own rule: the remainder to the first, and fewer volumes than there are
        (8, 4, (2, 2, 2, 2)),
        (10, 4, (3, 3, 2, 2)),
        (3, 4, (1, 1, 1)),
        (1, 4, (1,)),
        (None, 3, (7, 7, 7)),
    ],
)
def test_depths(total: Any, volumes: int, expected: tuple[int, ...]) -> None:
    assert base.depths(total, 7, volumes) == expected


def test_a_total_depth_reaches_fio_on_each_client() -> None:
    options = {"volumes_per_client": 4, "total_iodepth": 6}
    assert _options("iodepth", **options) == {"a": ["2", "2", "1", "1"], "b": ["2", "2", "1", "1"]}
    few = {"volumes_per_client": 4, "total_iodepth": 3}
    assert _options("iodepth", **few) == {"a": ["1", "1", "1"], "b": ["1", "1", "1"]}
    scenario = RbdMultiClient.model_validate({"configuration": "x", **few})
    assert [p.volume for p in scenario.processes(SITE)] == ["0", "1", "2"] * 2
    assert len(scenario.volumes(SITE)) == 8


def test_a_rate_is_that_of_all_processes_together() -> None:
    options = {"volumes_per_client": 2, "rate": 4000}
    assert _options("rate_iops", **options) == {"a": ["1000"] * 2, "b": ["1000"] * 2}
    jobs = {**options, "numjobs": 4}
    assert _options("rate_iops", **jobs) == {"a": ["250"] * 2, "b": ["250"] * 2}
    mixed = {**options, "mode": "randrw", "rwmixread": 70}
    assert _options("rate_iops", **mixed) == {"a": ["700,300"] * 2, "b": ["700,300"] * 2}


@pytest.mark.parametrize("rate", ["max", "50%"])
def test_without_iops_fio_is_told_no_rate(rate: str) -> None:
    assert _options("rate_iops", rate=rate) == {"a": [], "b": []}


@pytest.mark.parametrize("rate", ["0%", "101%", "50", 0, -1, "half", "1e3%", "5 %"])
def test_rates_that_make_no_sense(rate: Any) -> None:
    with pytest.raises(ValidationError):
        RbdMultiClient.model_validate({"configuration": "x", "rate": rate})


@pytest.mark.parametrize(("rate", "share"), [("50%", 0.5), ("2.5%", 0.025), ("100%", 1.0)])
def test_shares(rate: str, share: float) -> None:
    assert base.share_of(rate) == share
    RbdMultiClient.model_validate({"configuration": "x", "rate": rate})


def test_no_share() -> None:
    assert base.share_of("max") is None
    assert base.share_of(100) is None

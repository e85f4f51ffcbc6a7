"""Which figures decide that a percent is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import pytest

from cbt_crypto.archive.files import write_json
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.order import Pacing
from cbt_crypto.plan.steps import plan

pytestmark = pytest.mark.unit

TIME = {"precision": "5%", "min": 30, "max": 300, "block": 10}


def _is_known(campaign: Campaign, archive: Path, **figures: Callable[[int], float]) -> bool:
    """After eight pairs of turns with such figures, as functions of the turn."""
    cells = plan(campaign).to_measure
    pacing = Pacing(campaign, cells, archive, ())
    for cell in cells:
        if cell.iteration < 8:
            level = 1.0 if cell.configuration == "A" else 0.8
            block = {key: {"read": level * of(cell.iteration)} for key, of in figures.items()}
            # The baseline is as steady as can be.
            if cell.configuration == "A":
                block = {key: {"read": 1000.0} for key in figures}
            pacing.note(cell, {"deployment": "d", "block": {"warmup_s": 2.0, **block}})
    (eighth,) = (c for c in cells if c.iteration == 8 and c.configuration == "B")
    return pacing.is_settled(eighth)


def _steady(turn: int) -> float:
    return 1000.0


def _wild(turn: int) -> float:
    return 1000.0 * 1.5 ** (turn % 2)


@pytest.mark.parametrize(
    ("load", "iops", "latency", "known"),
    [
        ({}, _steady, _wild, True),
        ({}, _wild, _steady, False),
        ({"metrics": ["clat_ns_mean"]}, _steady, _wild, False),
        ({"metrics": ["clat_ns_mean"]}, _wild, _steady, True),
        ({"metrics": ["iops", "clat_ns_mean"]}, _wild, _steady, False),
        # At a rate the file sets the IOPS, and their percent says nothing.
        ({"rate": 1000}, _steady, _wild, False),
        ({"rate": 1000}, _steady, _steady, True),
        ({"rate": 1000, "metrics": ["iops"]}, _steady, _wild, True),
    ],
)
def test_the_figures_that_decide(
    campaign_of: Callable[..., Campaign], tmp_path: Path, load: dict[str, Any],
    iops: Callable[[int], float], latency: Callable[[int], float], known: bool,
) -> None:  # fmt: skip
    campaign = _campaign(campaign_of, dict(load))
    assert _is_known(campaign, tmp_path, iops=iops, clat_ns_mean=latency) is known


def test_a_figure_that_no_log_has_is_not_known(
    campaign_of: Callable[..., Campaign], tmp_path: Path
) -> None:
    """That the IOPS are says nothing of the latency."""
    both = _campaign(campaign_of, {"metrics": ["iops", "clat_ns_mean"]})
    assert not _is_known(both, tmp_path, iops=_steady)


def _campaign(campaign_of: Callable[..., Campaign], load: dict[str, Any]) -> Campaign:
    section = {
        "configurations": {"A": {}, "B": {"live": {"value": 1}}},
        "rebuild": "needed",
        "order": "interleaved",
    }
    metrics = {key: load.pop(key) for key in ("metrics",) if key in load}
    benchmark = {"time": {**TIME, **metrics}, "vol_size": 50, "op_size": 4096, **load}
    return campaign_of(cluster=section, benchmarks={"rbd_single_client": benchmark})


@pytest.mark.parametrize(
    "forged",
    [
        {"block": 5}, {"block": {"iops": 5}}, {"block": {"iops": {"read": "fast"}}},
        {"block": {"iops": {"read": [1]}}}, {"slices": "all"}, {"deployment": [1]},
    ],
)  # fmt: skip
def test_a_cell_that_somebody_else_wrote(
    campaign_of: Callable[..., Campaign], tmp_path: Path, forged: dict[str, Any]
) -> None:
    """`plan` and `run` on somebody's archive ended in a traceback, or blamed the hosts."""
    campaign = _campaign(campaign_of, {})
    cells = plan(campaign).to_measure
    for cell in cells:
        told = {"id": cell.id, "scenario": cell.scenario.name, "state": "finished",
                "configuration": cell.configuration, "deployment": "d",
                "block": {"iops": {"read": 1000.0}}}  # fmt: skip
        write_json(tmp_path / cell.path / "cell.json", {**told, **forged})
    pacing = Pacing(campaign, cells, tmp_path, {cell.path for cell in cells})
    assert pacing.settled() == set()

"""A level that moved inside a cell: said in every form of a report, and rarely without reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import steadiness as trial

from cbt_crypto.report import build
from cbt_crypto.report.document import document
from cbt_crypto.report.figures.doubts import (
    FEWEST_SECONDS,
    change_of,
    largest_shift,
    steadiness_sentences,
)
from cbt_crypto.report.markdown import markdown
from cbt_crypto.report.page import page

pytestmark = pytest.mark.unit


def test_a_shift_and_a_trend_are_told_apart() -> None:
    noise = np.random.default_rng(1).normal(0, 20, 60)
    falls = np.r_[np.full(20, 1000.0), np.full(40, 850.0)] + noise
    rises = np.linspace(1000, 1200, 60) + noise
    (said,) = steadiness_sentences(falls)
    assert said.startswith("throughput fell by 15 % after 20 of 60 s")
    (said,) = steadiness_sentences(rises)
    assert said.startswith("throughput rose by 20 % over the 60 s")


@pytest.mark.parametrize(
    "series",
    [
        np.full(60, 1000.0),
        np.zeros(60),
        np.r_[np.full(30, 1000.0), np.full(30, 970.0)],
        np.r_[np.full(10, 1000.0), np.full(10, 500.0)],
        np.r_[np.zeros(59), 1.0],
    ],
    ids=["constant", "nothing", "too little to matter", "too short", "no level before"],
)
def test_nothing_is_said_of_it(series: Any) -> None:
    assert list(steadiness_sentences(series)) == []


def test_a_shift_without_any_noise_is_found_where_it_is() -> None:
    found = change_of(np.r_[np.full(25, 1000.0), np.full(35, 700.0)])
    assert found is not None
    assert found.after_s == 25
    assert found.share == pytest.approx(-0.3)


def test_the_statistic_is_the_papers() -> None:
    """Shao and Zhang 2010, table 1, q = 1: 29.6, 40.1 and 52.2 at 90, 95 and 97.5 %."""
    random = np.random.default_rng(7)
    drawn = [largest_shift(random.standard_normal(300))[0] for _ in range(3000)]
    for percent, published in ((90, 29.6), (95, 40.1), (97.5, 52.2)):
        exceeded = 100 * np.mean(np.array(drawn) > published)
        assert exceeded == pytest.approx(100 - percent, abs=1.6 if percent == 90 else 1.2)


@pytest.mark.parametrize("length", trial.LENGTHS_S)
def test_noise_is_taken_for_a_change_as_rarely_as_the_manual_says(length: int) -> None:
    for name, most in (
        ("seconds alone, 10 %", 2), ("AR(1) 0.5, 3 %", 2), ("AR(1) 0.5, 10 %", 4),
    ):  # fmt: skip
        assert trial.percent(trial.rows()[name], length, 100, 2) <= most, name


def test_changes_of_a_tenth_are_seen_in_a_quiet_minute() -> None:
    for name in trial.CHANGES:
        assert trial.percent(trial.rows()[f"{name} in seconds alone, 3 %"], 60, 50, 2) >= 90, name


def moved(root: Path, cell: str) -> None:
    """The first half of a cell's IOPS a tenth over the mean, the second as much below it."""
    for log in (root / cell).glob("output.*_iops.*"):
        lines = [line.split(", ") for line in log.read_text().splitlines()]
        for number, fields in enumerate(lines):
            factor = 1.1 if number < len(lines) / 2 else 0.9
            fields[1] = str(round(int(fields[1]) * factor))
        log.write_text("".join(", ".join(fields) + "\n" for fields in lines))


@pytest.fixture
def minute(tmp_path: Path, synthetic: Any) -> Callable[[], Path]:
    shape = synthetic.SyntheticScenario("rbd_multi_client", 2, 1, (4096,), ("randwrite",))
    campaign = synthetic.SyntheticCampaign(
        [shape], ["Unencrypted", "LUKS"], lambda cell: synthetic.Load(1000.0, 2.0), seconds=60
    )
    return lambda: Path(synthetic.write_archive(campaign, tmp_path / "archive"))


def test_every_output_says_it_and_no_verdict_changes(minute: Callable[[], Path]) -> None:
    root = minute()
    before = build(root)
    assert not any(cell.warnings for cell in before.cells)
    moved(root, "results/00000000/id-00000001")
    built = build(root)
    plain, luks = built.cells
    assert plain.warnings == ()
    (warning,) = luks.warnings
    assert warning.startswith("throughput fell by 18 % after 30 of 60 s")
    for text in (markdown(built), page(built), str(document(built))):
        assert "throughput fell by 18 % after 30 of 60 s" in text
    assert [c.comparisons["iops"].differs for c in built.cells] == [
        c.comparisons["iops"].differs for c in before.cells
    ]


def test_a_short_block_is_not_judged() -> None:
    assert FEWEST_SECONDS == 30
    assert change_of(np.r_[np.full(5, 1000.0), np.full(5, 1.0)]) is None

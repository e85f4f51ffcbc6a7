"""Time left: known from the first second, and learned from the steps that were taken."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cbt_crypto.archive.files import read_json, write_json
from cbt_crypto.plan.file import read_campaign
from cbt_crypto.plan.predict import Durations, Forecast, Left
from cbt_crypto.plan.steps import Measure, plan
from cbt_crypto.run.progress import CampaignProgress

pytestmark = pytest.mark.unit


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def steps(write_campaign: Callable[..., Path]) -> Any:
    load_of = {
        "time": 100,
        "ramp": 10,
        "vol_size": 100,
        "workloads": {"mode": ["randread", "read"]},
    }
    return plan(read_campaign(write_campaign(benchmarks={"rbd_single_client": load_of})))


def test_from_the_first_second(steps: Any, tmp_path: Path) -> None:
    found = Forecast(steps, tmp_path, Clock()).left()
    assert 220 < found.seconds < 320, "two cells of 110 s, a deployment and a prefill"
    assert 0 < found.uncertainty < 50, "what the file does not say is guessed"


def test_it_counts_down_and_waits_for_a_step_that_takes_longer(steps: Any, tmp_path: Path) -> None:
    clock_of = Clock()
    forecast = Forecast(steps, tmp_path, clock_of)
    first = forecast.left().seconds
    clock_of.now = 30
    assert forecast.left().seconds == pytest.approx(first - 30)
    clock_of.now = 10_000
    late = forecast.left().seconds
    assert 100 < late < 130, "the second cell is still to come"
    forecast.cell_done()
    assert forecast.left().seconds == pytest.approx(late)
    forecast.cell_done()
    assert forecast.left() == Left(0, 0)
    forecast.cell_done()


def test_a_cell_costs_no_look_at_the_steps_that_are_left(
    steps: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 3,000 cells, each took 15 ms to sum all that were left, and 0.04 without."""
    forecast = Forecast(steps, tmp_path, Clock())
    monkeypatch.setattr(Durations, "of", lambda self, step: pytest.fail("looks at a step"))
    forecast.cell_done()
    assert 100 < forecast.left().seconds < 130


def test_what_was_seen_replaces_the_guess(steps: Any, tmp_path: Path) -> None:
    guessed = Forecast(steps, tmp_path, Clock()).left()
    (tmp_path / "results").mkdir()
    seen = [{"step": "deploy", "how": "rebuild", "seconds": s} for s in (600, 610, 605)]
    write_json(tmp_path / "results/timeline.json", {"steps": seen})
    found = Forecast(steps, tmp_path, Clock()).left()
    assert found.seconds == pytest.approx(guessed.seconds - 30 + 605)
    assert found.uncertainty / 605 < 0.25


def test_the_first_deployment_is_learned_from_before_its_cell_is_done(
    steps: Any, tmp_path: Path
) -> None:
    """It may take minutes where a few seconds were guessed, and more of them are to come."""
    (tmp_path / "results").mkdir()
    progress_of = CampaignProgress(
        Console(file=io.StringIO()), 2, 220, Forecast(steps, tmp_path, Clock()), tmp_path
    )
    progress_of.phase("deploy")
    guessed = read_json(tmp_path / "results/progress.json")
    seen = [{"step": "deploy", "how": "rebuild", "seconds": 600}]
    write_json(tmp_path / "results/timeline.json", {"steps": seen})
    progress_of.phase("prefill")
    found = read_json(tmp_path / "results/progress.json")
    assert guessed is not None
    assert found is not None
    assert found["seconds_left"] == pytest.approx(guessed["seconds_left"] + 570)


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0:00:00"), (62, "0:01:02"), (3723, "1:02:03"), (97200, "27:00:00")]
)
def test_as_people_read_it(seconds: float, shown: str) -> None:
    assert re.fullmatch(re.escape(shown) + r" left ±\d+ s", str(Left(seconds, 10)))


def test_what_is_known_to_hours_is_a_range_of_hours() -> None:
    """It was `24:00:00 left ±864 min`."""
    assert str(Left(24 * 3600, 864 * 60)) == "24:00:00 left (10 to 38 h)"
    assert str(Left(24 * 3600, 20 * 60)) == "24:00:00 left ±20 min"


def test_pauses_between_visits_are_time_too(write_campaign: Callable[..., Path]) -> None:
    """They were left out, and a campaign in rounds took minutes more than it said."""
    both = {"configurations": {"A": {}, "B": {}}, "iterations": 4, "order": "rounds"}
    rounds = plan(read_campaign(write_campaign(cluster=both)))
    assert rounds.pauses_s > 0
    without = replace(
        rounds,
        steps=tuple(
            replace(step, pause_s=0.0) if isinstance(step, Measure) else step
            for step in rounds.steps
        ),
    )
    with_them, without_them = (Forecast(p, now=Clock()).left() for p in (rounds, without))
    assert with_them.seconds - without_them.seconds == pytest.approx(rounds.pauses_s)


def test_the_rate_of_the_first_filling_counts_until_one_has_ended(
    steps: Any, tmp_path: Path
) -> None:
    forecast = Forecast(steps, tmp_path, Clock())
    guessed = forecast.left().seconds
    forecast.filling(1.0)
    assert forecast.left().seconds == pytest.approx(guessed + 100 - 1, abs=1)
    write_json(
        tmp_path / "results" / "timeline.json",
        {"format": 1, "steps": [{"step": "prefill", "mib": 100, "seconds": 2.0}]},
    )
    forecast.learn()
    assert forecast.left().seconds < guessed + 10

"""How many deployments a precision takes, and what a report says of the time it was to take."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest

from cbt_crypto.archive.folder import Folder
from cbt_crypto.plan import allocation
from cbt_crypto.plan.allocation import Spread, spread_of
from cbt_crypto.report.build import how_it_came_out
from cbt_crypto.results.repetition import FIRST, beside
from cbt_crypto.results.until import MeasureUntil

pytestmark = pytest.mark.unit

UNTIL = MeasureUntil(precision="2%", min=10, max=100_000, block=10)


def _taken(source: random.Random, sigma: float) -> int:
    """The deployments of a campaign that ends as campaigns do, of normal deployments."""
    drawn = [[source.gauss(0, sigma)] for _ in range(FIRST)]
    while beside(drawn).half > UNTIL.half:
        drawn.append([source.gauss(0, sigma)])
    return len(drawn)


def test_eight_campaigns_of_ten_take_as_many_as_predicted() -> None:
    """From an archive of six deployments each, which are as far apart as chance has them."""
    source, inside, trials = random.Random(5), 0, 300
    for _ in range(trials):
        seen = spread_of([[source.gauss(0, 0.015)] for _ in range(6)], 0.0, 10)
        low, usual, high = allocation.needed([seen], UNTIL, 1, 10_000).rounds
        assert low <= usual <= high
        inside += low <= _taken(source, 0.015) <= high
    # Campaigns of four to six deployments take whole ones: more than eight of ten are inside.
    assert 0.72 * trials <= inside <= 0.95 * trials


def test_what_is_out_of_reach_is_said() -> None:
    found = allocation.needed([Spread(0.0, 0.0, 0.01, 3)], UNTIL, 6, 60)
    assert found.rounds[1:] == (60, 60)
    assert found.words.startswith("not ±2%, but about ±7.4 % after 10")
    assert "their spread is unknown" in allocation.needed([], UNTIL, 6, 60).words


def _archive(root: Path, prediction: object, steps: list[tuple[float, float]]) -> Folder:
    (root / "results").mkdir()
    (root / "results" / "prediction.json").write_text(json.dumps(prediction))
    noted = [{"step": "measure", "started": at, "seconds": took} for at, took in steps]
    text = json.dumps({"format": 1, "steps": noted})
    (root / "results" / "timeline.json").write_text(text)
    return Folder(root)


def test_the_report_says_how_it_came_out(tmp_path: Path) -> None:
    predicted = {"format": 1, "like": "pilot", "seconds": 100, "low": 90, "high": 120}
    steps = [(1000.0, 40.0), (1050.0, 50.0), (9000.0, 10.0)]
    folder = _archive(tmp_path, predicted, steps)
    # 40, a pause of 10, 50, and 10 after the campaign stood still
    assert list(how_it_came_out(folder)) == [
        "predicted from pilot: 0:01:40, or 0:01:30 to 0:02:00 with a chance of 80 %; so far "
        "it took 0:01:50"
    ]


def test_it_says_where_it_was_wrong(tmp_path: Path) -> None:
    predicted = {"format": 1, "like": "pilot", "seconds": 10, "low": 9, "high": 12}
    (said,) = how_it_came_out(_archive(tmp_path, predicted, [(5.0, 40.0)]))
    assert said.endswith("it took 0:00:40, outside that range")


@pytest.mark.parametrize("wrong", [{"format": 1}, {"format": 1, "seconds": math.inf}, [1]])
def test_a_prediction_that_somebody_else_wrote_is_a_sentence(tmp_path: Path, wrong: object) -> None:
    (said,) = how_it_came_out(_archive(tmp_path, wrong, [(5.0, 40.0)]))
    assert said.startswith("results/prediction.json ")

"""How long a plan will take, judging by an earlier archive."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any, Callable

import pytest
from rich.console import Console

from cbt_crypto.errors import UsageError
from cbt_crypto.plan.allocation import Seen, Spread
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.predict import Durations, Earlier, predict, rounds_needed
from cbt_crypto.plan.show import show_plan
from cbt_crypto.plan.steps import Measure, plan
from cbt_crypto.results.repetition import FEWEST_PAIRS, boundary
from cbt_crypto.results.until import MARGIN, MeasureUntil
from cbt_crypto.units import about

pytestmark = pytest.mark.unit

TIME = {"precision": "5%", "min": 30, "max": 300, "block": 10}
LIVE = {"A": {}, "B": {"live": {"value": 1}}}
LOAD = {"op_size": 4096, "mode": "randread", "iodepth": 128, "volumes_per_client": 1}


def _cell(archive: Path, name: str, turn: int, iops: float, **more: Any) -> Path:
    directory = archive / "results" / f"{turn:08d}" / f"id-{name}"
    directory.mkdir(parents=True)
    state = {
        "format": 1, "id": f"id-{name}", "state": "finished", "scenario": "rbd_single_client",
        "configuration": name, "iteration": turn, "parameters": LOAD, "deployment": "d",
        "block": {"warmup_s": 0.0, "iops": {"read": iops}}, **more,
    }  # fmt: skip
    (directory / "cell.json").write_text(json.dumps(state))
    return directory


@pytest.fixture
def pilot(tmp_path: Path) -> Path:
    """Four pairs whose log ratios are 0.1 off their mean, up and down, on a cluster that drifts."""
    archive = tmp_path / "pilot"
    for turn in range(4):
        level = 1000 * 1.5**turn
        _cell(archive, "A", turn, level)
        _cell(archive, "B", turn, level * 0.8 * math.exp(0.1 * (-1) ** turn))
    steps = [
        {"step": "deploy", "how": "rebuild", "seconds": 40.0},
        {"step": "prefill", "mib": 100, "seconds": 10.0},
        *({"step": "deploy", "how": "live", "seconds": s} for s in (1.0, 2.0, 30.0)),
        *({"step": "measure", "seconds_measured": 4, "seconds": s} for s in (6.0, 7.0, 8.0)),
    ]
    (archive / "results" / "timeline.json").write_text(json.dumps({"format": 1, "steps": steps}))
    return archive


@pytest.fixture
def campaign(campaign_of: Callable[..., Campaign]) -> Campaign:
    section = {"configurations": LIVE, "rebuild": "needed", "order": "interleaved"}
    load = {"time": TIME, "vol_size": 50, **LOAD}
    return campaign_of(cluster=section, benchmarks={"rbd_single_client": load})


def test_the_spread_is_that_of_the_pairs(pilot: Path, campaign: Campaign) -> None:
    spread = Earlier(pilot).spread(plan(campaign).to_measure[0], 10)
    assert spread == pytest.approx(0.1 * math.sqrt(4 / 3))


def test_the_rounds_are_the_first_that_suffice() -> None:
    until = MeasureUntil(**TIME)
    count = rounds_needed(until, 0.04)
    assert boundary(count) * 0.04 / math.sqrt(count) <= MARGIN * until.half
    assert boundary(count - 1) * 0.04 / math.sqrt(count - 1) > MARGIN * until.half
    # Pairs are never known before there are six; what is alone in its turns is.
    assert rounds_needed(until, 0.0) == FEWEST_PAIRS
    assert rounds_needed(until, 0.0, 1) == 4
    assert rounds_needed(until, 10.0) == until.most


def test_the_time_is_that_of_the_steps_that_are_left(pilot: Path, campaign: Campaign) -> None:
    todo = plan(campaign)
    found = predict(todo, Earlier(pilot))
    changes = sum(step.configuration != "" for step in todo.steps if hasattr(step, "how"))
    # 30 rounds are not enough: two blocks each, of 10 s and the 3 s around a cell
    usual = 40 + 5 + 60 * 13 + (changes - 1) * 2 + todo.pauses_s
    assert found.seconds == pytest.approx(usual)
    assert found.low < found.seconds < found.high
    assert "not +-5%, but about" in next(iter(found.rounds.values()))


@pytest.mark.parametrize("kept", [True, False])
def test_a_ramp_is_counted_once(
    tmp_path: Path, campaign_of: Callable[..., Campaign], kept: bool
) -> None:
    """It stands in the seconds of an archive's step; of an older one nobody knows how much."""
    campaign = campaign_of(benchmarks={"rbd_single_client": {"time": 10, "ramp": 5, **LOAD}})
    about = {"seconds_ramp": 5} if kept else {}
    steps = [{"step": "measure", "seconds_measured": 10, "seconds": 18.0, **about}]
    (step, *_) = [step for step in plan(campaign).steps if isinstance(step, Measure)]
    assert Durations(steps).of(step) == (18 if kept else 23)


def test_seconds_of_single_runs_tell_of_the_spread_where_there_are_no_pairs(
    tmp_path: Path, campaign: Campaign
) -> None:
    archive = tmp_path / "single"
    processes = [{"host": "h", "volume": "0", "json": "json_output.0", "logs": "output.0"}]
    directory = _cell(archive, "A", 0, 1.0, block=None, processes=processes, deployment=None)
    levels = [1000 * math.exp(0.05 * (-1) ** (n // 10)) for n in range(100)]
    lines = "".join(f"{n}000, {level:.0f}, 0, 0\n" for n, level in enumerate(levels))
    (directory / "output.0_iops.1.log.h").write_text(lines)
    spread = Earlier(archive).spread(plan(campaign).to_measure[0], 10)
    assert spread == pytest.approx(0.1, rel=0.02)


def test_what_is_printed(pilot: Path, campaign: Campaign) -> None:
    output = io.StringIO()
    show_plan(plan(campaign), Console(file=output, width=200), pilot)
    text = output.getvalue()
    assert f"Judging by {pilot}, it takes about " in text
    assert "about 40 s" in text
    assert "round 30" in text
    assert "Measuring takes at most 0:10:00" in text


def test_an_archive_that_says_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no measured cell to predict from; name another"):
        Earlier(tmp_path)


_STEPS: list[Any] = [
    {"seconds": "x"}, {"seconds": [1]}, {"seconds": 1e400}, {"seconds": math.nan},
    {"seconds": 1e308}, {"seconds": -1e9}, {"seconds": 5, "seconds_ramp": {"a": 1}},
    {"step": "prefill", "seconds": "1", "mib": "2"},
    {"step": "prefill", "seconds": 1e9, "mib": 1e-300},
]  # fmt: skip
_CELLS: list[dict[str, Any]] = [
    {"block": 5}, {"block": {"iops": 5}}, {"block": {"iops": {"read": "x"}}}, {"parameters": 5},
    {"parameters": {"log_avg_msec": 0}}, {"parameters": {"log_avg_msec": "x"}}, {"processes": 5},
    {"processes": [5]}, {"processes": [{}]},
    {"processes": [{"host": "h", "volume": "0", "json": "/dev/zero", "logs": "/etc"}]},
]  # fmt: skip


@pytest.mark.parametrize("wrong", [*_STEPS, *_CELLS], ids=str)
def test_an_archive_of_a_stranger_s(
    tmp_path: Path, campaign: Campaign, wrong: dict[str, Any]
) -> None:
    """Each ended `plan --like` with a traceback."""
    archive = tmp_path / "theirs"
    _cell(archive, "good", 0, 1000.0)
    _cell(archive, "A", 1, 1000.0, **({**wrong, "deployment": None} if wrong in _CELLS else {}))
    steps = [{"step": "measure", **wrong}] * 3 if wrong in _STEPS else []
    (archive / "results" / "timeline.json").write_text(json.dumps({"format": 1, "steps": steps}))
    output = io.StringIO()
    show_plan(plan(campaign), Console(file=output, width=200), archive)
    assert f"Judging by {archive}, it takes about " in output.getvalue()


def _in_rounds(campaign_of: Callable[..., Campaign], other: dict[str, Any]) -> Campaign:
    section = {
        "configurations": {"A": {}, "B": other},
        "rebuild": "needed",
        "order": "rounds",
        "iterations": 100,
        "control": False,
    }
    modes = {"mode": ["randread", "randwrite", "read"]}
    time = {"precision": "2%", "min": 1, "max": 1000, "block": 10}
    load = {"time": time, "vol_size": 50, **{k: v for k, v in LOAD.items() if k != "mode"}}
    return campaign_of(
        cluster=section, benchmarks={"rbd_single_client": {**load, "workloads": modes}}
    )


def _seen(mode: str, where: str, deviation: float, metric: str = "iops") -> Seen:
    spread = Spread(0.0, 0.0, deviation**2, 10)
    return Seen("rbd_single_client", {**LOAD, "mode": mode}, metric, where, spread)


def test_a_load_is_judged_by_loads_like_it_and_others_by_the_worst(
    campaign_of: Callable[..., Campaign], pilot: Path
) -> None:
    """By hand: Stein's interval is narrow enough after (3.182 s / 0.98 log 1.02) squared."""
    earlier = Earlier(pilot)
    earlier.__dict__["seen"] = [
        _seen("randread", "apart", 0.01),
        _seen("randwrite", "apart", 0.03),
        _seen("randread", "apart", 0.5, metric="clat_ns_mean"),
    ]
    todo = plan(_in_rounds(campaign_of, {"build": {}}))
    found = predict(todo, earlier)
    read, write, other = found.rounds.values()
    assert read.startswith("±2% after about 4 deployments") and "no such workload" not in read
    assert write.startswith("±2% after about 25 deployments") and "no such workload" not in write
    assert other.startswith("±2% after about 25 deployments")
    assert "; no such workload there, so from the noisiest of 2 others" in other
    # Each workload's own rounds: 25 of two deployments, each with the workloads that still go on.
    assert found.deploying == pytest.approx(25 * 2 * 40)
    assert found.filling == pytest.approx(25 * 2 * 5)


def test_deployments_that_serve_both_are_six_at_least_and_what_is_not_known_is_said(
    campaign_of: Callable[..., Campaign], pilot: Path
) -> None:
    earlier = Earlier(pilot)
    earlier.__dict__["seen"] = [_seen("randread", "apart", 0.001)]
    found = predict(plan(_in_rounds(campaign_of, {"live": {"value": 1}})), earlier)
    words = next(iter(found.rounds.values()))
    assert words.startswith("±2% after about 4 deployments")
    assert "no spread there of clusters that serve the baseline and others" in words


def test_small_volumes_say_little_of_how_long_large_ones_take(
    tmp_path: Path, campaign_of: Callable[..., Campaign]
) -> None:
    """By volumes of 32 MiB, filling for 180 h was known to a minute, at a chance of 80 %."""
    archive = tmp_path / "emulated"
    _cell(archive, "A", 0, 1000.0)
    results = archive / "results"
    steps = [{"step": "prefill", "mib": 32, "seconds": s} for s in (3.8, 4.0, 4.0, 4.2)]
    (results / "timeline.json").write_text(json.dumps({"format": 1, "steps": steps}))
    load = {"rbd_single_client": {"time": 10, "vol_size": 1 << 20, **LOAD}}
    todo, earlier = plan(campaign_of(benchmarks=load)), Earlier(archive)
    found = predict(todo, earlier)
    assert found.filling == pytest.approx((1 << 20) / 8)
    for end in (found.low, found.high):
        assert abs(end - found.seconds) == pytest.approx(0.2 * 1.2816 * found.filling, rel=0.01)
    for emulated in (False, True):
        known = {"format": 1, "hosts": {"h": {"emulated": emulated}}}
        (results / "environment.json").write_text(json.dumps(known))
        output = io.StringIO()
        show_plan(todo, Console(file=output, width=200), archive)
        text = output.getvalue()
        assert "it takes about 36 h, 27 h to 46 h with a chance of 80 %;" in text
        assert ("has emulated processors" in text) is emulated


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (40.0, "40 s"), (725.0, "12 min"), (7379.0, "2 h 3 min"), (35970.0, "10 h"),
     (7200.0, "2 h"), (332923.0, "92 h")],
)  # fmt: skip
def test_a_guess_has_few_digits(seconds: float, words: str) -> None:
    assert about(seconds) == words

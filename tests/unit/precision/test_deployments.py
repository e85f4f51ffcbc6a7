"""Deployments are added until a percent is known: the interval stays right, whatever ends it."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from scipy import stats

from cbt_crypto.results import repetition
from cbt_crypto.results.repetition import student
from cbt_crypto.results.until import LoadPace, Measured, MeasureUntil

pytestmark = pytest.mark.unit

UNTIL = MeasureUntil(precision="5%", min=20, max=200, block=10)


def test_student_s_t_is_scipy_s() -> None:
    for degrees in (*range(1, 40), 100, 1000):
        assert student(degrees) == pytest.approx(stats.t.ppf(0.975, degrees), rel=3e-3)


def test_it_is_never_narrower_than_student_s_own() -> None:
    source = random.Random(1)
    for count in (2, 4, 9):
        own = [[source.gauss(0, 0.1)] for _ in range(count)]
        low, high = stats.ttest_1samp([x for (x,) in own], 0).confidence_interval(0.95)
        assert repetition.beside(own).half >= 0.995 * (high - low) / 2


def test_of_more_deployments_the_first_say_how_far_they_are_apart() -> None:
    """Stein's: the variance of the first four, the mean of all nine."""
    values = [0.1, -0.1, 0.1, -0.1, 0.0, 0.0, 0.0, 0.0, 0.0]
    found = repetition.beside([[value] for value in values])
    error = stats.tstd(values[:4]) / math.sqrt(9)
    assert found.half == pytest.approx(stats.t.ppf(0.975, 3) * error, rel=2e-3)


def test_ended_by_width_it_is_right_where_student_s_is_not() -> None:
    """Campaigns of normal deployments which end as soon as they are known to half a deviation."""
    wrong = {"stein": 0, "student": 0}
    source, trials = random.Random(7), 1500
    for _ in range(trials):
        drawn = [source.gauss(0, 1) for _ in range(60)]
        for name in wrong:
            for count in range(repetition.FIRST, 60):
                own = drawn[:count]
                if name == "stein":
                    half = repetition.beside([[value] for value in own]).half
                else:
                    half = student(count - 1) * statistics.stdev(own) / math.sqrt(count)
                if half <= 0.9:
                    break
            wrong[name] += abs(sum(own) / count) > half
    assert wrong["stein"] <= 0.06 * trials
    assert wrong["student"] > 0.07 * trials


def beside(turns: int = 2) -> LoadPace:
    return LoadPace(UNTIL, "A", [["A", "B", "C"]], turns=turns, beside=True)


def measure(load: LoadPace, name: str, levels: list[float], turns: int = 2) -> None:
    for number, level in enumerate(levels):
        for turn in range(turns):
            iops = {"read": 1000 * math.exp(level + 0.001 * turn)}
            load.note(name, number * turns + turn, Measured(f"d{number}", iops))


def test_deployments_that_differ_are_added_and_turns_do_not_help() -> None:
    for turns in (1, 2, 20):
        load = beside(turns)
        measure(load, "A", [0.0] * 4, turns)
        measure(load, "B", [-0.1, 0.1, -0.1, 0.1], turns)
        assert not load.is_settled("B", 4 * turns)
        measure(load, "B", [-0.01, 0.01, -0.01, 0.01], turns)
        assert load.is_settled("B", 4 * turns)
        assert load.is_settled("A", 4 * turns)


def test_what_was_measured_days_apart_is_no_pair() -> None:
    load = beside()
    measure(load, "A", [0.0] * 4)
    for turn in range(8):
        load.note("B", turn, Measured(f"later {turn // 2}", {"read": 900.0}))
    assert not load.is_settled("B", 8)
    assert load.half_of_deployments("B", 8) == math.inf


def test_other_turns_than_before_make_no_deployment_into_several() -> None:
    """Two deployments of six turns counted as six of two, of which three were one cluster."""
    load = beside(turns=2)
    for name, level in (("A", 0.0), ("B", -0.1)):
        for turn in range(12):
            iops = {"read": 1000 * math.exp(level + 0.001 * turn)}
            load.note(name, turn, Measured(f"d{turn // 6}", iops, turn // 6))
    assert load.half_of_deployments("B", 12) == math.inf
    assert not load.is_settled("B", 12)


def test_a_deployment_that_has_begun_is_measured_to_its_end() -> None:
    load = beside()
    measure(load, "A", [0.0] * 4)
    measure(load, "B", [-0.01, 0.01, -0.01, 0.01])
    for name in "AB":
        assert [load.is_settled(name, turn) for turn in range(10)] == [False] * 8 + [True] * 2
    # What the fifth one shows is not looked at before it is whole.
    load.note("B", 8, Measured("d4", {"read": 1.0}))
    assert load.is_settled("B", 9)


def test_the_baseline_is_measured_for_who_is_not_known_yet() -> None:
    load = beside()
    measure(load, "A", [0.0] * 4)
    measure(load, "B", [-0.01, 0.01, -0.01, 0.01])
    measure(load, "C", [-0.1, 0.1, -0.1, 0.1])
    assert [load.is_settled(name, 8) for name in "ABC"] == [False, True, False]


def test_rounds_of_deployments_each_know_no_more_than_welch() -> None:
    load = LoadPace(UNTIL, "A", [["A"], ["B"]], turns=1)
    levels = [-0.2, 0.2, -0.2, 0.2, -0.2]
    for name, shift in (("A", 0.0), ("B", -0.3)):
        for turn, level in enumerate(levels):
            iops = {"read": 1000 * math.exp(level + shift)}
            load.note(name, turn, Measured(f"{name}{turn}", iops))
    assert 0.3 < load.half_of_deployments("B", 5) < math.inf


def test_every_design_can_end_after_as_many_deployments_as_the_plan_says() -> None:
    """--plan promised four, where rounds took five and shared deployments six."""
    for shared in (False, True):
        load = LoadPace(UNTIL, "A", [["A"], ["B"]], turns=1)
        for turn, level in enumerate((-0.001, 0.001, -0.001, 0.001)):
            for name in "AB":
                iops = {"read": 1000 * math.exp(level)}
                load.note(name, turn, Measured(f"{turn}" if shared else f"{name}{turn}", iops))
        assert not load.is_settled("B", 3)
        assert load.is_settled("B", 4)


def test_a_plan_says_what_a_campaign_will_show() -> None:
    four, five = (repetition.loss_seen(rounds, 80, 0.0141) for rounds in (4, 5))
    assert 0.03 < five < four < 0.06
    for degrees in (2, 2.5, 3, 5.5, 8, 30):
        for tail in (0.1, 0.025, 0.00025):
            found = repetition.quantile(degrees, tail)
            assert found == pytest.approx(stats.t.isf(tail, degrees), rel=0.01)

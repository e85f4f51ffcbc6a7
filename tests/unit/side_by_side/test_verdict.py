"""What turns of groups of OSDs on shared deployments can show, and what not."""

from __future__ import annotations

import math
import random

import pytest
from scipy import stats

from cbt_crypto.report.figures.repeats import Level, Value, Wish, estimate

pytestmark = pytest.mark.unit


def values(group: str, deployments: int, turns: int, log: float, chance: float) -> list[Value]:
    source = random.Random(f"{group} {deployments}")
    found = []
    for number in range(deployments):
        level = log + chance * source.gauss(0, 1)
        for turn in range(turns):
            at = number * turns + turn
            beside = (group, number)
            found.append(Value(level + 0.001 * source.gauss(0, 1), at, f"d{number}", beside))
    return found


def test_one_deployment_has_a_range_and_no_verdict_whatever_the_turns() -> None:
    found = estimate(values("group1", 1, 50, -0.3, 0), values("group0", 1, 50, 0, 0))
    assert found is not None and (found.level, found.p) == (Level.RUN, None)
    assert "one deployment; no verdict" in found.basis


def test_two_deployments_have_an_interval_and_no_verdict() -> None:
    found = estimate(values("group1", 2, 6, -0.3, 0.05), values("group0", 2, 6, 0, 0.05))
    assert found is not None and (found.level, found.p) == (Level.ROUNDS, None)


def test_three_deployments_fall_by_side_too_often() -> None:
    found = estimate(values("group1", 3, 6, -0.3, 0.01), values("group0", 3, 6, 0, 0.01))
    assert found is not None and (found.level, found.p) == (Level.ROUNDS, None)
    four = estimate(values("group1", 4, 6, -0.3, 0.001), values("group0", 4, 6, 0, 0.001))
    assert four is not None and four.p is not None and four.p < 1 / 128


def test_deployments_that_are_alike_by_chance_know_no_more_than_their_turns() -> None:
    row = [Value(x, n, f"d{n // 4}", ("group1", n // 4)) for n, x in enumerate([-0.2, 0.1] * 8)]
    base = [Value(0.0, n, f"d{n // 4}", ("group0", n // 4)) for n in range(16)]
    found = estimate(row, base)
    assert found is not None and found.p is not None and found.p > 0.1


def test_the_deployment_is_the_unit() -> None:
    """A hundred turns do not narrow what five deployments differ by: scipy's own t-test agrees."""
    for turns in (2, 100):
        row, base = values("group1", 5, turns, -0.1, 0.05), values("group0", 5, turns, 0, 0.05)
        found = estimate(row, base)
        assert found is not None and found.p is not None
        means = [
            math.fsum(
                one.log - other.log for one, other in zip(row, base) if one.beside[1] == number
            ) / turns
            for number in range(5)
        ]  # fmt: skip
        judged = stats.ttest_1samp(means, 0)
        assert found.p == pytest.approx(judged.pvalue)
        low, _ = judged.confidence_interval(0.95)
        assert found.center - found.half == pytest.approx(low)
        assert found.basis == f"5 deployments side by side, {5 * turns} pairs of turns in all"


def test_deployments_until_a_precision_carry_a_verdict_when_it_is_reached() -> None:
    row, base = values("group1", 5, 4, -0.3, 0.01), values("group0", 5, 4, 0, 0.01)
    found = estimate(row, base, Wish(0.05))
    assert found is not None and found.p is not None and found.p < 0.01
    assert found.basis.endswith("in all, until the precision was reached")
    fixed = estimate(row, base)
    assert fixed is not None and found.half >= fixed.half


def test_who_ends_them_before_by_what_he_saw_has_a_wider_one_to_pass() -> None:
    """Four deployments far apart: Student's would have a verdict, one for any time has none."""
    row, base = values("group1", 4, 4, -0.15, 0.05), values("group0", 4, 4, 0, 0.05)
    early, done = estimate(row, base, Wish(0.001)), estimate(row, base, Wish(0.9))
    assert early is not None and done is not None and early.half == done.half
    assert early.p is not None and done.p is not None and early.p > 0.05 > done.p
    three = estimate(row[:12], base[:12], Wish(0.9))
    assert three is not None and three.p is None


def test_live_changes_over_deployments_have_the_deployment_as_their_unit() -> None:
    same = [
        [Value(v.log, v.round, v.deployment, ("group0", v.beside[1])) for v in side if v.beside]
        for side in (values("group1", 5, 4, -0.2, 0.05), values("group0", 5, 4, 0, 0.05))
    ]
    found = estimate(same[0], same[1], Wish(0.5))
    assert found is not None and found.level is Level.ROUNDS
    assert found.basis.startswith("5 deployments side by side")


def test_a_deployment_that_broke_is_still_one() -> None:
    """What was built anew after a failed cell has the same slices: it is no repetition."""
    row, base = values("group1", 1, 8, 0, 0), values("group0", 1, 8, 0, 0)
    later = [Value(v.log, v.round, f"{v.deployment} again", v.beside) for v in row[4:]]
    found = estimate([*row[:4], *later], base)
    assert found is not None and found.p is None


def test_what_never_shared_a_cluster_is_no_pair() -> None:
    """Measured again by itself days later: what the host lost meanwhile stood as a verdict."""
    row, base = values("group1", 5, 4, -0.05, 0.001), values("group0", 5, 4, 0, 0.001)
    later = [Value(v.log, v.round, f"later {v.deployment}", v.beside) for v in row]
    found = estimate(later, base)
    assert found is not None and found.basis == "5 deployments of each, in rounds"
    mixed = estimate([*row[:8], *later[8:]], base)
    assert mixed is not None and mixed.p is None
    assert mixed.basis == "2 deployments side by side, 8 pairs of turns in all"


def test_a_deployment_that_broke_between_two_turns_counts() -> None:
    """With one turn on each, a killed campaign had one deployment less than it had measured."""
    row, base = values("group1", 5, 1, -0.1, 0.01), values("group0", 5, 1, 0, 0.01)
    row[2] = Value(row[2].log, 2, "built anew", row[2].beside)
    found, whole = estimate(row, base), estimate(values("group1", 5, 1, -0.1, 0.01), base)
    assert found == whole is not None
    assert whole.basis == (
        "5 deployments side by side, 5 pairs of turns in all, one pair on each; no verdict"
    )


def test_live_changes_of_one_group_are_compared_as_before() -> None:
    same = [
        [Value(v.log, v.round, v.deployment, ("group0", 0)) for v in values("group0", 1, 8, x, 0)]
        for x in (0.0, -0.2)
    ]
    found = estimate(same[1], same[0])
    assert found is not None and found.level is Level.TURNS and found.p is not None

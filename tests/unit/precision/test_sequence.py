"""Intervals that hold whenever one stops: their formula, and that they do hold."""

from __future__ import annotations

import math
import random

import pytest

from cbt_crypto.results.repetition import ALPHA, boundary, interval, likeness, unlike

pytestmark = pytest.mark.unit


def mixed_ratio(t: float, count: int, mixture: float = 3.0) -> float:
    """The likelihood ratio of a t statistic, mixed over normal effects of variance `mixture`."""
    degrees, k = count - 1, 1 + count * mixture
    inner = (1 + t**2 / degrees) / (1 + t**2 / (degrees * k))
    return math.sqrt(1 / k) * inner ** (count / 2)


@pytest.mark.parametrize("count", [4, 5, 8, 20, 100, 3000])
def test_the_boundary_is_where_the_ratio_is_one_to_twenty(count: int) -> None:
    assert mixed_ratio(boundary(count), count) == pytest.approx(1 / ALPHA, rel=1e-6)


def test_too_few_values_say_nothing() -> None:
    assert [boundary(count) for count in (0, 1, 2, 3)] == [math.inf] * 4
    assert interval([]).half == interval([1.0]).half == interval([1.0, 1.1, 0.9]).half == math.inf


def test_it_is_wider_than_students_and_narrows_with_the_root_of_the_number() -> None:
    students = {5: 2.776, 10: 2.262, 30: 2.045}
    assert all(1.6 < boundary(n) / t < 2.1 for n, t in students.items())
    assert boundary(400) / math.sqrt(400) < 0.6 * boundary(100) / math.sqrt(100)


def test_by_hand() -> None:
    found = interval([0.1, 0.3, 0.2, 0.4])
    assert (found.center, found.count, found.batch) == (pytest.approx(0.25), 4, 1)
    assert found.half == pytest.approx(boundary(4) * math.sqrt(0.05 / 3) / 2)


def test_one_who_looks_after_every_value_is_wrong_in_less_than_one_case_of_twenty() -> None:
    generator = random.Random(7)
    wrong = wrong_by_student = 0
    for _ in range(400):
        values: list[float] = []
        ever = ever_by_student = False
        for count in range(1, 41):
            values.append(generator.gauss(0, 1))
            look = interval(values)
            ever |= abs(look.center) > look.half
            if count >= 4:
                mean = sum(values) / count
                deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / (count - 1))
                ever_by_student |= abs(mean) > 2.1 * deviation / math.sqrt(count)
        wrong += ever
        wrong_by_student += ever_by_student
    assert wrong <= 0.05 * 400 < wrong_by_student


def test_neighbours_that_are_alike_are_put_together() -> None:
    generator = random.Random(3)
    level, values = 0.0, []
    for _ in range(64):
        level = 0.9 * level + generator.gauss(0, 1)
        values.append(level)
    assert likeness(values) > 0.5
    found = interval(values)
    assert found.batch > 1
    assert found.half > 1.5 * boundary(64) * 2.3 / 8
    own, batch = unlike(values)
    assert len(own) == len(values) // batch


def test_what_does_not_vary_and_what_alternates_is_left_as_it_is() -> None:
    assert unlike([1.0] * 10) == ([1.0] * 10, 1)
    assert unlike([1.0, -1.0] * 8)[1] == 1

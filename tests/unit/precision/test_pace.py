"""When no further block is needed."""

from __future__ import annotations

import math
import random

import pytest

from cbt_crypto.results.until import LoadPace, Measured, MeasureUntil

pytestmark = pytest.mark.unit

UNTIL = MeasureUntil(precision="5%", min=30, max=300, block=10)


def load(*groups: str) -> LoadPace:
    return LoadPace(UNTIL, "A", [list(group) for group in groups])


def measure(load: LoadPace, name: str, values: list[float], deployment: str = "d") -> None:
    for turn, value in enumerate(values):
        load.note(name, turn, Measured(deployment, {"iops read": value}))


DRIFT = [1000.0 * 1.2**n for n in range(6)]


def test_pairs_do_not_mind_a_drift() -> None:
    paired, alone = load("AB"), load("A", "B")
    for one in (paired, alone):
        measure(one, "A", DRIFT)
        measure(one, "B", [0.9 * value * (1 + 0.002 * (n % 3)) for n, value in enumerate(DRIFT)])
    assert paired.is_settled("B", 6)
    assert paired.is_settled("A", 6)
    assert not alone.is_settled("B", 6)
    assert not alone.is_settled("A", 6)


def test_the_baseline_goes_on_for_the_others_and_the_others_stop_by_themselves() -> None:
    turns = load("ABC")
    generator = random.Random(1)
    measure(turns, "A", [1000.0] * 8)
    measure(turns, "B", [900.0 + n % 3 for n in range(8)])
    measure(turns, "C", [900.0 * math.exp(generator.gauss(0, 0.2)) for n in range(8)])
    assert [turns.is_settled(name, 8) for name in "ABC"] == [False, True, False]


def test_never_before_the_fewest_blocks() -> None:
    turns = load("AB")
    measure(turns, "A", [1000.0] * 8)
    measure(turns, "B", [900.0] * 8)
    assert UNTIL.fewest == 3
    assert [turns.is_settled("B", turn) for turn in (0, 2, 3, 5, 6)] == [False] * 4 + [True]


def test_a_pair_is_of_one_deployment() -> None:
    turns = load("AB")
    measure(turns, "A", [1000.0] * 8, "first")
    measure(turns, "B", [900.0] * 8, "second")
    assert turns.half("B") == math.inf
    assert not turns.is_settled("B", 8)


def test_alone_a_cell_is_known_when_a_percent_of_two_like_it_would_be() -> None:
    values = [1000.0 + 10 * (n % 4) for n in range(8)]
    alone, turns = load("B"), load("AB")
    measure(alone, "B", values)
    measure(turns, "A", [1000.0] * 8)
    measure(turns, "B", values)
    assert alone.half("B") == pytest.approx(turns.half("B") * math.sqrt(2))


def test_the_widest_direction_decides() -> None:
    turns = load("AB")
    for turn in range(8):
        turns.note("A", turn, Measured("d", {"iops read": 1000.0, "iops write": 500.0}))
        figures = {"iops read": 900.0, "iops write": 500 * 1.3 ** (turn % 2)}
        turns.note("B", turn, Measured("d", figures))
    assert not turns.is_settled("B", 8)


def test_blocks_without_figures_settle_nothing() -> None:
    turns = load("AB")
    for turn in range(8):
        turns.note("A", turn, Measured("d", {}))
        turns.note("B", turn, Measured("d", {}))
    assert not turns.is_settled("B", 8)

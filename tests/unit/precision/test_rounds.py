"""The order within rounds, and the pauses before visits."""

from __future__ import annotations

from collections import Counter

import pytest

from cbt_crypto.plan.order import PAUSES_S, orders, pause_s, round_orders

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("count", [1, 2, 3, 6])
def test_each_round_has_each_and_every_order_is_as_likely(count: int) -> None:
    names = "ABCDEF"[:count]
    rounds = orders(names, 2000, seed=5)
    assert all(sorted(order) == list(names) for order in rounds)
    for place in range(count):
        found = Counter(order[place] for order in rounds)
        assert all(abs(number / 2000 - 1 / count) < 0.05 for number in found.values())


def test_a_round_says_nothing_of_the_next() -> None:
    """Turns that were balanced two by two kept step with whatever returned every second round."""
    rounds = orders("AB", 4000, seed=3)
    same = sum(one == two for one, two in zip(rounds, rounds[1:]))
    assert 0.46 < same / 3999 < 0.54


def test_no_row_is_always_before_or_behind_the_baseline() -> None:
    """A drift within rounds would look like a difference; side by side was never drawn again."""
    for seed in range(200):
        drawn = round_orders([["A"], ["B"], ["C", "D"]], 12, seed, "A")
        for count in range(4, 13):
            for name in "BCD":
                before = sum(order.index(name) < order.index("A") for order in drawn[:count])
                assert 0 < before < count, (seed, count, name)


def test_the_seed_is_all_that_decides() -> None:
    assert orders("ABCD", 8, 1) == orders("ABCD", 8, 1) == orders("ABCD", 20, 1)[:8]
    assert len({orders("ABCD", 8, seed) for seed in range(20)}) > 10
    assert pause_s(1, 2, "A", 3, 60) == pause_s(1, 2, "A", 3, 60) != pause_s(1, 3, "A", 3, 60)


def test_the_pauses_of_a_round_are_a_minute_at_most() -> None:
    for visits in (1, 2, 6, 30):
        found = [pause_s(4, turn, "A", visits, PAUSES_S) for turn in range(500)]
        assert min(found) >= 0 and max(found) <= PAUSES_S / visits
        assert max(found) - min(found) > 0.9 * PAUSES_S / visits
    assert max(pause_s(4, turn, "A", 2, longest=5) for turn in range(500)) <= 5

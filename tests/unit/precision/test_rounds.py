from __future__ import annotations

from collections import Counter

import pytest

from cbt_crypto.plan.rounds import orders

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 7])
def test_every_place_and_every_predecessor_equally_often(count: int) -> None:
    names = "ABCDEFG"[:count]
    rounds = orders(names, 2 * count if count % 2 and count > 1 else count, seed=5)
    assert all(sorted(order) == list(names) for order in rounds)
    for place in range(count):
        assert len(set(Counter(order[place] for order in rounds).values())) == 1
    followed = Counter(pair for order in rounds for pair in zip(order, order[1:]))
    assert len(followed) == count * (count - 1)
    assert len(set(followed.values())) <= 1


def test_the_seed_is_all_that_decides() -> None:
    assert orders("ABCD", 8, 1) == orders("ABCD", 8, 1) == orders("ABCD", 20, 1)[:8]
    assert len({orders("ABCD", 8, seed) for seed in range(20)}) > 10
    assert {orders("AB", 2, seed) for seed in range(20)} == {
        (("A", "B"), ("B", "A")),
        (("B", "A"), ("A", "B")),
    }

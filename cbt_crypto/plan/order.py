"""The order of configurations in which a cluster changes at the least cost."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import lru_cache

#: From a configuration to another -> cost.
Cost = Callable[[str, str], float]

#: Up to so many behind the first, all orders are tried; beyond, the next is always the cheapest.
_EXACT = 8


def cheapest_order(names: Sequence[str], first: str, cost: Cost) -> tuple[str, ...]:
    """`names`, each once, beginning with `first`; among equals, as they stand in `names`."""
    rest = [name for name in names if name != first]
    cost_of = lru_cache(maxsize=None)(cost)
    if len(rest) > _EXACT:
        return _greedy(rest, first, cost_of)
    orders = ((first, *order) for order in itertools.permutations(rest))
    return min(orders, key=lambda order: sum(map(cost_of, order, order[1:])))


def _greedy(rest: list[str], first: str, cost: Cost) -> tuple[str, ...]:
    order = [first]
    while rest:
        nearest = min(rest, key=lambda name: cost(order[-1], name))
        rest.remove(nearest)
        order.append(nearest)
    return tuple(order)

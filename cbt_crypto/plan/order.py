"""The order of configurations in which a cluster changes at the least cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

#: From a configuration to another -> cost.
Cost = Callable[[str, str], float]

#: Up to so many the best order is found by trying all (by dynamic programming, 2**n * n**2
#: steps); beyond, the next is always the cheapest one.
_EXACT = 12


def cheapest_order(names: Sequence[str], first: str, cost: Cost) -> tuple[str, ...]:
    """`names`, each once, beginning with `first`; among equals, as they stand in `names`."""
    rest = [name for name in names if name != first]
    if len(rest) > _EXACT:
        return _greedy(rest, first, cost)
    # best[(set of visited, last)] = (cost, order so far); Held and Karp, 1962.
    best: dict[tuple[frozenset[str], str], tuple[float, tuple[str, ...]]] = {
        (frozenset(), first): (0.0, (first,))
    }
    for _ in rest:
        best = _extended(best, rest, cost)
    return min(best.values(), key=lambda path: path[0])[1]


def _extended(
    best: dict[tuple[frozenset[str], str], tuple[float, tuple[str, ...]]],
    rest: Sequence[str],
    cost: Cost,
) -> dict[tuple[frozenset[str], str], tuple[float, tuple[str, ...]]]:
    longer: dict[tuple[frozenset[str], str], tuple[float, tuple[str, ...]]] = {}
    for (visited, last), (spent, order) in best.items():
        for name in rest:
            if name in visited:
                continue
            key = (visited | {name}, name)
            total = spent + cost(last, name)
            if key not in longer or total < longer[key][0]:
                longer[key] = (total, (*order, name))
    return longer


def _greedy(rest: list[str], first: str, cost: Cost) -> tuple[str, ...]:
    order = [first]
    while rest:
        nearest = min(rest, key=lambda name: cost(order[-1], name))
        rest.remove(nearest)
        order.append(nearest)
    return tuple(order)

"""What the levels of a campaign's matrix do, alone and together.

A level's effect is its ratio to its factor's first, as the mean over other factors' levels; an
interaction is the ratio of two levels to the product of each. `repeats` judges both, as contrasts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Optional

from cbt_crypto.archive.documents import Matrix, crossed
from cbt_crypto.report.figures.interval import LoadRuns, of_estimate
from cbt_crypto.report.figures.metric import BY_KEY
from cbt_crypto.report.figures.repeats import Estimate, Value, Wish, differing, estimate, together
from cbt_crypto.report.model import Pair
from cbt_crypto.results.until import until_of
from cbt_crypto.units import grouped

_IOPS = BY_KEY["iops"]
#: What an interaction is in percent of.
APART = "each alone, multiplied"


@dataclass(frozen=True)
class Contrast:
    """The mean of `more` less the mean of `less`, configurations both, times `times`."""

    name: str
    other: str
    more: tuple[str, ...]
    less: tuple[str, ...]
    times: int = 1


def contrasts(matrix: Matrix) -> Iterator[Contrast]:
    """The effect of each level, then the interaction of each two levels of different factors."""
    names = crossed(matrix)
    first = {factor: next(iter(levels)) for factor, levels in matrix.items()}
    place = {factor: number for number, factor in enumerate(matrix)}

    def of(levels: Mapping[str, str]) -> tuple[str, ...]:
        return tuple(
            name
            for name, own in names.items()
            if all(own[place[factor]] == level for factor, level in levels.items())
        )

    def others(factor: str) -> list[str]:
        return [level for level in matrix[factor] if level != first[factor]]

    for factor in matrix:
        for level in others(factor):
            base = first[factor]
            name, other = f"{factor}: {level}", f"{factor}: {base}"
            yield Contrast(name, other, of({factor: level}), of({factor: base}))
    for one, two in itertools.combinations(matrix, 2):
        for a, b in itertools.product(others(one), others(two)):
            same = (*of({one: a, two: b}), *of({one: first[one], two: first[two]}))
            crosswise = (*of({one: a, two: first[two]}), *of({one: first[one], two: b}))
            yield Contrast(f"{a} with {b}", APART, same, crosswise, times=2)


def effects(matrix: Matrix, loads: Mapping[Hashable, LoadRuns]) -> dict[Hashable, tuple[Pair, ...]]:
    """Effects and interactions of every workload; with a chance of 95 % all shown are true."""
    all_contrasts = tuple(contrasts(matrix)) if matrix else ()
    keys = [(load, contrast) for load in loads for contrast in all_contrasts]
    estimates = {key: one for key in keys if (one := _estimate(loads[key[0]], key[1]))}
    found: dict[tuple[Hashable, Contrast], Estimate] = {}
    for times in {contrast.times for contrast in all_contrasts}:
        # An interaction varies more than an effect, so they lend one another nothing.
        alike = {key: one for key, one in estimates.items() if key[1].times == times}
        found |= together(
            alike, {key: key[1].name for key in alike}, {key: key[0] for key in alike}
        )
    shown = differing({key: one.p for key, one in found.items() if one.p is not None})
    by_load: dict[Hashable, tuple[Pair, ...]] = {}
    for key in estimates:
        one = found[key]
        compared = of_estimate(one, 100 * math.exp(one.center), one.basis)
        compared = replace(compared, differs=shown.get(key))
        pair = Pair(key[1].name, key[1].other, compared)
        by_load[key[0]] = (*by_load.get(key[0], ()), pair)
    return by_load


def _estimate(load: LoadRuns, contrast: Contrast) -> Optional[Estimate]:
    names = (*contrast.more, *contrast.less)
    if any(load.gave_nothing(_IOPS, name) for name in names):
        return None
    sides = [_side(load, side, contrast.times) for side in (contrast.more, contrast.less)]
    if not all(sides):
        return None
    until = next((wish for run in load.runs(names[0])
                  if (wish := until_of(run.planned.parameters))), None)  # fmt: skip
    is_finished = not any(load.missing.get(name) for name in names)
    return estimate(sides[0], sides[1], Wish(until.half) if until else None, is_finished)


def _side(load: LoadRuns, names: tuple[str, ...], times: int) -> list[Value]:
    """One value of each round in which all configurations were; groups side by side have none."""
    by_round = grouped((value.round, value) for name in names for value in load.values(_IOPS, name))
    # What was measured again later is of another day than the rest of its round.
    ends = {r: [v.started for v in of if v.started is not None] for r, of in by_round.items()}
    later = [r for r, at in ends.items()
             if any(at and b and max(at) > min(b) for n, b in ends.items() if n > r)]  # fmt: skip
    return [
        replace(
            values[0],
            log=times * math.fsum(value.log for value in values) / len(values),
            deployment=frozenset(value.deployment for value in values),
            started=max((v.started for v in values if v.started is not None), default=None),
        )
        for number, values in sorted(by_round.items())
        if len(values) == len(names)
        and all(value.beside is None for value in values)
        and number not in later
    ]

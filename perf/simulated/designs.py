"""When a simulated campaign ends, and what a report then says of it: by the code that does both."""

from __future__ import annotations

import math
from typing import Optional

from cbt_crypto.report.figures.repeats import (
    Estimate,
    Value,
    Wish,
    differing,
    estimate,
    of_known_spread,
    together,
    variance_of,
)
from cbt_crypto.results.until import LoadPace, Measured, MeasureUntil

#: Rows of a campaign: the baseline, the control, and what is compared.
NAMES = ("baseline", "control", "other")
#: Figure -> name -> the values of its runs.
Values = list[dict[str, list[Value]]]


def _rows(values: Values, figure: int) -> dict[str, list[Value]]:
    return {name: own for name, own in values[figure].items() if name != "baseline"}


def _judged(found: dict[str, Optional[Estimate]]) -> dict[str, Optional[Estimate]]:
    """As a report of this figure and one workload has them."""
    known = {name: one for name, one in found.items() if one is not None}
    judged = together(known, {name: name for name in known}, dict.fromkeys(known, ""))
    return {**found, **judged}


def fixed(values: Values, figure: int) -> dict[str, Optional[Estimate]]:
    """As many rounds or turns as the file says."""
    base = values[figure]["baseline"]
    return _judged({name: estimate(own, base) for name, own in _rows(values, figure).items()})


def until_precise(values: Values, figure: int, precision: str) -> dict[str, Optional[Estimate]]:
    """Turns until the throughput of each row is known so well, as campaigns stop."""
    until = MeasureUntil(precision=precision, min=30, max=300, block=10)
    load = LoadPace(until, "baseline", [list(NAMES)])
    measured: dict[str, int] = dict.fromkeys(NAMES, 0)
    for turn in range(len(values[0]["baseline"])):
        for name in [name for name in NAMES if not load.is_settled(name, turn)]:
            iops = math.exp(values[0][name][turn].log)
            load.note(name, turn, Measured("one", {"read": iops}))
            measured[name] = turn + 1
    base = values[figure]["baseline"][: measured["baseline"]]
    rows = _rows(values, figure).items()
    found = {name: estimate(own[: measured[name]], base, Wish(until.half)) for name, own in rows}
    return _judged(found)


def deployments(
    values: Values, figure: int, precision: str, turns: int, looks: bool = False
) -> dict[str, Optional[Estimate]]:
    """Deployments until the throughput of each row is known so well, as campaigns stop.

    With `looks`, somebody looks at this figure after each, and stops when something differs.
    """
    most = len(values[0]["baseline"])
    until = MeasureUntil(precision=precision, min=1, max=most, block=2)
    load = LoadPace(until, "baseline", [list(NAMES)], turns=turns, beside=turns > 1)
    measured: dict[str, int] = dict.fromkeys(NAMES, 0)
    found: dict[str, Optional[Estimate]] = {}
    for begun in range(0, most, turns):
        for name in [name for name in NAMES if not load.is_settled(name, begun)]:
            for turn in range(begun, begun + turns):
                run = values[0][name][turn]
                measured_on = Measured(str(run.deployment), {"read": math.exp(run.log)})
                load.note(name, turn, measured_on)
            measured[name] = begun + turns
        found = _known_by_now(values, figure, measured, until.half)
        if looks and any(verdicts(found, 0).values()):
            break
        if measured["baseline"] == begun:
            break
    return found


def _known_by_now(
    values: Values, figure: int, measured: dict[str, int], half: float
) -> dict[str, Optional[Estimate]]:
    """As a report has it, which looks at the throughput of each row first."""
    found = {}
    for name in _rows(values, figure):
        sides = [
            [of_figure[row][: measured[row]] for row in (name, "baseline")]
            for of_figure in (values[0], values[figure])
        ]
        throughput = estimate(sides[0][0], sides[0][1], Wish(half))
        reached = math.inf if throughput is None else throughput.half
        found[name] = estimate(sides[1][0], sides[1][1], Wish(half, reached))
    return _judged(found)


def until_it_differs(values: Values, figure: int) -> dict[str, Optional[Estimate]]:
    """The worst that can be done: look after each pair, and stop when something differs."""
    found: dict[str, Optional[Estimate]] = {}
    for count in range(2, len(values[figure]["baseline"]) + 1):
        base = values[figure]["baseline"][:count]
        rows = _rows(values, figure).items()
        found = {name: estimate(own[:count], base, Wish(0.0)) for name, own in rows}
        if any(verdicts(found, 0).values()):
            break
    return found


def spread_from(values: Values, figure: int) -> dict[str, Optional[Estimate]]:
    """One run of each, and the spread of five earlier rounds."""
    found: dict[str, Optional[Estimate]] = {}
    base = values[figure]["baseline"]
    for name, own in _rows(values, figure).items():
        known = [variance_of(side[:-1]) for side in (own, base)]
        parts = [(one[0], one[1], 1) for one in known if one is not None]
        found[name] = of_known_spread(own[-1].log - base[-1].log, parts, "")
    return found


def verdicts(found: dict[str, Optional[Estimate]], absent: int) -> dict[str, bool]:
    """As a report has them, of one figure."""
    p_values = {name: one.p for name, one in found.items() if one is not None}
    return differing({name: p for name, p in p_values.items() if p is not None}, absent)

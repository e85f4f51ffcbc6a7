"""What a report says of simulated campaigns, by the code that reports and the code that stops.

Thousands of reports at once go through the rule's arithmetic (`repeats.p_values`). Of each batch, a
few also go the way of a real report, run by run, and must come out the same.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Optional

import numpy as np

from cbt_crypto.report.figures.metric import BY_KEY
from cbt_crypto.report.figures.repeats import (
    LOOKS,
    Estimate,
    Value,
    Wish,
    differing,
    estimate,
    p_values,
    shown,
    together,
)
from cbt_crypto.report.gate import Answer, Question, answers_of, overall
from cbt_crypto.report.model import Comparison, ControlState, ReportCell
from cbt_crypto.results.repetition import GIVEN, GIVEN_SHARED
from cbt_crypto.results.until import LoadPace, Measured, MeasureUntil
from simulated.designs import Campaigns, Design
from simulated.disturbances import Floats

#: A row of a workload.
Key = tuple[str, int]


def p_of_rounds(campaigns: Campaigns, figure: int, rounds: int) -> Floats:
    """Campaigns x comparisons, after so many deployments."""
    design, logs = campaigns.design, campaigns.logs[figure][:, : rounds * campaigns.design.turns]
    ratios = logs[:, :, 1:] - logs[:, :, :1]
    turns = design.turns
    least = ratios.var(axis=1, ddof=1) / turns if design.kind == "beside" else 0.0
    ratios = ratios.reshape(len(ratios), rounds, turns, *ratios.shape[2:]).mean(axis=2)
    variances = np.maximum(ratios.var(axis=1, ddof=1), least)
    if design.kind == "rounds":
        sides = logs.var(axis=1, ddof=1)
        variances = np.maximum(variances, sides[:, 1:] + sides[:, :1])
    flat = (len(logs), -1)
    rows, loads = np.indices(variances.shape[1:]).reshape(2, -1)
    counts = np.full(len(rows), rounds)
    given = GIVEN_SHARED if design.kind == "shared" else GIVEN
    centers = ratios.mean(axis=1).reshape(flat)
    return p_values(centers, variances.reshape(flat), counts, given, rows, loads)


def shown_of_rounds(campaigns: Campaigns, figure: int, rounds: int) -> Floats:
    """Campaigns x rows x workloads: whether each difference is shown."""
    design = campaigns.design
    found = shown(p_of_rounds(campaigns, figure, rounds))
    return found.reshape(len(found), design.rows, design.workloads)


def shown_while_looking(campaigns: Campaigns, figure: int) -> Floats:
    """Campaigns: whether anything is shown to somebody who looks after each deployment."""
    most = campaigns.design.rounds
    found = np.zeros(len(campaigns.logs[figure]), bool)
    for rounds in range(4, most + 1):
        p = p_of_rounds(campaigns, figure, rounds)
        found |= shown(np.minimum(1.0, p * (1 if rounds == most else LOOKS))).any(axis=1)
    return found


def values_of(campaigns: Campaigns, number: int, figure: int) -> dict[Key, list[Value]]:
    """The runs of one campaign, as a report reads them."""
    design, logs = campaigns.design, campaigns.logs[figure][number]
    found: dict[Key, list[Value]] = {}
    for place, name in enumerate(design.names):
        for load in range(design.workloads):
            found[name, load] = [
                Value(float(log), turn, *_where(design, place, turn))
                for turn, log in enumerate(logs[:, place, load])
            ]
    return found


def _where(design: Design, place: int, turn: int) -> tuple[Hashable, Optional[tuple[str, int]]]:
    number = turn // design.turns
    if design.kind == "beside":
        return number, (f"group{place}", number)
    deployments: dict[str, Hashable] = {"turns": "one", "shared": turn, "rounds": (turn, place)}
    return deployments[design.kind], None


def judged_of(found: dict[Key, Optional[Estimate]]) -> dict[Key, Estimate]:
    """All comparisons of one figure of a report, beside one another."""
    known = {key: one for key, one in found.items() if one is not None}
    return together(known, {key: key[0] for key in known}, {key: key[1] for key in known})


def report(found: dict[Key, Optional[Estimate]]) -> dict[Key, Optional[bool]]:
    """The verdicts of one figure of a report."""
    judged = judged_of(found)
    p_found = {key: one.p for key, one in judged.items() if one.p is not None}
    verdicts = differing(p_found)
    return {key: verdicts.get(key) for key in found}


def estimates(campaigns: Campaigns, number: int, figure: int) -> dict[Key, Optional[Estimate]]:
    """Of each row and workload of one campaign."""
    values = values_of(campaigns, number, figure)
    return {
        key: estimate(own, values["baseline", key[1]])
        for key, own in values.items()
        if key[0] != "baseline"
    }


def run_by_run(campaigns: Campaigns, number: int, figure: int) -> dict[Key, Optional[bool]]:
    """The verdicts of one campaign, as a report has them."""
    return report(estimates(campaigns, number, figure))


def gate_answer(campaigns: Campaigns, number: int, loss_percent: float) -> Answer:
    """Whether the gate says that `other` loses more throughput under any workload."""
    judged = judged_of(estimates(campaigns, number, 0))
    rows = []
    for load in range(campaigns.design.workloads):
        one = judged["other", load]
        percent = 100 * math.exp(one.center)
        ends = [percent * math.exp(sign * min(one.half, 50.0)) for sign in (-1, 1)]
        compared = Comparison(
            percent, ends[0], ends[1], one.basis, one.level.value, one.p, errors=one.errors
        )
        cell = ReportCell("other", {}, "read", "measured", comparisons={"iops": compared})
        rows.append((f"workload {load}", cell, ControlState()))
    return overall(answers_of(rows, Question(BY_KEY["iops"], loss_percent)))


def until_precise(
    campaigns: Campaigns, number: int, figures: int, precision: str
) -> list[dict[Key, Optional[bool]]]:
    """The verdicts of each figure, where deployments or turns end at a precision of the IOPS."""
    design = campaigns.design
    most = design.rounds * design.turns
    beside = design.kind == "beside"
    is_one = design.kind == "turns"
    until = MeasureUntil(precision=precision, min=2, max=2 * most, block=2)
    turns = None if is_one else design.turns
    measured: dict[Key, int] = {}
    values = [values_of(campaigns, number, figure) for figure in range(figures)]
    for load in range(design.workloads):
        pace = LoadPace(until, "baseline", [design.names], turns=turns, beside=beside)
        for turn in range(most):
            left = [name for name in design.names if not pace.is_settled(name, turn)]
            for name in left:
                value = values[0][name, load][turn]
                iops = {"read": math.exp(value.log)}
                pace.note(name, turn, Measured(str(value.deployment), iops))
                measured[name, load] = turn + 1
            if not left:
                break
    return [
        report(_known_by_then(values[0], of_figure, measured, until.half)) for of_figure in values
    ]


def _known_by_then(
    deciding: dict[Key, list[Value]],
    values: dict[Key, list[Value]],
    measured: dict[Key, int],
    half: float,
) -> dict[Key, Optional[Estimate]]:
    found: dict[Key, Optional[Estimate]] = {}
    for key in values:
        base = ("baseline", key[1])
        if key == base:
            continue
        throughput, own = (
            [of_figure[k][: measured[k]] for k in (key, base)] for of_figure in (deciding, values)
        )
        first = estimate(throughput[0], throughput[1], Wish(half))
        reached = math.inf if first is None else first.half
        found[key] = estimate(own[0], own[1], Wish(half, reached))
    return found

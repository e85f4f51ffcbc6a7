"""Prints a plan: what would run, in which order, and how long the file itself makes it."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cbt_crypto.cluster_overlays.base import Overlay, Transition
from cbt_crypto.plan import order
from cbt_crypto.plan.allocation import Allocation, Planned, advice
from cbt_crypto.plan.cells import Cell
from cbt_crypto.plan.file.checks import origin_of
from cbt_crypto.plan.layout import cautions, drives_used, site_of, sites_of
from cbt_crypto.plan.predict import Durations, Earlier, Forecast, in_words, load_words, predict
from cbt_crypto.plan.steps import Deploy, Measure, Plan, Prefill, Step
from cbt_crypto.plan.steps import plan as planned
from cbt_crypto.results.repetition import FEWEST_PAIRS, FEWEST_ROUNDS, FIRST, loss_seen
from cbt_crypto.units import about, counted, grouped

#: Rounds from which on a toss between two levels is as rare as it must be.
_SURE = 6
#: Columns of what is no terminal, in which labels are whole.
_WIDTH = 140


def show_plan(plan: Plan, console: Console, like: Optional[Path] = None) -> None:
    """Print configurations, steps and a summary; the archive `like` tells times and variation."""
    earlier = None if like is None else Earlier(like)
    durations = Durations() if earlier is None else earlier.durations
    if not console.is_terminal:
        # Cut into two lines, a label could not be looked for, as for --only.
        console.width = max(console.width, _WIDTH)
    _configurations(plan, console)
    table = Table(title="Steps", title_justify="left", box=None, pad_edge=False)
    for column in ("", "step", "what", "takes"):
        table.add_column(column, overflow="fold")
    for number, row in _rows(plan, durations):
        table.add_row(str(number), *map(Text, row))
    console.print(table)
    console.print()
    for line in _sentences(plan, earlier):
        console.print(Text(line), soft_wrap=True)


def _sentences(plan: Plan, earlier: Optional[Earlier]) -> Iterator[str]:
    for sentence in cautions(plan.campaign, plan.to_measure):
        yield f"warning: {sentence}"
    if written := _written(plan):
        yield f"Formats and empties {written}."
    yield _summary(plan)
    if plan.to_measure and not any(_is_of_baseline(plan, cell) for cell in plan.to_measure):
        yield f"The baseline, {plan.campaign.baseline}, is not measured now; percentages need it."
    if earlier is None:
        yield from _in_all(plan)
    yield from _buys(plan, earlier)
    if earlier is not None:
        like = earlier.archive
        yield in_words(predict(plan, earlier), like)
        if earlier.is_emulated:
            yield f"warning: {like} has emulated processors; its times are of such a lab alone"
        yield from _allocation(plan, earlier)


def plan_document(plan: Plan, archive: Optional[Path]) -> dict[str, Any]:
    """Return a plan as JSON has it: what is measured in which order, and how long it takes."""
    return {
        "format": 1,
        "title": plan.campaign.title,
        "archive": None if archive is None else str(archive),
        "cells": len(plan.cells),
        "to_measure": len(plan.to_measure),
        "deployments": {how.name.lower(): plan.deployments(how) for how in Transition},
        "prefill_mib": plan.prefill_mb,
        "measuring_s": plan.seconds,
        "pauses_s": plan.pauses_s,
        "about_s": round(Forecast(plan, now=lambda: 0.0).left().seconds),
        "steps": [
            dict(zip(("step", "what", "takes"), _row(step, Durations()))) for step in plan.steps
        ],
    }


def _allocation(plan: Plan, earlier: Earlier) -> Iterator[str]:
    section = plan.campaign.cluster
    if plan.campaign.groups:
        cells = [cell for cell in plan.cells if cell.iteration == 0]
        seconds = round(sum(cell.scenario.measured_s for cell in cells) / max(len(cells), 1))
        allocation = Allocation(order.turns_of(section), seconds)
        named = None if _until_known(plan) else section.iterations
        planned = Planned(
            cells=len(cells),
            visits=len({cell.configuration for cell in cells}),
            ramp_s=sum(cell.scenario.ramp for cell in cells),
            fill_mb=plan.prefill_mb / max(plan.deployments(Transition.REBUILD), 1),
        )
        yield from advice(earlier.archive, earlier.seen, planned, named, allocation)


def _configurations(plan: Plan, console: Console) -> None:
    table = Table(title="Configurations", title_justify="left", box=None, pad_edge=False)
    table.add_column("name")
    table.add_column("overlays", overflow="fold")
    campaign = plan.campaign
    baseline = campaign.baseline if campaign.compared == "configuration" else None
    for name, overlays in campaign.configurations.items():
        named = (overlay for overlay in overlays if overlay.is_present)
        shown = "; ".join(f"{overlay.name}{_options(overlay)}" for overlay in named) or "none"
        mark = "  (baseline)" if name == baseline else ""
        table.add_row(Text(f"{name}{mark}"), Text(shown))
    console.print(table)
    console.print()


def _options(overlay: Overlay) -> str:
    words = [f"{key}={getattr(overlay, key)}" for key in sorted(overlay.model_fields_set)]
    return f" ({', '.join(words)})" if words else ""


def _rows(plan: Plan, durations: Durations) -> Iterator[tuple[int, tuple[str, str, str]]]:
    """Numbered rows; where configurations take turns, those of a later round are one row."""
    number = 0
    for turn, steps in _rounds(plan):
        rows = [_row(step, durations) for step in steps] if turn == 0 else []
        for row in rows or [_round_row(turn, steps, durations)]:
            number += 1
            yield number, row


def _rounds(plan: Plan) -> Iterator[tuple[int, list[Step]]]:
    campaign = plan.campaign
    in_turns = campaign.groups or order.is_in_rounds(campaign)
    in_turns = in_turns or campaign.cluster.order == "interleaved"
    of_round: list[Step] = []
    current = 0
    changes: list[Step] = []
    for step in plan.steps:
        changes.append(step)
        if not isinstance(step, Measure):
            continue
        turn = step.cell.iteration if in_turns else 0
        if turn != current and of_round:
            yield current, of_round
            of_round = []
        current = turn
        of_round += changes
        changes = []
    yield current, of_round


def _round_row(turn: int, steps: Sequence[Step], durations: Durations) -> tuple[str, str, str]:
    names = dict.fromkeys(step.cell.configuration for step in steps if isinstance(step, Measure))
    changes = [step.how.name.lower() for step in steps if isinstance(step, Deploy)]
    kinds = [f"{changes.count(kind)} {kind}" for kind in dict.fromkeys(changes)]
    seconds = sum(durations.of(step) for step in steps)
    configurations = f"{' / '.join(names)}  ({', '.join(kinds) or 'no change'})"
    return f"round {turn + 1}", configurations, f"about {about(seconds)}"


def _row(step: Step, durations: Durations) -> tuple[str, str, str]:
    if isinstance(step, Deploy):
        takes = f"about {durations.of(step):.0f} s"
        return step.how.name.lower(), f"{step.configuration}  ({step.reason})", takes
    if isinstance(step, Prefill):
        what = f"{counted(len(step.volumes), 'volume')}, {step.mib} MiB, for {step.scenario.name}"
        return "prefill", what, f"about {about(durations.of(step))}"
    return "measure", f"{step.cell.label}  [{step.cell.id}]", f"{step.cell.scenario.run_s} s"


def _summary(plan: Plan) -> str:
    cells = len(plan.to_measure)
    already = len(plan.cells) - cells
    kinds = [
        counted(count, name)
        for how, name in (
            (Transition.REBUILD, "rebuild"),
            (Transition.RESTART, "restart"),
            (Transition.LIVE, "live change"),
        )
        if (count := plan.deployments(how))
    ]
    pauses = f" (and pauses of {plan.pauses_s:.0f} s)" if plan.pauses_s else ""
    osds = len(site_of(plan.campaign.cluster).osds)
    return (
        f"{counted(osds, 'OSD') + '; ' if osds else ''}"
        f"{counted(cells, 'cell')} to measure{f', {already} left out' if already else ''}; "
        f"{', '.join(kinds) or 'nothing to deploy'}; prefill of {plan.prefill_mb / 1024:.1f} GiB. "
        f"Measuring takes {_most(plan)}{datetime.timedelta(seconds=plan.seconds)}; "
        f"deployments and prefill{pauses} are extra."
    )


def _written(plan: Plan) -> str:
    """Which block devices of which hosts a run writes to; hosts with the same ones together."""
    of_cluster = [cell for cell in plan.to_measure if cell.scenario.drive_name is None]
    sites = sites_of(plan.campaign, of_cluster)
    places = [(osd.host, osd.devices) for site in sites for osd in site.osds]
    places += [(one.host, one.devices) for one in drives_used(plan.campaign, plan.to_measure)]
    by_host = grouped((host, device) for host, devices in places for device in devices)
    alike = grouped((tuple(dict.fromkeys(on)), host) for host, on in by_host.items())
    return "; ".join(f"{', '.join(on)} on {', '.join(hosts)}" for on, hosts in alike.items())


def _in_all(plan: Plan) -> Iterator[str]:
    """What a person asks first, before any archive can tell it better."""
    left = Forecast(plan, now=lambda: 0.0).left()
    takes = f"{_most(plan)}about {about(left.seconds)} {left.give_or_take}"
    rate = Durations().fill_mib_per_s
    fills = f", {about(plan.prefill_mb / rate)} of it to fill volumes at {rate:g} MiB/s"
    yield (f"In all {takes} on a small cluster{fills if plan.prefill_mb else ''}; --like ARCHIVE, "
           "a short run on yours, predicts yours.")  # fmt: skip
    section = plan.campaign.cluster
    if "rebuild" in section.model_fields_set or len(plan.to_measure) < len(plan.cells):
        return
    # Whoever left `rebuild` out may not know of it: a quarter or more is worth a sentence.
    campaign = replace(plan.campaign, cluster=section.model_copy(update={"rebuild": "needed"}))
    needed = Forecast(planned(campaign), now=lambda: 0.0).left().seconds
    if needed < 0.75 * left.seconds:
        yield f"With rebuild: needed in the file's cluster, about {about(needed)}."


def _most(plan: Plan) -> str:
    return "at most " if any(cell.scenario.until for cell in plan.to_measure) else ""


def _buys(plan: Plan, earlier: Optional[Earlier]) -> Iterator[str]:
    section, campaign = plan.campaign.cluster, plan.campaign
    is_one_cluster = "never" in (origin_of(section).rebuild, section.rebuild)
    in_rounds = order.is_in_rounds(campaign)
    if campaign.groups:
        rounds = section.iterations
        turns = order.turns_of(section)
        what = f"Side by side: {turns} turns of each configuration on each deployment"
    elif section.order == "interleaved" or (in_rounds and is_one_cluster):
        yield _of_turns(plan)
        return
    elif in_rounds:
        rounds = 1 + max((cell.iteration for cell in plan.cells), default=0)
        what = "Rounds of new deployments"
    else:
        wanted = f"iterations: {max(section.iterations, FEWEST_ROUNDS)}"
        wanted = f"order: rounds with {wanted}" if section.order != "rounds" else wanted
        yield (
            "One deployment of each configuration: percentages without a verdict; "
            f"{wanted} or more gives one."
        )
        return
    if not _comparisons(plan):
        yield "Nothing is compared with the baseline, so there is no verdict."
    elif until := _until_known(plan):
        if campaign.groups:
            rounds = max((order.deployments_of(section, c.scenario) for c in plan.cells), default=1)
        yield f"{what}, {FIRST if rounds == FIRST else f'from {FIRST} to {rounds}'}, {until}"
    elif campaign.groups and order.turns_of(section) == 1:
        yield f"{what}: intervals, but no verdict; a verdict needs turns: 2 or more."
    elif rounds < FEWEST_ROUNDS:
        yield (
            f"{what}, {rounds} of them: intervals, but no verdict; a verdict needs iterations: "
            f"{FEWEST_ROUNDS}."
        )
    else:
        yield f"{what}, {rounds} of them. {_seen(plan, rounds)}"
        yield from _seen_by_load(plan, rounds, earlier)


def _of_turns(plan: Plan) -> str:
    iterations = plan.campaign.cluster.iterations
    counts = [order.rounds_of(cell.scenario, iterations) for cell in plan.cells]
    known = min(counts, default=0) >= FEWEST_PAIRS
    ends = "The campaign ends in verdicts" if known else "No verdict"
    return (
        f"Turns on one cluster: percentages from pairs of turns. {ends}; a verdict needs "
        f"{FEWEST_PAIRS} pairs."
    )


#: By how much deployments may differ, in percent, where no archive says it.
_SUPPOSED = (1.0, 5.0)


def _losses(plan: Plan, rounds: int, spread: float, is_shared: bool) -> tuple[str, str]:
    comparisons = _comparisons(plan)
    now, then = (
        f"{100 * loss_seen(count, comparisons, spread, is_shared):.1f} %"
        for count in (rounds, rounds + 1)
    )
    return now, then


def _seen(plan: Plan, rounds: int) -> str:
    # Where a deployment serves both sides, what it differs by is in both.
    is_shared = "apart" not in order.wheres(plan.campaign)
    what = "percentages differ from round to round" if is_shared else "deployments differ"
    sides = 1.0 if is_shared else math.sqrt(2)
    (now, then), (far, farther) = (
        _losses(plan, rounds, sides * supposed / 100, is_shared and not plan.campaign.groups)
        for supposed in _SUPPOSED
    )
    low = (
        ""
        if rounds >= _SURE
        else f" If each deployment is fast or slow by chance, all {rounds} of a configuration are "
        f"alike in {100 * 2 ** (1 - rounds):.0f} % of campaigns, which looks like a loss or a "
        f"gain; with iterations: {_SURE}, in 3 %."
    )
    return (
        f"The campaign ends in verdicts on {counted(_comparisons(plan), 'comparison')}. Each finds "
        f"a loss of {now} nine times in ten if {what} by {_SUPPOSED[0]:g} % ({far} if by "
        f"{_SUPPOSED[1]:g} %), and with one more round {then} ({farther}).{low}"
    )


def _seen_by_load(plan: Plan, rounds: int, earlier: Optional[Earlier]) -> Iterator[str]:
    """The losses of each workload, by what its percentages differed by in that archive."""
    turns = order.turns_of(plan.campaign.cluster) if plan.campaign.groups else 1
    shown: dict[str, str] = {}
    for cell in plan.cells if earlier is not None else ():
        seen, is_alike = earlier.seen_of(cell, "iops") if earlier is not None else ([], False)
        if order.load_key(cell) in shown or not seen:
            continue
        allocation = Allocation(turns, max(1, round(cell.scenario.measured_s)))
        worst = max(seen, key=lambda one: allocation.variance(one.spread))
        spread = math.sqrt(allocation.variance(worst.spread))
        now, then = _losses(plan, rounds, spread, worst.where == "shared")
        by = "" if is_alike else ", judging by the noisiest there"
        shown[order.load_key(cell)] = (
            f"  {load_words(cell)}: finds a loss of {now}{by}; with one more round {then}"
        )
    yield from shown.values()


def _until_known(plan: Plan) -> str:
    precisions = {
        cell.scenario.until.precision
        for cell in plan.cells
        if cell.scenario.until and order.turns_on_each(plan.campaign, cell.scenario)
    }
    known = " or ".join(f"±{precision}" for precision in sorted(precisions))
    return f"until percentages are known to {known} over all deployments." if known else ""


def _comparisons(plan: Plan) -> int:
    return sum(cell.iteration == 0 and not _is_of_baseline(plan, cell) for cell in plan.cells)


def _is_of_baseline(plan: Plan, cell: Cell) -> bool:
    compared, base = plan.campaign.compared, plan.campaign.baseline
    return bool(dict(cell.place).get(compared, getattr(cell.scenario, compared, base)) == base)

"""The statistics on trial: how often is a verdict false, and how often is a loss found?

    python perf/trial.py [--reports 400] [--only WORD] [--keep FOLDER] [--write]

Every design that a file can ask for meets every disturbance of `simulated/disturbances.py`, in
campaigns of which the truth is known. The code that plans campaigns makes orders and pauses, the
code that paces them ends them, and the code that reports them makes the verdicts. First each kind
has `--reports` campaigns; then, of each design, the worst kinds have four times as many others, of
which alone the shares are that are printed: the worst of many shares would be too large by chance.

`--write` puts the tables into docs/method-trial.md, with those of `steadiness.py`. `--keep` keeps
each design's part in a folder, from which the next call with the same code and options takes it.
Exit status 1 where a verdict is false more often than in 6 % of reports by more than chance
explains.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Optional

import numpy as np
import steadiness
from simulated.designs import FIGURES, Campaigns, Design, simulate
from simulated.disturbances import DISTURBANCES, Disturbance, Floats
from simulated.verdicts import (
    gate_answer,
    run_by_run,
    shown_of_rounds,
    shown_while_looking,
    until_precise,
)

from cbt_crypto.report.gate import Answer

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "method-trial.md"
#: What the tables follow from; a part that was made with other code is made again.
CODE = (
    *("perf/trial.py", "perf/simulated/designs.py", "perf/simulated/disturbances.py"),
    *("perf/simulated/verdicts.py", "cbt_crypto/results/repetition.py"),
    *("cbt_crypto/report/figures/repeats.py", "cbt_crypto/plan/order.py"),
)
#: No verdict may be false more often.
FALSE = 0.06
#: Deployments after which campaigns are judged.
ROUNDS = (4, 5, 6, 8)
#: Samples of a series that are held at once.
_AT_ONCE = 4_000_000
#: Kinds that are tried again, and how many times as many reports.
_WORST, _AGAIN = 3, 4
#: Reports of each batch that also go the long way.
_CHECKED = 2


@dataclass(frozen=True)
class Trial:
    """One row of the table: a design, and what is asked of it.

    `judge` has, for each figure, whether each campaign shows anything, by column. It is tried with
    `share` of the reports: less of them is enough where each is made run by run.
    """

    name: str
    design: Design
    judge: Callable[[Campaigns, int], dict[str, Floats]]
    share: float = 1.0

    @property
    def label(self) -> str:
        """Of messages, and for --only."""
        return f"{self.name}, {self.design.size}"

    @property
    def figures(self) -> int:
        """How many figures are simulated; the largest reports have throughput alone."""
        return 1 if self.design.workloads > 4 else len(FIGURES)


def _after_rounds(campaigns: Campaigns, figure: int) -> dict[str, Floats]:
    _check(campaigns, figure)
    return {
        str(n): np.asarray(shown_of_rounds(campaigns, figure, n).any(axis=(1, 2)))
        for n in ROUNDS
        if n <= campaigns.design.rounds
    }


def _check(campaigns: Campaigns, figure: int) -> None:
    """Raise SystemExit unless the long way gives the same verdicts."""
    design = campaigns.design
    fast = shown_of_rounds(campaigns, figure, design.rounds)
    for number in range(min(_CHECKED, len(fast))):
        slow = run_by_run(campaigns, number, figure)
        for (name, load), verdict in slow.items():
            if verdict != fast[number, design.names.index(name) - 1, load]:
                raise SystemExit(f"{design}: reports and the trial differ on {name}, {load}")


def _looking(campaigns: Campaigns, figure: int) -> dict[str, Floats]:
    return {"end": shown_while_looking(campaigns, figure)}


def _run_by_run(campaigns: Campaigns, figure: int) -> dict[str, Floats]:
    verdicts = (run_by_run(campaigns, n, figure) for n in range(len(campaigns.logs[0])))
    return {"end": np.array([any(found.values()) for found in verdicts])}


def _until(precision: str) -> Callable[[Campaigns, int], dict[str, Floats]]:
    def judge(campaigns: Campaigns, figure: int) -> dict[str, Floats]:
        if precision not in campaigns.made:
            campaigns.made[precision] = [
                until_precise(campaigns, n, len(campaigns.logs), precision)
                for n in range(len(campaigns.logs[0]))
            ]
        verdicts = (found[figure] for found in campaigns.made[precision])
        return {"end": np.array([any(found.values()) for found in verdicts])}

    return judge


_SIZES = ((2, 1), (5, 4), (8, 10))


def _in_deployments(name: str, design: Design) -> Trial:
    """Designs of which verdicts are likeliest to be false are tried more often."""
    return Trial(name, design, _after_rounds, 4.0 if design.workloads <= 4 else 1.0)


TRIALS = (
    *(_in_deployments("rounds", Design("rounds", *size, 8)) for size in ((4, 1), *_SIZES)),
    *(_in_deployments("shared", Design("shared", *size, 8)) for size in _SIZES),
    *(
        _in_deployments(f"side by side, {turns}", Design("beside", *size, 8, turns, 10))
        for size, turns in ((_SIZES[0], 2), *zip(_SIZES, (6, 3, 2)))
    ),
    *(Trial("rounds, looked at", Design("rounds", *size, 8), _looking, 4.0) for size in _SIZES[:2]),
    *(
        Trial(f"{count} turns", Design("turns", *size, count, 1, 10), _run_by_run, share)
        for size, count, share in (((2, 1), 6, 0.5), ((2, 1), 20, 0.5), ((5, 4), 12, 0.25))
    ),
    *(
        Trial(f"{kind} until ±{precision}", Design(*of_design), _until(precision), share)
        for kind, precision, of_design, share in (
            ("rounds", "10%", ("rounds", 2, 1, 10), 0.4),
            ("rounds", "10%", ("rounds", 5, 4, 8), 0.1),
            ("shared", "10%", ("shared", 2, 1, 10), 0.4),
            ("side by side", "5%", ("beside", 2, 1, 8, 3, 10), 0.3),
            ("turns", "3%", ("turns", 2, 1, 20, 1, 10), 0.3),
        )
    ),
)


@dataclass
class Found:
    """Of one trial, by its label: by column the worst kind's share, name, and standard error."""

    label: str
    worst: dict[str, tuple[float, str, float]]
    exempt: dict[str, tuple[float, ...]]
    by_kind: dict[str, float]
    power: dict[str, tuple[float, ...]]


def shares(
    trial: Trial, how: Disturbance, reports: int, seed: Sequence[int]
) -> dict[tuple[str, str], float]:
    """(column, figure) -> the share of reports that show anything where nothing differs."""
    random = np.random.default_rng(seed)
    totals: dict[tuple[str, str], float] = {}
    for count in batches(trial.design, reports):
        campaigns = simulate(trial.design, how, count, 0.0, random, trial.figures)
        for number, figure in enumerate(FIGURES[: trial.figures]):
            for column, found in trial.judge(campaigns, number).items():
                key = (column, figure)
                totals[key] = totals.get(key, 0.0) + float(found.sum()) / reports
    return totals


def batches(design: Design, reports: int) -> Iterator[int]:
    """Campaigns that fit into memory at once."""
    length = int(design.timetables[0].max()) + design.seconds
    most = max(1, _AT_ONCE // length)
    while reports > 0:
        yield min(most, reports)
        reports -= most


def tried(trial: Trial, reports: int, seed: int) -> Found:
    """All kinds, and the worst of them again."""
    number = TRIALS.index(trial)
    first = max(20, round(reports * trial.share))
    by_kind = {
        how.name: shares(trial, how, first, (seed, number, place))
        for place, how in enumerate(DISTURBANCES)
    }
    columns = sorted({column for found in by_kind.values() for column, _ in found})
    exempt = [how.name for how in DISTURBANCES if how.outside]
    again: dict[str, dict[tuple[str, str], float]] = {}
    worst: dict[str, tuple[float, str, float]] = {}

    def of(found: dict[tuple[str, str], float], column: str) -> float:
        return max(share for (c, _), share in found.items() if c == column)

    rising = {
        column: sorted(set(by_kind) - set(exempt), key=lambda name: -of(by_kind[name], column))
        for column in columns
    }
    more = first * _AGAIN
    for name in {name for names in rising.values() for name in names[:_WORST]}:
        place = next(n for n, how in enumerate(DISTURBANCES) if how.name == name)
        again[name] = shares(trial, DISTURBANCES[place], more, (seed + 1, number, place))
    for column in columns:
        name = max(again, key=lambda name: of(again[name], column))
        share = of(again[name], column)
        worst[column] = (share, name, math.sqrt(max(share, 1 / more) * (1 - share) / more))
    return Found(
        trial.label,
        worst,
        {column: tuple(of(by_kind[name], column) for name in exempt) for column in columns},
        {name: max(again.get(name, found).values()) for name, found in by_kind.items()},
        power(trial, first, seed) if trial.judge is _after_rounds else {},
    )


#: By how much deployments differ, and the loss that is to be found.
POWER = (("deployments 1 %", 0.05), ("deployments 5 %", 0.1))


def power(trial: Trial, reports: int, seed: int) -> dict[str, tuple[float, ...]]:
    """Column -> of the losses of one row, the share that is shown, for each of `POWER`."""
    found: dict[str, tuple[float, ...]] = {}
    for kind, loss in POWER:
        how = next(how for how in DISTURBANCES if how.name == kind)
        random = np.random.default_rng((seed, TRIALS.index(trial), round(100 * loss)))
        totals = dict.fromkeys(ROUNDS, 0.0)
        for count in batches(trial.design, reports):
            campaigns = simulate(trial.design, how, count, loss, random, 1)
            for n in ROUNDS:
                shown = shown_of_rounds(campaigns, 0, n)[:, -1]
                totals[n] += float(shown.mean(axis=1).sum()) / reports
        for n, share in totals.items():
            found[str(n)] = (*found.get(str(n), ()), share)
    return found


def table_of_designs(found: Sequence[Found]) -> Iterator[list[str]]:
    """The worst share of each design, and what it finds."""
    yield ["design", "rows x workloads", *(f"{n} deployments" for n in ROUNDS), "worst kind",
           "±", *(f"{how.name} ({how.outside})" for how in DISTURBANCES if how.outside),
           "5 % found", "10 % found"]  # fmt: skip
    for one in found:
        ends = [str(n) for n in ROUNDS] if "4" in one.worst else ["end"]
        falses = [f"{100 * one.worst[end][0]:.1f}" for end in ends if end in one.worst]
        falses += [""] * (len(ROUNDS) - len(falses))
        _, name, error = max(one.worst.values())
        tossed = [
            ", ".join(f"{100 * one.exempt[end][n]:.0f}" for end in ends if end in one.exempt)
            for n in range(len(one.exempt[ends[-1]]))
        ]
        finds = [
            ", ".join(f"{100 * one.power[end][n]:.0f}" for end in ends if end in one.power)
            for n in range(len(POWER))
        ]
        yield [*one.label.rsplit(", ", 1), *falses, name, f"{100 * error:.1f}",
               *tossed, *finds]  # fmt: skip


#: Of the gate: rounds, what it is asked, and campaigns of each kind.
GATE_ROUNDS, GATE_LOSS, GATE_REPORTS = (4, 5, 8), 5.0, 100
_GATED = (
    *("deployments 1 %", "deployments 5 %", "heavy tails", "deep cycle of 180 s", "all at once"),
    *("stall each 30 s", "noise by both", "a bad night", "on and off", "Laplace cells"),
)


def gate_shares(rounds: int, kind: str, reports: int, seed: int) -> list[float]:
    """Of the gate's answers after so many rounds the false yes and no, and the right no and yes.

    Answers are likeliest to be false where exactly what may be lost is.
    """
    design = Design("rounds", 2, 4, rounds)
    how = next(how for how in DISTURBANCES if how.name == kind)
    random = np.random.default_rng((seed, rounds, len(kind)))
    loss = GATE_LOSS / 100
    cases = (
        ([loss] * 4, Answer.YES),
        ([loss + 1e-8, 0.0, 0.0, 0.0], Answer.NO),
        ([0.0] * 4, Answer.NO),
        ([3 * loss, 0.0, 0.0, 0.0], Answer.YES),
    )
    found = []
    for losses, which in cases:
        campaigns = simulate(design, how, reports, losses, random)
        answers = [gate_answer(campaigns, n, GATE_LOSS) for n in range(reports)]
        found.append(answers.count(which) / reports)
    return found


def table_of_gate(seed: int) -> Iterator[list[str]]:
    """The worst kind's false answers, and the right ones where deployments differ by 1 %."""
    yield ["rounds", "false yes, worst", "false no, worst", "right no", "right yes"]
    for rounds in GATE_ROUNDS:
        rows = [gate_shares(rounds, kind, GATE_REPORTS, seed) for kind in _GATED]
        worst = [f"{100 * max(row[n] for row in rows):.1f}" for n in (0, 1)]
        yield [str(rounds), *worst, *(f"{100 * rows[0][n]:.0f}" for n in (2, 3))]


def table_of_kinds(found: Sequence[Found]) -> Iterator[list[str]]:
    """Of each kind and design, the worst share over rounds and figures."""
    yield ["kind", *(one.label for one in found)]
    for how in DISTURBANCES:
        mark = f" ({how.outside})" if how.outside else " (fresh)" if how.is_fresh else ""
        yield [how.name + mark, *(f"{100 * one.by_kind[how.name]:.1f}" for one in found)]


def markdown(rows: Iterator[list[str]]) -> str:
    """As a table; columns of numbers to the right."""
    first, *rest = rows
    rule = ["---", *("---:" for _ in first[1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in (first, rule, *rest))


def put(page: str, name: str, text: str) -> str:
    """The page with that text between the marks of that name."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(\n<!-- end -->)", re.DOTALL)
    new, count = pattern.subn(lambda match: f"{match[1]}\n{text}\n{match[2]}", page)
    if not count:
        raise SystemExit(f"{PAGE}: there is no place for {name}")
    return new


def _as_part(trial: Trial, reports: int, seed: int) -> dict[str, Any]:
    return asdict(tried(trial, reports, seed))


class Kept:
    """Parts in files of a folder; without a folder each is made."""

    def __init__(self, folder: Optional[Path], *asked: int) -> None:
        self._folder = folder
        code = b"".join((ROOT / name).read_bytes() for name in CODE)
        self._tag = hashlib.sha256(code + repr(asked).encode()).hexdigest()[:12]

    def part(self, name: str, make: Callable[[], Any]) -> Any:
        """A part as it was kept, or made and kept."""
        if self._folder is None:
            return make()
        path = self._folder / f"{name.replace(' ', '-')}.{self._tag}.json"
        if not path.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(make()), encoding="utf-8")
        return json.loads(path.read_text(encoding="utf-8"))


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--reports", type=int, default=400, help="of each kind (default: 400)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", help="designs whose name has this word")
    parser.add_argument("--keep", type=Path, help="folder of the parts, to go on with")
    parser.add_argument("--write", action="store_true", help="write docs/method-trial.md")
    options = parser.parse_args(arguments)
    kept = Kept(options.keep, options.reports, options.seed)
    found = []
    for trial in TRIALS:
        if options.only and not any(word in trial.label for word in options.only):
            continue
        began = time.process_time()
        make = partial(_as_part, trial, options.reports, options.seed)
        part = kept.part(trial.label, make)
        found.append(Found(**part))
        ends = {end: f"{100 * of[0]:.1f} {of[1]}" for end, of in found[-1].worst.items()}
        finds = {n: [round(100 * p) for p in of] for n, of in found[-1].power.items()}
        taken = time.process_time() - began
        print(f"{trial.label}: {ends} found {finds}; {taken:.0f} s", file=sys.stderr, flush=True)
    tables = {
        "designs": markdown(table_of_designs(found)),
        "kinds": markdown(table_of_kinds(found)),
    }
    if options.write:
        page = PAGE.read_text(encoding="utf-8")
        tables["gate"] = kept.part("gate", lambda: markdown(table_of_gate(options.seed)))
        tables["steadiness"] = kept.part("steadiness", lambda: steadiness.table(200))
        for name, table in tables.items():
            page = put(page, name, table)
        PAGE.write_text(page, encoding="utf-8")
    else:
        print("\n\n".join(tables.values()))
    too_often = [
        f"{one.label}: {share:.1%} ({name})"
        for one in found
        for share, name, error in one.worst.values()
        if share > FALSE + 2 * error
    ]
    for sentence in too_often:
        print(f"A VERDICT IS FALSE TOO OFTEN: {sentence}")
    return 1 if too_often else 0


if __name__ == "__main__":
    sys.exit(main())

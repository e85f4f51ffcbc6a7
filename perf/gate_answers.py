"""How often `gate` answers wrongly: simulated campaigns whose loss is known.

    python perf/gate_answers.py [--campaigns 1000] [--seed 1] [--loss 5] [--markdown]

The designs, disturbances and campaigns are those of `coverage.py`, under several loads at once.
Where exactly as much is lost as may be, and so at the worst place for both answers, one of the two
is wrong: yes where no more is lost, and no where a hair more is. Exit status 1 where one of them
comes more often than in 5 % of campaigns.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from coverage import DESIGNS, Design, campaign
from rich.console import Console
from rich.table import Table
from simulated.disturbances import DISTURBANCES, Disturbance, Generator

from cbt_crypto.report.figures.metric import BY_KEY
from cbt_crypto.report.gate import Answer, Question, answers_of, overall
from cbt_crypto.report.model import Comparison, ReportCell

#: Campaigns in which it may answer wrongly.
FALSE = 0.05
#: Loads of a campaign: what is answered of all of them at once is the exit status.
LOADS = 4
MEASURED = ("one run", "2 rounds", "4 rounds", "5 rounds", "5 rounds, shared", "6 turns",
            "20 turns", "4 x 6 side by side")  # fmt: skip
_IOPS = BY_KEY["iops"]


def answer(
    design: Design, how: Disturbance, losses: Sequence[float], loss: float, random: Generator
) -> Answer:
    """The gate's answer to a campaign with a load for each of `losses`, in percent."""
    rows: list[tuple[str, ReportCell]] = []
    for lost in losses:
        values = campaign(design, how, 1 - lost / 100, random)
        found = design.estimates(values, 0)["other"]
        comparison = Comparison(100.0)
        if found is not None:
            percent = 100 * math.exp(found.center)
            half = min(found.half, 50.0)
            low, high = percent * math.exp(-half), percent * math.exp(half)
            level = found.level.value
            rest = (found.basis, level, found.p)
            comparison = Comparison(percent, low, high, *rest, errors=found.errors)
        cell = ReportCell("other", {}, "read", "measured", comparisons={"iops": comparison})
        rows.append((f"load {len(rows)}", cell))
    return overall(answers_of(rows, Question(_IOPS, loss)))


def trial(work: tuple[str, int, int, int, float]) -> list[float]:
    """Shares of campaigns: yes where all lose what they may, no where one loses a hair more.

    Then the share of right answers where nothing is lost, and where one load loses thrice that.
    """
    name, disturbed, campaigns, seed, loss = work
    design = next(design for design in DESIGNS if design.name == name)
    how = DISTURBANCES[disturbed]
    random = np.random.default_rng((seed, disturbed, len(name)))
    cases = (
        ([loss] * LOADS, Answer.YES),
        ([loss + 1e-6, *[0.0] * (LOADS - 1)], Answer.NO),
        ([0.0] * LOADS, Answer.NO),
        ([3 * loss, *[0.0] * (LOADS - 1)], Answer.YES),
    )
    return [
        sum(answer(design, how, losses, loss, random) is which for _ in range(campaigns))
        / campaigns
        for losses, which in cases
    ]


def main() -> int:
    """Print what became of all campaigns; 1 when an answer is false too often."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--campaigns", type=int, default=1000, help="of each kind (default: 1000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--loss", type=float, default=5.0)
    parser.add_argument("--only", action="append", help="a design, by its name; may be repeated")
    parser.add_argument("--markdown", action="store_true", help="as docs/method-trial.md has it")
    options = parser.parse_args()
    work = [
        (name, disturbed, options.campaigns, options.seed, options.loss)
        for name in (options.only or MEASURED)
        for disturbed in range(len(DISTURBANCES))
    ]
    with ProcessPoolExecutor() as pool:
        shares = dict(zip(((name, at) for name, at, *_ in work), pool.map(trial, work)))
    heads = ["design", "false yes, worst", "false no, worst", "of", "right no", "right yes"]
    shown: list[list[str]] = []
    worst = 0.0
    for name in options.only or MEASURED:
        own = np.array([shares[name, at] for at in range(len(DISTURBANCES))])
        at = int(own[:, :2].max(axis=1).argmax())
        worst = max(worst, float(own[:, :2].max()))
        false = [f"{100 * share:.1f}" for share in own[:, :2].max(axis=0)]
        right = [f"{100 * share:.0f}" for share in own[:, 2:].mean(axis=0)]
        shown.append([name, *false, DISTURBANCES[at].name, *right])
    _show(heads, shown, options.markdown)
    allowed = FALSE + 3 * math.sqrt(FALSE * (1 - FALSE) / options.campaigns)
    print(f"false in {100 * worst:.1f} % of {options.campaigns} campaigns at worst")
    return int(worst > allowed)


def _show(heads: Sequence[str], rows: Sequence[Sequence[str]], is_markdown: bool) -> None:
    if is_markdown:
        for row in (heads, ["---"] * len(heads), *rows):
            print(f"| {' | '.join(row)} |")
        return
    table = Table(*heads)
    for row in rows:
        table.add_row(*row)
    Console(width=160).print(table)


if __name__ == "__main__":
    sys.exit(main())

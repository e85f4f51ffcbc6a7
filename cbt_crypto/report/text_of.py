"""What the tables say of a comparison and its verdict, the same in every output."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Optional

import yaml

from cbt_crypto.report import wording
from cbt_crypto.report.figures.metric import Where, left_out
from cbt_crypto.report.model import Comparison, Pair, Report, Section, Table
from cbt_crypto.report.wording import ARCHIVE, Grid
from cbt_crypto.results.repetition import FEWEST_PAIRS, FEWEST_ROUNDS

#: Half ranges from this on, in percent, have no decimals: no column has room for them.
_WIDE = 99.95

#: Stands at a percent of what was deployed once.
OF_ONE = "of this deployment"
#: Stands where no comparison of a report carries a verdict.
NO_VERDICT = (
    "No verdict: each configuration was deployed once, so nothing here shows how much deployments "
    f"differ. With iterations: {FEWEST_ROUNDS} or more, each round measures every configuration "
    "on a new deployment; --spread-from takes the spread from an archive that has such rounds."
)
#: Stands there while rounds of the campaign are still to come.
NO_VERDICT_YET = (
    "No verdict yet: some runs of these rows are not measured. Run the campaign again with the "
    "same file and archive. A verdict needs more deployments of each configuration."
)
#: Stands there after two or three rounds.
TOO_FEW_ROUNDS = (
    "No verdict: each configuration was deployed two or three times. With so few, chance alone "
    "can put all results of one configuration above all of another's. "
    f"A verdict needs iterations: {FEWEST_ROUNDS} or more."
)
_UNRELATED = (
    "No verdict: the rows were not measured in the same rounds of one campaign. For a verdict, "
    "measure them in the same rounds."
)
_TOO_LITTLE = (
    "No verdict: what was repeated is too little to show how much deployments differ. A verdict "
    f"needs iterations: {FEWEST_ROUNDS} or more, or {FEWEST_PAIRS} pairs of turns."
)
#: What a basis says -> what stands there then; the first that any comparison has.
_WHY_NONE = {
    "failed or did no IO": "No verdict: cells failed or did no IO. Run the campaign again with the "
    "same file and archive.",
    "one pair on each": "No verdict: each deployment has one pair of turns, and a place in the "
    "round looks like a difference. A verdict needs turns: 2 or more, and iterations: "
    f"{FEWEST_ROUNDS} or more.",
    "in different campaigns": _UNRELATED,
    "not measured in the same rounds": _UNRELATED,
    "within these runs": _TOO_LITTLE,
    "turns of two groups": _TOO_LITTLE,
}
#: Stands where a campaign has only begun, or measured its baseline alone, or all but that.
NOTHING = "Nothing is compared: no workload has figures of its baseline and of another row."

_TOGETHER = "A * holds over all of these pairs; beside one row alone (--baseline), fewer count."
LEVELS = "Levels, alone and together"
#: Comparisons of a section beside those with the baseline, by their heading.
_PAIRS: Mapping[str, Callable[[Section], tuple[Pair, ...]]] = {
    LEVELS: lambda section: section.effects,
    "Rows compared with one another": lambda section: section.pairs,
}


def interval(comparison: Optional[Comparison], loss: bool) -> str:
    """`64.0 to 84.7`, or `within run +-1.3`; a dash for none, or for bounds that say nothing."""
    if comparison is None or comparison.low is None or comparison.high is None:
        return "-"
    low, high = comparison.low, comparison.high
    if comparison.says_nothing:
        return wording.TOO_NOISY
    if comparison.is_of_one_deployment:
        half = (high - low) / 2
        return f"within run ±{half:.{1 if half < _WIDE else 0}f}"
    ends = sorted((100 - low, 100 - high)) if loss else (low, high)
    return " to ".join(map(wording.tenths, ends))


def star(comparison: Comparison) -> str:
    """What marks a difference that is shown, on the page, in files and in a terminal."""
    return "*" if comparison.differs else ""


def in_percent(comparison: Comparison, loss: bool = False) -> str:
    """`81.24* (80.1 to 82.4)`."""
    shown = f"{wording.percent(comparison.percent, loss)}{star(comparison)}"
    return shown if comparison.low is None else f"{shown} ({interval(comparison, loss)})"


def verdicts(report: Report) -> str:
    """What stars and intervals mean, together and one by one."""
    if not any(cell.comparisons for cell in report.cells if not cell.is_baseline):
        return NOTHING
    if not report.verdicts:
        return _why_none(report)
    count = f"all {report.verdicts} comparisons" if report.verdicts > 1 else "the one comparison"
    whole, of = "reports", "throughput with the baseline"
    if any(ARCHIVE in table.dimensions for table in report.tables):
        # Each is an experiment of its own.
        whole, count, of = "archives", "all comparisons", f"{of} in its archive"
    return (
        f"Each interval alone holds with a chance of 95 %. At most 6 % of {whole} have a false "
        f"*; it takes {count} of {of} into account."
    )


def _why_none(report: Report) -> str:
    if report.is_unfinished:
        return NO_VERDICT_YET
    iops = [cell.comparisons["iops"] for cell in report.cells if "iops" in cell.comparisons]
    if any(one.level == "rounds" and "no verdict" not in (one.basis or "") for one in iops):
        return TOO_FEW_ROUNDS
    bases = "\n".join(one.basis or "" for one in iops)
    return next((why for said, why in _WHY_NONE.items() if said in bases), NO_VERDICT)


def definitions(report: Report) -> list[Grid]:
    """What each configuration is, as the campaign's file has it; none where all are alike."""
    rows = []
    for name, overlays in report.configurations.items():
        flow = yaml.safe_dump(overlays, default_flow_style=True, width=math.inf, sort_keys=False)
        rows.append((name, flow.strip()[1:-1] if overlays else "none"))
    grid = Grid("What each configuration is", ("Configuration", "Overlays"), [("", rows)], (), 2)
    return [grid] if len(rows) > 1 and any(report.configurations.values()) else []


def pair_grids(report: Report, tables: Iterable[Table]) -> dict[str, Grid]:
    """Rows compared with one another, and levels of a matrix, by title; `*` marks what differs."""
    grids = {}
    heads = (report.compared, "In percent of", "IOPS", "95 % interval")
    sections = [(f"{table.title}, {s.label}", s) for table in tables for s in table.sections]
    for title, of in _PAIRS.items():
        rows = [(label, list(map(_pair, of(section)))) for label, section in sections]
        if filled := [(label, pairs) for label, pairs in rows if pairs]:
            grids[title] = Grid(title, heads, filled, () if title == LEVELS else (_TOGETHER,), 2)
    return grids


def _pair(pair: Pair) -> tuple[str, ...]:
    percent = f"{pair.iops.percent:.2f}{star(pair.iops)}"
    return pair.name, pair.other, percent, interval(pair.iops, loss=False)


def bases(table: Table, where: Where) -> Iterator[str]:
    """What is left out of these figures, how all cells load, what intervals rest on, the drift."""
    if said := left_out(table.cells, where):
        yield said
    yield from (f"{said[:1].upper()}{said[1:]}" for said in (table.load, *table.bases) if said)
    for section in table.sections:
        if section.drift_percent is not None:
            drift = f"the baseline drifted by {section.drift_percent:+.1f} %"
            yield f"{section.label.capitalize()}: {drift} from its first to its last run"

"""Which cells a report shows, and which of them is 100 %."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from cbt_crypto.archive.documents import NEVER_COMPARED, Baseline, PlanDocument, PlannedCell, Scalar
from cbt_crypto.archive.folder import label_of, matches
from cbt_crypto.errors import UsageError
from cbt_crypto.report.options import ReportOptions
from cbt_crypto.results.cell.run import dimensions_of


def baseline_of(plan: PlanDocument, options: ReportOptions) -> Baseline:
    """The baseline that is asked for, else the plan's, else the first configuration.

    Raises UsageError when no cell of the plan has it.
    """
    planned = plan.baseline
    if planned is None and plan.cells:
        planned = Baseline(value=plan.cells[0].configuration)
    if planned is None:
        raise UsageError("results/plan.json holds no cell, so there is nothing to report")
    if options.baseline is None:
        return planned
    dimension, wanted = _split(options.baseline, planned.dimension, plan.cells)
    if dimension in NEVER_COMPARED:
        raise UsageError(
            f"--baseline: the values of {dimension} are different loads, which no percent "
            "compares; name another dimension"
        )
    values = values_of(dimension, plan.cells)
    for value in values:
        if str(value) == wanted:
            return Baseline(dimension=dimension, value=value)
    known = [str(value) for value in values]
    near = difflib.get_close_matches(wanted, known, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
    raise UsageError(f"--baseline: no cell has {dimension} {wanted!r}; {hint}")


def _split(text: str, default: str, cells: Iterable[PlannedCell]) -> tuple[str, str]:
    dimension, equals, value = text.partition("=")
    if equals and any(dimension in dimensions_of(cell) for cell in cells):
        return dimension, value
    return default, text


def values_of(dimension: str, cells: Iterable[PlannedCell]) -> list[Scalar]:
    """The values of a dimension, each once, in the plan's order."""
    dimensions = (dimensions_of(cell) for cell in cells)
    return list(dict.fromkeys(d[dimension] for d in dimensions if dimension in d))


def _matches(cell: PlannedCell, pattern: str) -> bool:
    return matches(label_of(cell), pattern)


def chosen_cells(
    cells: Sequence[PlannedCell], options: ReportOptions, baseline: Baseline
) -> tuple[PlannedCell, ...]:
    """The cells whose label contains, or as a glob matches, one of `only`, and their baseline's.

    Raises UsageError when a pattern matches no cell.
    """
    if not options.only:
        return tuple(cells)
    for pattern in options.only:
        if not any(_matches(cell, pattern) for cell in cells):
            example = f', e.g. "{label_of(cells[0])}"' if cells else ""
            raise UsageError(f'--only "{pattern}" matches no cell of the plan{example}')
    matching = [c for c in cells if any(_matches(c, pattern) for pattern in options.only)]
    needed = {_load(cell, baseline.dimension) for cell in matching}
    paths = {cell.path for cell in matching} | {
        cell.path
        for cell in cells
        if dimensions_of(cell).get(baseline.dimension) == baseline.value
        and _load(cell, baseline.dimension) in needed
    }
    return tuple(cell for cell in cells if cell.path in paths)


def _load(cell: PlannedCell, dimension: str) -> tuple[tuple[str, Scalar], ...]:
    """What a cell has in common with its baseline: everything but the compared dimension."""
    return tuple((k, v) for k, v in dimensions_of(cell).items() if k != dimension)

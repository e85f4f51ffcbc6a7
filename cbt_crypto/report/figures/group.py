"""Which runs stand in which row of which table."""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from cbt_crypto.archive.documents import (
    NEVER_COMPARED,
    Baseline,
    Environment,
    PlanDocument,
    PlannedCell,
    Scalar,
)
from cbt_crypto.archive.folder import label_of, matches
from cbt_crypto.errors import UsageError
from cbt_crypto.report import wording
from cbt_crypto.report.figures.doubts import control_of
from cbt_crypto.report.model import ReportOptions
from cbt_crypto.report.wording import mapping
from cbt_crypto.results.cell.run import Run, dimensions_of
from cbt_crypto.units import grouped

#: Dimensions that have a place of their own in a table.
_PLACED = ("scenario", "op_size", "mode")
_DIRECTIONS = {
    "randread": ("read",),
    "read": ("read",),
    "randwrite": ("write",),
    "write": ("write",),
}


@dataclass(frozen=True)
class SectionRuns:
    """The runs of one mode in one direction, by the value of the compared dimension."""

    dimension: str
    mode: str
    direction: str
    rows: Mapping[Scalar, tuple[Run, ...]]

    @property
    def load(self) -> Mapping[str, Scalar]:
        """What all its runs have in common: every dimension but the compared one."""
        first = next((run for runs in self.rows.values() for run in runs), None)
        dimensions = {} if first is None else first.dimensions
        return {name: value for name, value in dimensions.items() if name != self.dimension}

    @cached_property
    def key(self) -> Hashable:
        """What tells it from every other section of a report."""
        return self.mode, self.direction, tuple(sorted(self.load.items()))

    @property
    def label(self) -> str:
        """The mode in words."""
        return wording.mode(self.mode, self.direction)


#: What all cells of a table may have in common -> how it is said.
_LOAD = {
    "time": "measured for {} s", "ramp": "after a ramp of {} s", "iodepth": "iodepth {}",
    "vol_size": "volumes of {} MiB", "size": "on {} MiB of each drive",
    "compressible": "data that compresses by {} %",
}  # fmt: skip


@dataclass(frozen=True)
class TableRuns:
    """The runs of one table: a scenario, an op size, and what else the campaign varies."""

    dimensions: Mapping[str, Scalar]
    sections: tuple[SectionRuns, ...]

    @property
    def title(self) -> str:
        """The scenario and what sets this table apart from its others."""
        words = [str(self.dimensions["scenario"])]
        if self.dimensions.get("op_size") is not None:
            words.append(wording.op_size(self.dimensions["op_size"]))
        words += [
            wording.value_of(*one) for one in self.dimensions.items() if one[0] not in _PLACED
        ]
        return ", ".join(words)

    @property
    def load(self) -> str:
        """`measured for 6 s, after a ramp of 1 s, iodepth 16, volumes of 256 MiB`."""
        runs = (run for each in self.sections for row in each.rows.values() for run in row)
        found = [run.planned.parameters for run in runs]
        first = found[0] if found and "iodepth" in found[0] else {}
        alike = {name: n for name, n in first.items() if all(e.get(name) == n for e in found)}
        known = ((n, said) for name, said in _LOAD.items() if isinstance(n := alike.get(name), int))
        return ", ".join(said.format(n) for n, said in known if n)


def group(runs: Sequence[Run], compared: str, order: Sequence[Scalar]) -> tuple[TableRuns, ...]:
    """Tables in the order of `runs`, rows (values of `compared`) by `order`, others behind."""
    apart = varied((run.dimensions, compared) for run in runs)
    tables: dict[tuple[tuple[str, Scalar], ...], list[Run]] = {}
    for run in runs:
        names = ["scenario", "op_size", *apart[run.dimensions["scenario"]]]
        key = tuple((name, run.dimensions.get(name)) for name in names if name != compared)
        tables.setdefault(key, []).append(run)
    return tuple(
        TableRuns(dict(key), tuple(_sections(members, compared, order)))
        for key, members in tables.items()
    )


def varied(told: Iterable[tuple[Mapping[str, Scalar], str]]) -> dict[Scalar, list[str]]:
    """Scenario -> what tells its workloads apart; of dimensions, and which of them is compared."""
    values: dict[Scalar, dict[str, set[Scalar]]] = {}
    for dimensions, compared in told:
        seen = values.setdefault(dimensions["scenario"], {})
        for name, value in dimensions.items():
            if name not in _PLACED and name != compared:
                seen.setdefault(name, set()).add(value)
    return {
        scenario: [name for name, distinct in seen.items() if len(distinct) > 1]
        for scenario, seen in values.items()
    }


def _sections(runs: Sequence[Run], compared: str, order: Sequence[Scalar]) -> Iterable[SectionRuns]:
    modes = grouped((str(run.dimensions.get("mode", "")), run) for run in runs)
    for mode, members in modes.items():
        rows = _rows(members, compared, order)
        for direction in _directions(mode, members):
            yield SectionRuns(compared, mode, direction, rows)


def _rows(
    runs: Sequence[Run], compared: str, order: Sequence[Scalar]
) -> dict[Scalar, tuple[Run, ...]]:
    rows = grouped((run.dimensions.get(compared), run) for run in runs)
    position = {value: number for number, value in enumerate(order)}
    names = sorted(rows, key=lambda value: position.get(value, len(position)))
    return {name: tuple(rows[name]) for name in names}


def _directions(mode: str, runs: Sequence[Run]) -> tuple[str, ...]:
    directions = {record.direction for run in runs for record in run.records}
    return tuple(sorted(directions)) or _DIRECTIONS.get(mode, ("read", "write"))


def baseline_of(plan: PlanDocument, options: ReportOptions) -> Baseline:
    """The baseline asked for, else the plan's, else the first; UsageError if no cell has it."""
    planned = plan.own_baseline
    if planned is None:
        raise UsageError("results/plan.json holds no cell, so there is nothing to report")
    if options.baseline is None:
        return planned
    dimension, wanted = _split(options.baseline, planned.dimension, plan.cells)
    if wanted == control_of(plan, planned) and dimension == planned.dimension:
        raise UsageError(
            f"--baseline {wanted}: is {planned.value} again, to test it; whoever may choose of two "
            "such baselines finds a difference sooner or later"
        )
    if dimension in NEVER_COMPARED:
        raise UsageError(
            f"--baseline: the values of {dimension} are different workloads, which are not "
            "compared; name another dimension"
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


def chosen_cells(
    cells: Sequence[PlannedCell], options: ReportOptions, baseline: Baseline
) -> tuple[PlannedCell, ...]:
    """The cells whose label contains or matches one of `only`, and their baseline's; UsageError."""
    if not options.only:
        return tuple(cells)
    for pattern in options.only:
        if not any(matches(label_of(cell), pattern) for cell in cells):
            example = f', e.g. "{label_of(cells[0])}"' if cells else ""
            raise UsageError(f'--only "{pattern}" matches no cell of the plan{example}')
    matching = [c for c in cells if any(matches(label_of(c), p) for p in options.only)]
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


_PLP = {
    True: "with power-loss protection",
    False: "without power-loss protection",
    None: "power-loss protection not stated",
}


def groups(environment: Environment | None, dimension: str) -> Mapping[str, str]:
    """Drive -> its group; empty unless drives are compared and the archive describes them."""
    drives = mapping(getattr(environment, "drives", None) if dimension == "drive" else None)
    facts = {str(name): about for name, about in drives.items() if isinstance(about, Mapping)}
    told = {name: about.get("plp") for name, about in facts.items()}
    return {name: _PLP[plp if isinstance(plp, bool) else None] for name, plp in told.items()}

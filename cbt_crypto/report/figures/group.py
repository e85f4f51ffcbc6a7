"""Which runs stand in which row of which table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cbt_crypto.archive.documents import Scalar
from cbt_crypto.report import label
from cbt_crypto.results.cell.run import Run

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

    @property
    def label(self) -> str:
        """The mode in words."""
        return label.mode(self.mode, self.direction)


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
            words.append(label.op_size(self.dimensions["op_size"]))
        words += [f"{n} {value}" for n, value in self.dimensions.items() if n not in _PLACED]
        return ", ".join(words)


def group(runs: Sequence[Run], compared: str, order: Sequence[Scalar]) -> tuple[TableRuns, ...]:
    """Tables in the order of `runs`; rows by `order`, others behind in the order of `runs`.

    `compared` is the dimension whose values are the rows.
    """
    varied = _varied(runs, compared)
    tables: dict[tuple[tuple[str, Scalar], ...], list[Run]] = {}
    for run in runs:
        names = ["scenario", "op_size", *varied[run.dimensions["scenario"]]]
        key = tuple((name, run.dimensions.get(name)) for name in names if name != compared)
        tables.setdefault(key, []).append(run)
    return tuple(
        TableRuns(dict(key), tuple(_sections(members, compared, order)))
        for key, members in tables.items()
    )


def _varied(runs: Sequence[Run], compared: str) -> dict[Scalar, list[str]]:
    """Scenario -> the parameters that differ between its cells and need a table each."""
    values: dict[Scalar, dict[str, set[Scalar]]] = {}
    for run in runs:
        seen = values.setdefault(run.dimensions["scenario"], {})
        for name, value in run.dimensions.items():
            if name not in _PLACED and name != compared:
                seen.setdefault(name, set()).add(value)
    return {
        scenario: [name for name, distinct in seen.items() if len(distinct) > 1]
        for scenario, seen in values.items()
    }


def _sections(runs: Sequence[Run], compared: str, order: Sequence[Scalar]) -> Iterable[SectionRuns]:
    modes: dict[str, list[Run]] = {}
    for run in runs:
        modes.setdefault(str(run.dimensions.get("mode", "")), []).append(run)
    for mode, members in modes.items():
        rows = _rows(members, compared, order)
        for direction in _directions(mode, members):
            yield SectionRuns(compared, mode, direction, rows)


def _rows(
    runs: Sequence[Run], compared: str, order: Sequence[Scalar]
) -> dict[Scalar, tuple[Run, ...]]:
    rows: dict[Scalar, list[Run]] = {}
    for run in runs:
        rows.setdefault(run.dimensions.get(compared), []).append(run)
    position = {value: number for number, value in enumerate(order)}
    names = sorted(rows, key=lambda value: position.get(value, len(position)))
    return {name: tuple(rows[name]) for name in names}


def _directions(mode: str, runs: Sequence[Run]) -> tuple[str, ...]:
    directions = {record.direction for run in runs for record in run.records}
    return tuple(sorted(directions)) or _DIRECTIONS.get(mode, ("read", "write"))

"""A report as a value: tables of cells with their figures and comparisons."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Optional

from cbt_crypto.archive.documents import Baseline, Scalar
from cbt_crypto.report import wording
from cbt_crypto.report.figures.repeats import StandardError, p_of
from cbt_crypto.results.cell.run import Run
from cbt_crypto.units import grouped


@dataclass(frozen=True)
class ReportOptions:
    """Choices of the reader; the archive is the same whatever they are.

    `baseline` is a value, or `dimension=value`, None the plan's. `only` keeps cells by part or glob
    of the label, with their baseline. `spread_from`: an archive in rounds, for single deployments.
    """

    baseline: Optional[str] = None
    only: tuple[str, ...] = ()
    loss: bool = False
    anonymize: bool = False
    spread_from: Optional[Path] = None


#: An upper bound this many times the lower one says nothing: twenty times, or a twentieth.
_EVERYTHING = 400.0


@dataclass(frozen=True)
class Comparison:
    """A figure in percent of another row's, the baseline's as a rule.

    `low` and `high` bound the 95 % interval on `basis`, or None. `level`: rounds, turns, elsewhere
    or run (a range within single runs). `p` and `differs` are None where no verdict may be.
    """

    percent: float
    low: Optional[float] = None
    high: Optional[float] = None
    basis: Optional[str] = None
    level: Optional[str] = None
    p: Optional[float] = None
    #: The verdict: whether a difference is shown, family-wise over the report.
    differs: Optional[bool] = None
    #: What `p` follows from; the one that knows least counts.
    errors: tuple[StandardError, ...] = ()
    #: By how much `p` is raised, as the campaign is looked at while it runs.
    looks: int = 1

    @property
    def is_of_one_deployment(self) -> bool:
        """Whether the bounds are a range within single runs, and no interval of the percent."""
        return self.level == "run"

    @property
    def says_nothing(self) -> bool:
        """Whether everything that one could think of is between the bounds."""
        return self.low is not None and self.high is not None and self.high > _EVERYTHING * self.low

    def p_beyond(self, percent: float) -> Optional[float]:
        """The two-sided chance of this, were `percent` true; None where no verdict may be."""
        if self.p is None or not self.errors:
            return None
        distance = math.log(self.percent / percent)
        return min(1.0, p_of(self.errors, distance) * self.looks)


@dataclass(frozen=True)
class ControlState:
    """The control agrees in a figure, is open, too noisy, differs, is missing, or has no verdict.

    `state` is empty where there is none. A loss or gain up to these would not show.
    """

    state: str = ""
    loss_percent: float = 0.0
    gain_percent: float = 0.0

    def covers(self, one: Comparison) -> bool:
        """Whether a difference is none to believe, as the baseline may vary by as much."""
        lost, gained = self.loss_percent, self.gain_percent
        return self.state == "too noisy" and -lost <= one.percent - 100 <= gained


@dataclass(frozen=True)
class Pair:
    """The throughput of a row in percent of another but the baseline, or of a matrix level."""

    name: str
    other: str
    iops: Comparison


@dataclass(frozen=True)
class ReportCell:
    """One row of one section: a value of the compared dimension under one workload.

    `state` is measured, failed or missing, `reason` why or "not proved"; figures and comparisons
    are by metric, `alone` is its name where no heading says what it is.
    """

    name: str
    dimensions: Mapping[str, Scalar]
    direction: str
    state: str
    is_baseline: bool = False
    reason: Optional[str] = None
    figures: Mapping[str, float] = field(default_factory=dict)
    comparisons: Mapping[str, Comparison] = field(default_factory=dict)
    #: Figures that are not shown -> why.
    withheld: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    runs: tuple[Run, ...] = ()
    alone: str = ""
    #: What could do no more, as a kind of `why.Limit`; empty where nothing is known to.
    limit: str = ""
    #: What changed beside the throughput, in sentences; of rows with a verdict.
    why: tuple[str, ...] = ()
    #: Part of the mean IO's latency -> us; empty where it is not known.
    stages: Mapping[str, float] = field(default_factory=dict)

    @property
    def in_legend(self) -> str:
        """Its name in a chart."""
        return self.alone or self.name


@dataclass(frozen=True)
class Section:
    """One mode and direction of a table: a row for each compared value.

    `drift_percent` is the baseline's change of IOPS, if it was measured before and after.
    """

    label: str
    mode: str
    direction: str
    cells: tuple[ReportCell, ...]
    drift_percent: Optional[float] = None
    #: Rows compared with one another.
    pairs: tuple[Pair, ...] = ()
    #: What levels of the campaign's matrix do, alone and together.
    effects: tuple[Pair, ...] = ()

    def row(self, name: str) -> Optional[ReportCell]:
        """The row of that name."""
        return next((cell for cell in self.cells if cell.name == name), None)


@dataclass(frozen=True)
class Table:
    """One scenario and op size, and any other parameter that the campaign varies."""

    title: str
    scenario: str
    op_size: Optional[int]
    dimensions: Mapping[str, Scalar]
    sections: tuple[Section, ...]
    #: Row -> the group that it is shown in by charts; empty where rows have none.
    groups: Mapping[str, str] = field(default_factory=dict)
    #: How all its cells were measured, in words.
    load: str = ""

    @property
    def is_of_drives(self) -> bool:
        """Whether what it measures is a drive itself, without Ceph."""
        return any("drive" in cell.dimensions for cell in self.cells)

    @property
    def nodes(self) -> str:
        """Whose CPU and energy stand beside its figures."""
        return "Host" if self.is_of_drives else "OSD"

    @property
    def rows(self) -> list[tuple[Section, ReportCell]]:
        """Its rows, section by section."""
        return [(section, cell) for section in self.sections for cell in section.cells]

    @property
    def cells(self) -> list[ReportCell]:
        """What is in its rows."""
        return [cell for _, cell in self.rows]

    def has(self, key: str) -> bool:
        """Whether any of its cells has this figure."""
        return any(key in cell.figures for cell in self.cells)

    @property
    def bases(self) -> list[str]:
        """What the intervals of its percentages rest on; of which rows, where that differs."""
        rows: dict[str, dict[str, None]] = {}
        for cell in self.cells:
            basis = cell.comparisons["iops"].basis if "iops" in cell.comparisons else None
            if basis is not None:
                rows.setdefault(basis, {})[cell.name] = None
        if len(rows) < 2:
            return list(rows)
        return [f"{basis}: {', '.join(names)}" for basis, names in rows.items()]


@dataclass(frozen=True)
class Conclusion:
    """The effect of a configuration on a kind of workload, in words; figures in percent."""

    load: str
    name: str
    effect: str
    iops: Comparison
    cpu_per_io_percent: Optional[float]
    cpu_per_io: Optional[Comparison] = None


@dataclass(frozen=True)
class Report:
    """Everything that is written and shown. `records` is the table of records, row by row."""

    title: str
    baseline: Baseline
    options: ReportOptions
    tables: tuple[Table, ...]
    conclusions: tuple[Conclusion, ...]
    environment: Mapping[str, Any]
    configurations: Mapping[str, Any]
    emulated_hosts: tuple[str, ...]
    notes: tuple[str, ...]
    records: tuple[Mapping[str, Scalar], ...]
    #: How many comparisons of throughput the verdicts hold over, together.
    verdicts: int = 0
    #: What the campaign's file says of it; empty where that is not known.
    cluster: Mapping[str, Any] = field(default_factory=dict)
    #: Figure -> over how many its verdicts hold, those of an absent control included.
    family: Mapping[str, int] = field(default_factory=dict)
    #: The answer in a few sentences, and what limits its validity.
    headline: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    #: Figure -> what the control says of it, over all workloads, those too that are not shown.
    control_states: Mapping[str, ControlState] = field(default_factory=dict)
    #: Of archives that are compared: what each one's says of throughput.
    controls: Mapping[str, ControlState] = field(default_factory=dict)
    #: Whether rows that have figures have runs that are still to be measured.
    is_unfinished: bool = False
    #: Of archives that are compared, those of emulated hosts; empty where this is true of all.
    emulated_only: tuple[str, ...] = ()

    def is_emulated(self, dimensions: Mapping[str, Scalar]) -> bool:
        """Whether what is measured with these `dimensions` is of emulated processors."""
        if not self.emulated_hosts or not self.emulated_only:
            return bool(self.emulated_hosts)
        # An archive that is compared is a place's hardware, or a configuration by itself.
        name = dimensions.get(wording.ARCHIVE, dimensions.get("configuration"))
        return name is None or str(name) in self.emulated_only

    def emulated_note(self, table: Optional[Table] = None) -> str:
        """What is said of `table`, or of all together, when processors are emulated; else empty."""
        if not self.emulated_hosts:
            return ""
        if not self.emulated_only:
            return wording.EMULATED
        if table is not None and wording.ARCHIVE in table.dimensions:
            return wording.EMULATED if self.is_emulated(table.dimensions) else ""
        return wording.emulated_in(self.emulated_only)

    def control(self, key: str = "iops") -> ControlState:
        """What the control says of a figure."""
        return self.control_states.get(key, ControlState())

    @property
    def by_scenario(self) -> dict[str, list[Table]]:
        """Its tables by their scenario."""
        return grouped((table.scenario, table) for table in self.tables)

    @property
    def baseline_name(self) -> str:
        """What is 100 %: a configuration, or another dimension with its value."""
        return self.named(str(self.baseline.value))

    def named(self, value: str) -> str:
        """A value of the compared dimension where it stands alone: `2` says not of what."""
        is_usual = self.baseline.dimension in ("configuration", wording.ARCHIVE)
        return value if is_usual else f"{self.baseline.dimension} {value}"

    @property
    def compared(self) -> str:
        """The heading of the rows: the dimension that is compared."""
        return wording.dimension(self.baseline.dimension)

    @property
    def cells(self) -> tuple[ReportCell, ...]:
        """Every cell of every table."""
        return tuple(cell for table in self.tables for cell in table.cells)


def without_missing(report: Report) -> Report:
    """The report without rows that were not run and what they leave empty; a note counts them."""
    missing = [cell for cell in report.cells if cell.state == "missing"]
    if not missing:
        return report
    tables = tuple(table for table in map(_table, report.tables) if table.sections)
    have, them = ("has", "it") if len(missing) == 1 else ("have", "them")
    counted = f"{len(missing)} of {len(report.cells)} rows {have} not been run"
    # Not the same command: it may have had --only.
    note = f"{counted}; run the campaign again with the same file and archive to measure {them}"
    return replace(report, tables=tables, notes=(*report.notes, note))


def _table(table: Table) -> Table:
    sections = (_section(section) for section in table.sections)
    return replace(table, sections=tuple(section for section in sections if section.cells))


def _section(section: Section) -> Section:
    cells = tuple(cell for cell in section.cells if cell.state != "missing")
    return replace(section, cells=cells)

"""From an archive to a report: read the cells, group them, compare each with its baseline."""

from __future__ import annotations

import ctypes
import itertools
import os
import signal
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Optional

from cbt_crypto.archive.documents import (
    Baseline,
    PlanDocument,
    PlannedCell,
    PredictionDocument,
    Scalar,
    TimelineDocument,
)
from cbt_crypto.archive.files import Malformed
from cbt_crypto.archive.folder import Archive, Folder, open_archive
from cbt_crypto.errors import UsageError
from cbt_crypto.report import wording
from cbt_crypto.report.anonymize import anonymized, safe
from cbt_crypto.report.figures import doubts, interval
from cbt_crypto.report.figures.conclusion import conclude
from cbt_crypto.report.figures.doubts import CONTROL, control_of
from cbt_crypto.report.figures.factors import effects
from cbt_crypto.report.figures.group import (
    SectionRuns,
    TableRuns,
    baseline_of,
    chosen_cells,
    group,
    groups,
    values_of,
)
from cbt_crypto.report.figures.interval import Comparisons, KnownSpread, LoadRuns
from cbt_crypto.report.figures.metric import BY_KEY, FROM_MEMORY, OVERWRITTEN, without
from cbt_crypto.report.figures.of_runs import withheld
from cbt_crypto.report.headline import control_states, headline, limits
from cbt_crypto.report.model import (
    Comparison,
    ControlState,
    Pair,
    Report,
    ReportCell,
    ReportOptions,
    Section,
    Table,
)
from cbt_crypto.report.why import cycles_of_row, limit_of_row, slow_of_row, stages_of, why
from cbt_crypto.report.wording import ARCHIVE
from cbt_crypto.results.cell import record
from cbt_crypto.results.cell.kept import Kept, ReadCell
from cbt_crypto.results.cell.run import Run
from cbt_crypto.units import grouped, time_text

#: A pause longer than any of a campaign's own: it stood still and was gone on with.
_STOOD_STILL_S = 300.0


def how_it_came_out(folder: Folder) -> Iterator[str]:
    """A sentence, where the archive has a prediction; or what is wrong with that."""
    try:
        predicted = folder.document("results/prediction.json", PredictionDocument)
        timeline = folder.document("results/timeline.json", TimelineDocument)
    except Malformed as error:
        yield str(error)
        return
    if predicted is None or timeline is None or not timeline.steps:
        return
    usual, low, high = map(time_text, (predicted.seconds, predicted.low, predicted.high))
    took = seconds_of(timeline)
    inside = "" if predicted.low <= took <= predicted.high else ", outside that range"
    yield (
        f"predicted from {predicted.like}: {usual}, or {low} to {high} with a chance of 80 %; "
        f"so far it took {time_text(took)}{inside}"
    )


def seconds_of(timeline: TimelineDocument) -> float:
    """From the first step to the last one, without the time in which the campaign stood still."""
    total, end = 0.0, None
    for step in sorted(timeline.steps, key=lambda step: step.started):
        gap = 0.0 if end is None else step.started - end
        total += step.seconds + (gap if 0 < gap < _STOOD_STILL_S else 0.0)
        end = max(end or 0.0, step.started + step.seconds)
    return total


#: Fewer cells than this are read in this process: starting others would take longer.
_WORTH_A_POOL = 8


def build(archive: Path, options: Optional[ReportOptions] = None, *, fresh: bool = False) -> Report:
    """Read an archive and compare its configurations; cells that the cache knows unless `fresh`.

    UsageError for no archive or a bad option; a bad file is a warning or a failed cell.
    MemoryError also if one of the processes that read cells is killed.
    """
    options = options or ReportOptions()
    opened = open_archive(archive)
    baseline = baseline_of(opened.plan, options)
    own = baseline_of(opened.plan, ReportOptions())
    runs = read_runs(opened.folder, opened.plan.cells, fresh=fresh)
    if baseline == own or control_of(opened.plan, own) is None:
        return assemble(opened, baseline, runs, options)
    # The control tests the campaign, whatever is called 100 %.
    tested = assemble(opened, own, runs, replace(options, baseline=None, anonymize=False))
    return assemble(opened, baseline, runs, options, tested)


def read_runs(folder: Folder, cells: Sequence[PlannedCell], *, fresh: bool = False) -> list[Run]:
    """The runs of `cells`, in their order; those that are new, or all, read on all processors."""
    kept = Kept.of(folder.root)
    known = [None if fresh else kept.find(folder, cell) for cell in cells]
    unknown = [cell for cell, run in zip(cells, known) if run is None]
    anew = _read(partial(kept.read, folder), unknown)
    for cell, read in zip(unknown, anew):
        kept.keep(cell, read)
    runs = iter([read.run for read in anew])
    return [next(runs) if run is None else run for run in known]


def _read(read: Callable[[PlannedCell], ReadCell], cells: Sequence[PlannedCell]) -> list[ReadCell]:
    workers = min(len(os.sched_getaffinity(0)), len(cells))
    if workers < 2 or len(cells) < _WORTH_A_POOL:
        return [read(cell) for cell in cells]
    try:
        with ProcessPoolExecutor(workers, initializer=_end_with, initargs=(os.getpid(),)) as pool:
            return list(pool.map(read, cells))
    except BrokenProcessPool:
        # That is whom the system ends when there is none.
        raise MemoryError from None


def _end_with(parent: int) -> None:
    """Have the kernel end this worker with its parent, which may be killed, as by `timeout -k`."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def assemble(
    archive: Archive, baseline: Baseline, runs: Sequence[Run], options: ReportOptions,
    tested: Optional[Report] = None,
) -> Report:  # fmt: skip
    """The report of runs that are read; `only` chooses rows, and verdicts stay the same.

    The control is that of `tested`, where `baseline` is not the one that it repeats.
    """
    environment = archive.environment
    hosts = {} if environment is None else environment.hosts
    order = order_of_rows(archive.plan, baseline.dimension)
    sorted_runs = group(runs, baseline.dimension, order)
    control = control_of(archive.plan, baseline)
    known = None if options.spread_from is None else known_spread(options.spread_from)
    loads = _loads(sorted_runs, runs, baseline)
    comparisons = Comparisons(loads, baseline.value, _lacking(loads.values(), control), known)
    if known is not None:
        _check_spread(known, loads, comparisons)
    matrix = archive.plan.matrix if baseline.dimension == "configuration" else {}
    comparer = _Comparer(
        baseline.value, loads, comparisons, groups(environment, baseline.dimension),
        effects(matrix, loads),
    )  # fmt: skip
    all_tables = tuple(map(comparer.table, sorted_runs))
    cells = chosen_cells(archive.plan.cells, options, baseline)
    tables = _shown(all_tables, cells) if options.only else all_tables
    shown = {cell.path for cell in cells}
    states = control_states(all_tables, control) if tested is None else tested.control_states
    report = Report(
        title=archive.plan.title,
        baseline=baseline,
        options=options,
        tables=tables,
        conclusions=(),
        environment={} if environment is None else environment.model_dump(mode="json"),
        configurations=archive.plan.configurations,
        cluster=archive.plan.cluster,
        emulated_hosts=tuple(name for name, host in hosts.items() if host.emulated),
        notes=(
            *map(str, archive.problems),
            *how_it_came_out(archive.folder),
            *doubts.memory_sentences(tables),
        ),
        records=tuple(
            record.table(r for run in runs if run.planned.path in shown for r in run.records)
        ),
        control_states=states,
        verdicts=comparisons.count("iops"),
        family={key: comparisons.family(key) for key in BY_KEY},
        is_unfinished=any(
            cell.state == "measured" and any(run.is_missing for run in cell.runs)
            for table in tables
            for cell in table.cells
        ),
    )
    by_own = (all_tables, control) if tested is None else (tested.tables, CONTROL)
    report = safe(_concluded(report, _tested(report, *by_own)))
    return anonymized(report) if options.anonymize else report


def _lacking(loads: Iterable[LoadRuns], control: Optional[str]) -> set[Optional[Scalar]]:
    """The archives without a control; None is the only one."""
    found = [(load.dimensions.get(ARCHIVE), control in load.cells) for load in loads]
    return {archive for archive, _ in found} - {archive for archive, has_it in found if has_it}


def _tested(
    report: Report, tables: Iterable[Table], control: Optional[str]
) -> dict[Optional[Scalar], Report]:
    """Of several archives, each with its own control."""
    by_archive = grouped((table.dimensions.get(ARCHIVE), table) for table in tables)
    if control is None or len(by_archive) < 2:
        return {}
    return {
        name: replace(report, control_states=control_states(own, control))
        for name, own in by_archive.items()
    }


def _concluded(report: Report, parts: Mapping[Optional[Scalar], Report]) -> Report:
    """With the answer in words, and no verdict on what a control too noisy may have by chance."""
    tables = []
    for table in report.tables:
        control = parts.get(table.dimensions.get(ARCHIVE), report).control
        sections = (believed(section, control) for section in table.sections)
        tables.append(replace(table, sections=tuple(sections)))
    controls = {str(archive): part.control() for archive, part in parts.items()}
    report = replace(report, tables=tuple(tables), controls=controls)
    # A throughput that the file asked for says nothing by itself.
    free = [table for table in tables if table.dimensions.get("rate", "max") == "max"]
    told = headline(report, parts)
    return replace(report, conclusions=conclude(free), headline=told, limits=tuple(limits(report)))


def believed(section: Section, control: Callable[[str], ControlState]) -> Section:
    """The section, without verdicts on what a figure's control may have by chance."""

    def of_one(one: Comparison, key: str = "iops") -> Comparison:
        return replace(one, differs=False) if one.differs and control(key).covers(one) else one

    def row(cell: ReportCell) -> ReportCell:
        compared = {key: of_one(one, key) for key, one in cell.comparisons.items()}
        before, now = (of.get("iops") for of in (cell.comparisons, compared))
        is_void = before is not None and now is not None and before.differs and not now.differs
        return replace(cell, comparisons=compared, why=() if is_void else cell.why)

    pairs, effects = (
        tuple(replace(pair, iops=of_one(pair.iops)) for pair in of)
        for of in (section.pairs, section.effects)
    )
    return replace(section, cells=tuple(map(row, section.cells)), pairs=pairs, effects=effects)


def _shown(tables: Iterable[Table], cells: Iterable[PlannedCell]) -> tuple[Table, ...]:
    # Archives that are compared have cells at the same path.
    chosen = {(cell.configuration, cell.path, cell.parameters.get(ARCHIVE)) for cell in cells}

    def section_of(section: Section) -> Section:
        rows = tuple(
            row
            for row in section.cells
            if any(
                (p.configuration, p.path, p.parameters.get(ARCHIVE)) in chosen
                for p in (run.planned for run in row.runs)
            )
        )
        names = {row.name for row in rows}
        pairs = tuple(pair for pair in section.pairs if {pair.name, pair.other} <= names)
        return replace(section, cells=rows, pairs=pairs)

    shown = (
        replace(table, sections=tuple(s for s in map(section_of, table.sections) if s.cells))
        for table in tables
    )
    return tuple(table for table in shown if table.sections)


def order_of_rows(plan: PlanDocument, dimension: str) -> list[Scalar]:
    """The order of rows: that of the file for configurations, else that of the plan's cells."""
    if dimension == "configuration":
        return list(plan.configurations)
    return values_of(dimension, plan.cells)


def _loads(
    tables: Sequence[TableRuns], runs: Sequence[Run], baseline: Baseline
) -> dict[Hashable, LoadRuns]:
    numbers = interval.stretches(runs, baseline.dimension)
    return {
        section.key: LoadRuns.of(section.direction, section.rows, numbers, section.load)
        for table in tables
        for section in table.sections
    }


def known_spread(archive: Path) -> KnownSpread:
    """How much the deployments of another archive differed. Raises UsageError for none."""
    opened = open_archive(archive)
    baseline = baseline_of(opened.plan, ReportOptions())
    runs = read_runs(opened.folder, opened.plan.cells)
    sorted_runs = group(runs, baseline.dimension, order_of_rows(opened.plan, baseline.dimension))
    return KnownSpread(str(archive), tuple(_loads(sorted_runs, runs, baseline).values()))


def _check_spread(
    known: KnownSpread, loads: Mapping[Hashable, LoadRuns], comparisons: Comparisons
) -> None:
    """Raise UsageError where the spread of that archive is of no use to any comparison."""
    levels = comparisons.levels("iops")
    if not levels or "elsewhere" in levels:
        return
    why = "none of its configurations was deployed three times or more"
    if levels <= {"rounds", "turns"}:
        why = "each configuration was deployed several times, so that its own spread is known"
    elif not any(known.like(load.dimensions, load.direction) for load in loads.values()):
        why = "it measured none of the workloads that are reported"
    raise UsageError(f"--spread-from {known.name}: {why}")


#: Of a row whose configuration nobody looked at.
_NOT_PROVED = "not proved"


@dataclass(frozen=True)
class _Comparer:
    baseline: Scalar
    loads: Mapping[Hashable, LoadRuns]
    comparisons: Comparisons
    groups: Mapping[str, str]
    effects: Mapping[Hashable, tuple[Pair, ...]]

    def table(self, runs: TableRuns) -> Table:
        """The table of one scenario and op size: a section for each mode, a row for each value."""
        size = runs.dimensions.get("op_size")
        return Table(
            title=runs.title,
            scenario=str(runs.dimensions["scenario"]),
            op_size=size if isinstance(size, int) else None,
            dimensions=runs.dimensions,
            sections=tuple(self._section(section) for section in runs.sections),
            groups=self.groups,
            load=runs.load,
        )

    def _section(self, runs: SectionRuns) -> Section:
        key = runs.key
        return Section(
            label=runs.label,
            mode=runs.mode,
            direction=runs.direction,
            cells=tuple(self._cell(value, runs) for value in runs.rows),
            drift_percent=_drift(self.loads[key], self.baseline),
            pairs=tuple(self._pairs(key, runs)),
            effects=self.effects.get(key, ()),
        )

    def _cell(self, value: Scalar, section: SectionRuns) -> ReportCell:
        runs, direction = section.rows[value], section.direction
        known = _figures(runs, direction)
        few = {key: why for key, why in withheld(runs, direction).items() if key in known}
        figures = without(known, few)
        failed = [run for run in runs if run.failure is not None]
        reason = None
        if len(failed) == len(runs):
            reason = next((r.failure for r in failed if not r.is_missing), failed[0].failure)
        elif any(run.proof is not None and not run.proof.required for run in runs):
            reason = _NOT_PROVED
        is_baseline = value == self.baseline
        name = name_of(section.dimension, value)
        base = withheld(section.rows.get(self.baseline, ()), direction)
        comparisons = (
            (key, self._compared(section.key, value, key)) for key in without(figures, base)
        )
        compared = {key: one for key, one in comparisons if one is not None}
        limit = limit_of_row(runs)
        warned, full = ([], "") if limit is None else ([f"limited by {limit.sentence}"], limit.host)
        warned += [*cycles_of_row(runs, direction), *slow_of_row(runs)]
        warned += [
            *_warnings(runs, direction, full),
            *self._unlike_baseline(figures, section, runs),
        ]
        base_runs = section.rows.get(self.baseline, ())
        return ReportCell(
            name=f"{name}, {reason}" if reason == _NOT_PROVED else name,
            dimensions=runs[0].dimensions,
            direction=direction,
            state=_state(runs),
            is_baseline=is_baseline,
            reason=reason,
            figures=figures,
            withheld=few,
            comparisons=compared,
            warnings=tuple(warned),
            runs=runs,
            alone=_alone(section.dimension, value),
            limit="" if limit is None else limit.kind,
            why=self._why(compared.get("iops"), runs, base_runs, direction),
            stages=stages_of(runs, direction),
        )

    @cached_property
    def _compared_rows(self) -> int:
        return sum(len(load.cells) - 1 for load in self.loads.values())

    def _why(
        self, iops: Optional[Comparison], runs: Sequence[Run], base: Sequence[Run], direction: str
    ) -> tuple[str, ...]:
        if iops is None or iops.differs is None:
            return ()
        # Turns on one cluster are not independent, and whoever looks early may look often.
        if not iops.differs and iops.level != "rounds":
            return ()
        beside = 0 if iops.differs else self._compared_rows * iops.looks
        return why(runs, base, direction, beside)

    def _unlike_baseline(
        self, figures: Mapping[str, float], section: SectionRuns, runs: Sequence[Run]
    ) -> Iterator[str]:
        base_runs = section.rows.get(self.baseline, ())
        base = _figures(base_runs, section.direction, (FROM_MEMORY, OVERWRITTEN))
        yield from doubts.from_memory(figures.get(FROM_MEMORY), base.get(FROM_MEMORY))
        yield from doubts.unlike_in_cpus(runs, base_runs)
        yield from doubts.unlike_in_rate(runs, base_runs)
        yield from doubts.unlike_in_age(figures.get(OVERWRITTEN), base.get(OVERWRITTEN))

    def _compared(self, load: Hashable, value: Scalar, key: str) -> Optional[Comparison]:
        if value == self.baseline:
            return Comparison(100.0) if BY_KEY[key].better else None
        return self.comparisons.of(load, value, key)

    def _pairs(self, load: Hashable, section: SectionRuns) -> Iterator[Pair]:
        rows = [value for value in section.rows if value != self.baseline][: interval.MOST_ROWS]
        for value, other in itertools.product(rows, rows):
            comparison = self.comparisons.between(load, value, other)
            if comparison is not None:
                name = name_of(section.dimension, value)
                yield Pair(name, name_of(section.dimension, other), comparison)


def name_of(dimension: str, value: Scalar) -> str:
    """What a row is called: a value of the compared dimension, sizes with their unit."""
    return wording.op_size(value) if dimension == "op_size" else str(value)


def _alone(dimension: str, value: Scalar) -> str:
    """`replication 2`; nothing for a word or a size, which say themselves what they are."""
    is_clear = isinstance(value, str) or dimension == "op_size"
    return "" if is_clear else f"{dimension} {value}"


def _state(runs: Sequence[Run]) -> str:
    if any(run.failure is None for run in runs):
        return "measured"
    return "missing" if all(run.is_missing for run in runs) else "failed"


def _warnings(runs: Sequence[Run], direction: str, full: str) -> list[str]:
    warnings: list[str] = []
    failed = [run for run in runs if run.failure is not None]
    if 0 < len(failed) < len(runs):
        missing = sum(run.is_missing for run in runs)
        if missing:
            warnings.append(f"{missing} of {len(runs)} cells still to be measured")
        for reason, count in Counter(run.failure for run in failed if not run.is_missing).items():
            warnings.append(f"{count} of {len(runs)} cells have no figures: {reason}")
    for run in runs:
        warnings += [str(problem) for problem in run.problems]
        warnings += doubts.warnings(run, direction, full)
    of_hosts, all_of = ("processors ", "network "), len(runs)
    return [
        text + f", in {n} of {all_of} cells" * (text.startswith(of_hosts) and n < all_of)
        for text, n in Counter(warnings).items()
    ]


def _figures(runs: Sequence[Run], direction: str, keys: Iterable[str] = BY_KEY) -> dict[str, float]:
    measured = [run for run in runs if run.failure is None]
    figures = {key: BY_KEY[key].of(measured, direction) for key in keys}
    return {key: value for key, value in figures.items() if value is not None}


def _drift(load: LoadRuns, baseline: Scalar) -> Optional[float]:
    """The baseline's IOPS change in percent, last stretch to first, if others were between."""
    stretches = load.cells.get(baseline, ())
    if len(stretches) < 2:
        return None
    first, last = (
        BY_KEY["iops"].of(stretch, load.direction) for stretch in (stretches[0], stretches[-1])
    )
    return 100 * (last / first - 1) if first and last else None

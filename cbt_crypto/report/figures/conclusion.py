"""Say the effect of each configuration on each kind of workload in a word.

None is a claim too: two one-sided tests (Schuirmann, J. Pharmacokinet. Biopharm. 15(6), 1987).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Optional

from cbt_crypto.report import text_of, wording
from cbt_crypto.report.model import Comparison, Conclusion, Report, ReportCell, Section, Table
from cbt_crypto.report.wording import Grid
from cbt_crypto.results.cell.run import Run

#: An effect within this many percent either way is none.
MARGIN = 1.0
#: Throughput lost against the baseline from which on an effect has this name, in percent.
_BANDS = ((20.0, "High"), (10.0, "Moderate"), (0.0, "Low"))
_CPU = "osd_cpu_us_per_io"
#: The largest op size that counts as small, in bytes.
SMALL = 64 << 10

THRESHOLDS = (
    "Low: less than 10 % of throughput lost; Moderate: less than 20 %; High: more; Gain: more "
    "throughput than the baseline. A word is given if the whole 95 % interval is in its band, and "
    "two if it spans both. "
    f"None: the interval is within {MARGIN:g} % either way. Unclear: the interval includes no "
    "difference, or excludes it but is not significant over all comparisons. Small: up to 64 KiB."
)


def conclude(tables: Iterable[Table]) -> tuple[Conclusion, ...]:
    """One conclusion for each comparison with the baseline that carries a verdict."""
    tables = list(tables)
    loads = Counter(
        _load(cell, table, section)
        for table in tables
        for section in table.sections
        for cell in section.cells[:1]
        if any(run.records for run in cell.runs)
    )
    return tuple(
        Conclusion(
            load=_own_load(loads, cell, table, section),
            name=cell.name,
            effect=effect(cell.comparisons["iops"]),
            iops=cell.comparisons["iops"],
            cpu_per_io_percent=getattr(cell.comparisons.get(_CPU), "percent", None),
            cpu_per_io=cell.comparisons.get(_CPU),
        )
        for table in tables
        for section, cell in table.rows
        if not cell.is_baseline
        and "iops" in cell.comparisons
        and cell.comparisons["iops"].differs is not None
    )


def _load(cell: ReportCell, table: Table, section: Section) -> str:
    size = "" if table.op_size is None else "small" if table.op_size <= SMALL else "large"
    words = filter(None, (size, section.label))
    return f"{_clients(cell.runs, table)}, {' '.join(words)}"


def _own_load(loads: Mapping[str, int], cell: ReportCell, table: Table, section: Section) -> str:
    """The workload in words; with the table's title where several tables are of that workload."""
    load = _load(cell, table, section)
    return load if loads.get(load, 0) < 2 else f"{load} ({table.title})"


def effect(iops: Comparison) -> str:
    """The name of the effect on throughput; nothing without a verdict."""
    if iops.differs is None or iops.low is None or iops.high is None:
        return ""
    least, most = 100 - iops.high, 100 - iops.low
    if least >= -MARGIN and most <= MARGIN:
        return "None"
    if not iops.differs:
        return "Unclear"
    if most <= 0:
        return "Gain"
    first, last = _band(least), _band(most)
    return first if first == last else f"{first} to {last}"


def _band(lost: float) -> str:
    return next((name for start, name in _BANDS if lost >= start), _BANDS[-1][1])


def by_load(conclusions: Iterable[Conclusion]) -> dict[str, dict[str, Conclusion]]:
    """Workload -> the conclusions on it by configuration."""
    found: dict[str, dict[str, Conclusion]] = {}
    for one in conclusions:
        found.setdefault(one.load, {})[one.name] = one
    return found


def change(conclusion: Conclusion, loss: bool = False) -> str:
    """The change in percent, or the percent lost; its interval where no difference is shown."""
    iops = conclusion.iops
    if iops.says_nothing and not iops.differs:
        return wording.TOO_NOISY
    if iops.low is not None and iops.high is not None and not iops.differs:
        if loss:
            return f"{text_of.interval(iops, loss)} % lost"
        return f"{iops.low - 100:+.1f} to {iops.high - 100:+.1f} %"
    return f"{100 - iops.percent:.1f} % lost" if loss else f"{iops.percent - 100:+.1f} %"


def _clients(runs: Sequence[Run], table: Table) -> str:
    """How many processes there were, and whether each had one IO under way at a time."""
    run = next(run for run in runs if run.records)
    if len({(record.host, record.volume) for record in run.records}) > 1:
        return "many clients"
    depth = run.dimensions.get("iodepth")
    return "single client, sync" if depth == 1 else "single client"


#: Metric -> its word.
_METRICS = {"bandwidth_bytes_per_s": "bandwidth", "iops": "IOPS"}
_MODES = {"read": "read", "write": "write", "randread": "random read", "randwrite": "random write"}
#: Dimensions that have a place of their own in such a table.
_PLACED = ("scenario", "op_size", "drive")


def effects(report: Report) -> tuple[Grid, Grid]:
    """The conclusions, with what their words mean: a column for each row, and a line for each."""
    loads, loss = by_load(report.conclusions), report.options.loss
    names = list(dict.fromkeys(name for of in loads.values() for name in of))
    words = {
        load: {name: f"{one.effect} ({change(one, loss)})" for name, one in of.items()}
        for load, of in loads.items()
    }
    rows = [[load, *(of.get(name, "-") for name in names)] for load, of in words.items()]
    heads = ["Workload", *map(report.named, names)]
    lines = [
        (load, [(report.named(n), text) for n, text in of.items()]) for load, of in words.items()
    ]
    across = Grid("Effect on throughput", heads, [("", rows)], (THRESHOLDS,), len(heads))
    return across, replace(across, headings=("", ""), sections=lines, words=2)


def loss_tables(report: Report, scenario: str) -> Iterator[Grid]:
    """Percent lost by drive and IO size, of a scenario on drives; none where those are compared."""
    tables = report.by_scenario.get(scenario, [])
    if report.baseline.dimension == "drive" or not any(map(_drive, tables)):
        return
    columns = tuple(sorted({table.op_size for table in tables if table.op_size is not None}))
    cells = (cell for table in tables for cell in table.cells)
    names = dict.fromkeys(cell.name for cell in cells if not cell.is_baseline)
    modes = dict.fromkeys(section.mode for table in tables for section in table.sections)
    heads = ["Device", *(f"{wording.op_size(column)} % loss" for column in columns)]
    for figure, word in _METRICS.items():
        for mode in modes:
            for name in names:
                title = f"Performance losses {_MODES.get(mode, mode)} {word}, {name}"
                yield Grid(title, heads, [("", _rows(tables, mode, name, figure, columns))])


def _drive(table: Table) -> Optional[str]:
    drives = (cell.dimensions.get("drive") for cell in table.cells)
    return next((str(drive) for drive in drives if drive is not None), None)


def _rows(
    tables: Sequence[Table], mode: str, name: str, figure: str, columns: Sequence[int]
) -> list[list[str]]:
    """By everything but the IO size; shallow queues first, as they were published."""
    rows: dict[tuple[int, str], dict[int, float]] = {}
    for table in tables:
        for cell in (cell for section, cell in table.rows if section.mode == mode):
            comparison = cell.comparisons.get(figure)
            if cell.name == name and table.op_size is not None:
                row = rows.setdefault((_depth(cell), _label(table, cell)), {})
                if comparison is not None:
                    row[table.op_size] = 100 - comparison.percent
    return [
        [key[1], *(f"{rows[key][c]:.2f}" if c in rows[key] else "-" for c in columns)]
        for key in sorted(rows, key=lambda key: key[0])
    ]


def _depth(cell: ReportCell) -> int:
    depth = cell.dimensions.get("iodepth")
    return depth if isinstance(depth, int) else 1


def _label(table: Table, cell: ReportCell) -> str:
    """`NVME`, or `NVME iodepth=32`, and what else the campaign varies."""
    words = [str(_drive(table))]
    words += [f"iodepth={_depth(cell)}"] if _depth(cell) != 1 else []
    varied = table.dimensions.items()
    words += [f"{key}={value}" for key, value in varied if key not in (*_PLACED, "iodepth")]
    return " ".join(words)

"""The effect of each configuration on each kind of load, as None, Low, Moderate or High.

A difference within noise has no figure of its own: it is None where the interval leaves no room
for a moderate change, else Unclear.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cbt_crypto.report.model import Conclusion, ReportCell, Section, Table
from cbt_crypto.results.cell.run import Run

#: Throughput lost against the baseline from which on an effect has this name, in percent.
LOW_FROM, MODERATE_FROM, HIGH_FROM = 1.0, 10.0, 20.0
#: The largest op size that counts as small, in bytes.
SMALL = 64 << 10
#: The overlay -> what it is a case of.
_KINDS = {"luks": "on-disk", "secure_messenger": "over-the-wire"}

THRESHOLDS = (
    f"Low: less than {MODERATE_FROM:g} % of throughput lost; Moderate: less than {HIGH_FROM:g} %; "
    f"High: more; Gain: significantly more throughput than the baseline. None: less than "
    f"{LOW_FROM:g} % either way, or within noise with an interval that excludes a change of "
    f"{MODERATE_FROM:g} %. Unclear: within noise, and such a change is not excluded. "
    "Small: up to 64 KiB."
)


def conclude(tables: Iterable[Table], configurations: Mapping[str, Any]) -> tuple[Conclusion, ...]:
    """One conclusion for each measured cell that has a baseline."""
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
            kind=_kind(configurations.get(cell.name)),
            effect=effect(cell),
            iops=cell.comparisons["iops"],
            cpu_per_io_percent=_cpu(cell),
        )
        for table in tables
        for section in table.sections
        for cell in section.cells
        if not cell.is_baseline and "iops" in cell.comparisons
    )


def _load(cell: ReportCell, table: Table, section: Section) -> str:
    words = filter(None, (_size(table), section.label))
    return f"{_clients(cell.runs, table)}, {' '.join(words)}"


def _own_load(loads: Mapping[str, int], cell: ReportCell, table: Table, section: Section) -> str:
    """The load in words; with the table's title where several tables are of that load."""
    load = _load(cell, table, section)
    return load if loads.get(load, 0) < 2 else f"{load} ({table.title})"


def effect(cell: ReportCell) -> str:
    """The name of the effect on throughput."""
    comparison = cell.comparisons["iops"]
    lost = 100 - comparison.percent
    if comparison.is_within_noise and comparison.low is not None and comparison.high is not None:
        widest = max(100 - comparison.low, comparison.high - 100)
        return "Unclear" if widest >= MODERATE_FROM else "None"
    if abs(lost) < LOW_FROM:
        return "None"
    if lost < 0:
        return "Gain"
    return "Low" if lost < MODERATE_FROM else "Moderate" if lost < HIGH_FROM else "High"


def change(conclusion: Conclusion) -> str:
    """What stands beside the word: the change in percent; within noise, what it may be."""
    iops = conclusion.iops
    if iops.is_within_noise and iops.low is not None and iops.high is not None:
        return f"within noise, {iops.low - 100:+.1f} to {iops.high - 100:+.1f} %"
    return f"{iops.percent - 100:+.1f} %" + ("" if iops.low is not None else ", no interval")


def _cpu(cell: ReportCell) -> float | None:
    comparison = cell.comparisons.get("osd_cpu_us_per_io")
    return None if comparison is None else comparison.percent


def _kind(overlays: Any) -> str:
    """`on-disk`, `over-the-wire`, both, or nothing where neither is part of it."""
    names = overlays if isinstance(overlays, Mapping) else {}
    return " + ".join(kind for overlay, kind in _KINDS.items() if overlay in names)


def _size(table: Table) -> str:
    """`small` or `large`; nothing of requests that have no size, or of all sizes together."""
    if table.op_size is None:
        return ""
    return "small" if table.op_size <= SMALL else "large"


def _clients(runs: Sequence[Run], table: Table) -> str:
    """How many processes there were, and whether each had one IO under way at a time."""
    run = next(run for run in runs if run.records)
    if len({(record.host, record.volume) for record in run.records}) > 1:
        return "many clients"
    depth = run.dimensions.get("iodepth")
    return "single client, sync" if depth == 1 else "single client"

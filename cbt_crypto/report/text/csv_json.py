"""report.csv (one row a figure) and report.json (everything)."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from cbt_crypto.report import text_of
from cbt_crypto.report.figures.conclusion import THRESHOLDS
from cbt_crypto.report.figures.metric import BY_KEY
from cbt_crypto.report.model import Comparison, Conclusion, Report, ReportCell, Table
from cbt_crypto.report.options import ReportOptions
from cbt_crypto.results.cell.in_window import Series
from cbt_crypto.results.cell.run import Run

FORMAT = 2
_COLUMNS = (
    "direction", "state", "reason", "emulated", "figure", "unit", "value",
    "percent_of_baseline", "interval_low_percent", "interval_high_percent", "level", "differs",
    "basis", "control_differs", "withheld",
)  # fmt: skip


def tidy(report: Report) -> str:
    """One row a figure of a cell, every dimension a column; a cell without figures has one row."""
    dimensions = list(dict.fromkeys(name for cell in report.cells for name in cell.dimensions))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*map(_plain_text, dimensions), *_COLUMNS])
    doubt = bool(report.control)
    for cell in report.cells:
        placed = [_plain_text(cell.dimensions.get(name, "")) for name in dimensions]
        state = [
            cell.direction,
            cell.state,
            _plain_text(cell.reason or ""),
            report.is_emulated(cell.dimensions),
        ]
        if not cell.figures:
            writer.writerow([*placed, *state, *[""] * (len(_COLUMNS) - len(state) - 2), doubt, ""])
        for key, value in cell.figures.items():
            compared = _compared(cell.comparisons.get(key))
            writer.writerow([*placed, *state, key, BY_KEY[key].unit, value, *compared, doubt, ""])
        for key, why in cell.withheld.items():
            empty = [key, BY_KEY[key].unit, "", *_compared(None)]
            writer.writerow([*placed, *state, *empty, doubt, why])
    return text.getvalue()


def _plain_text(value: Any) -> Any:
    """Text that a spreadsheet does not take for a formula, which might start a program."""
    return f"'{value}" if isinstance(value, str) and value[:1] in tuple("=+-@\t\r") else value


def _compared(comparison: Comparison | None) -> list[Any]:
    if comparison is None:
        return [""] * 6
    values = (
        comparison.percent, comparison.low, comparison.high, comparison.level, comparison.differs,
        comparison.basis,
    )  # fmt: skip
    return ["" if value is None else value for value in values]


def document(report: Report) -> dict[str, Any]:
    """Everything the report knows, of plain JSON types."""
    everything = {
        "format": FORMAT,
        "title": report.title,
        "control": list(report.control),
        "verdicts": report.verdicts,
        "is_unfinished": report.is_unfinished,
        "verdicts_in_words": text_of.verdicts(report),
        "baseline": report.baseline.model_dump(),
        "options": _options(report.options),
        "emulated_hosts": list(report.emulated_hosts),
        "emulated_only": list(report.emulated_only),
        "emulated_note": report.emulated_note() or None,
        "notes": list(report.notes),
        "configurations": report.configurations,
        "environment": report.environment,
        "conclusions": [_conclusion(conclusion) for conclusion in report.conclusions],
        "conclusion_thresholds": THRESHOLDS,
        "tables": [_table(table) for table in report.tables],
        "records": list(report.records),
    }
    plain: dict[str, Any] = _plain(everything)
    return plain


def _options(options: ReportOptions) -> dict[str, Any]:
    spread = None if options.spread_from is None else str(options.spread_from)
    return {**asdict(options), "spread_from": spread}


def _conclusion(conclusion: Conclusion) -> dict[str, Any]:
    return asdict(conclusion)


def _table(table: Table) -> dict[str, Any]:
    return {
        "title": table.title,
        "dimensions": table.dimensions,
        "groups": table.groups,
        "sections": [
            {
                "label": section.label,
                "mode": section.mode,
                "direction": section.direction,
                "baseline_drift_percent": section.drift_percent,
                "cells": [_cell(cell) for cell in section.cells],
                "pairs": [asdict(pair) for pair in section.pairs],
            }
            for section in table.sections
        ],
    }


def _cell(cell: ReportCell) -> dict[str, Any]:
    return {
        "name": cell.name,
        "dimensions": cell.dimensions,
        "state": cell.state,
        "reason": cell.reason,
        "is_baseline": cell.is_baseline,
        "figures": cell.figures,
        "withheld": cell.withheld,
        "comparisons": {key: asdict(comparison) for key, comparison in cell.comparisons.items()},
        "warnings": cell.warnings,
        "runs": [_run(run, cell.direction) for run in cell.runs],
    }


def _run(run: Run, direction: str) -> dict[str, Any]:
    histogram = run.histograms.get(direction)
    within = run.within.get(direction)
    return {
        "path": run.planned.path,
        "iteration": run.planned.iteration,
        "failure": run.failure,
        "started_epoch_s": run.started,
        "window": None if run.window is None else asdict(run.window),
        "start_skew_s": run.start_skew_s,
        "apart_s": run.apart_s,
        "warmup_s": run.warmup_s,
        "from_logs": direction in run.in_window,
        "proof": None if run.proof is None else run.proof.model_dump(mode="json"),
        "nodes": [asdict(node) for node in run.nodes],
        "cpu_percent_per_second": run.cpu_percent,
        "osd_energy": [asdict(use) for use in run.osd_energy],
        "bootstrap": None if within is None else asdict(within),
        "series": _series(run.series.get(direction)),
        "clat_histogram": None
        if histogram is None
        else {"latency_ns": histogram.latencies_ns, "count": histogram.counts},
    }


def _series(series: Series | None) -> dict[str, Any] | None:
    if series is None:
        return None
    return {
        "start_epoch_s": series.start_epoch_s,
        "iops": series.iops.round(3),
        "clat_ns_mean": series.clat_ns_mean.round(),
        "clat_ns_p99": series.clat_ns_p99.round(),
    }


def _plain(value: Any) -> Any:
    """Arrays become lists and NaN becomes null, which is what JSON has."""
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

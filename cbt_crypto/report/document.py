"""report.json and report.csv as published formats: written, described, and read back."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Optional, Union

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cbt_crypto.archive.documents import Baseline
from cbt_crypto.archive.files import first_fault, one_line
from cbt_crypto.errors import UsageError
from cbt_crypto.report import text_of
from cbt_crypto.report.anonymize import safe
from cbt_crypto.report.figures.conclusion import THRESHOLDS
from cbt_crypto.report.figures.doubts import CONTROL, is_control
from cbt_crypto.report.figures.metric import BY_KEY, log_sds
from cbt_crypto.report.figures.repeats import StandardError
from cbt_crypto.report.headline import control_states
from cbt_crypto.report.model import (
    Comparison,
    Conclusion,
    ControlState,
    Pair,
    Report,
    ReportCell,
    ReportOptions,
    Section,
    Table,
)
from cbt_crypto.results.cell.in_window import Series
from cbt_crypto.results.cell.run import Run

FORMAT = 2
_COLUMNS = (
    "direction", "state", "reason", "emulated", "figure", "unit", "value",
    "percent_of_baseline", "significant", "interval_low_percent", "interval_high_percent",
    "level", "differs", "basis", "control", "control_loss_percent", "control_gain_percent",
    "withheld",
)  # fmt: skip


def tidy(report: Report) -> str:
    """One row a figure of a cell, every dimension a column; a cell without figures has one row."""
    dimensions = _dimensions(report)
    rows: list[list[Any]] = [[*dimensions, *_COLUMNS]]
    for cell in report.cells:
        placed = _placed(report, cell, dimensions)
        if not cell.figures:
            rows.append([*placed, *[""] * (len(_COLUMNS) - 4)])
        told = [(key, value, "") for key, value in cell.figures.items()]
        for key, value, why in (*told, *((key, "", why) for key, why in cell.withheld.items())):
            compared = _compared(None if why else cell.comparisons.get(key))
            said = report.control(key)
            control = _fields(said).values() if said.state else ("", "", "")
            rows.append([*placed, key, BY_KEY[key].unit, value, *compared, *control, why])
    return _csv(rows)


def wide(report: Report) -> str:
    """One row a cell, a column a figure; those that have a percent have three more for it."""
    dimensions = _dimensions(report)
    keys = [key for key in BY_KEY if any(key in cell.figures for cell in report.cells)]
    compared = [key for key in keys if any(key in cell.comparisons for cell in report.cells)]
    ends = ("percent", "low", "high")
    columns = [*_COLUMNS[:4], "iops_differs", *keys]
    columns += [f"{key}_{end}" for key in compared for end in ends]
    rows: list[list[Any]] = [[*dimensions, *columns]]
    for cell in report.cells:
        iops = cell.comparisons.get("iops")
        row = [*_placed(report, cell, dimensions), None if iops is None else iops.differs]
        row += [cell.figures.get(key) for key in keys]
        row += [getattr(cell.comparisons.get(key), end, None) for key in compared for end in ends]
        rows.append(["" if value is None else value for value in row])
    return _csv(rows)


def _dimensions(report: Report) -> list[str]:
    return list(dict.fromkeys(name for cell in report.cells for name in cell.dimensions))


def _placed(report: Report, cell: ReportCell, dimensions: Sequence[str]) -> list[Any]:
    """A row's dimensions, and the first four of `_COLUMNS`."""
    placed = [cell.dimensions.get(name, "") for name in dimensions]
    emulated = report.is_emulated(cell.dimensions)
    return [*placed, cell.direction, cell.state, cell.reason or "", emulated]


def _csv(rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    # No spreadsheet takes a text for a formula, which might start a program.
    csv.writer(text, lineterminator="\n").writerows(
        [f"'{v}" if isinstance(v, str) and v[:1] in _FORMULA else v for v in row] for row in rows
    )
    return text.getvalue()


#: How a formula begins; in East Asian programs also in wide characters.
_FORMULA = tuple("=+-@\t\r\uff1d\uff0b\uff0d\uff20")


def _compared(comparison: Comparison | None) -> list[Any]:
    if comparison is None:
        return [""] * 7
    values = (
        comparison.percent, text_of.star(comparison), comparison.low, comparison.high,
        comparison.level, comparison.differs, comparison.basis,
    )  # fmt: skip
    return ["" if value is None else value for value in values]


def document(report: Report) -> dict[str, Any]:
    """Everything the report knows, of plain JSON types."""
    everything = {
        "format": FORMAT,
        **_fields(report),
        "verdicts_in_words": text_of.verdicts(report),
        "emulated_note": report.emulated_note() or None,
        "conclusion_thresholds": THRESHOLDS,
        "tables": [_written_table(table) for table in report.tables],
    }
    plain: dict[str, Any] = _plain(everything)
    return plain


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _written_table(table: Table) -> dict[str, Any]:
    sections = [
        {
            **_fields(section),
            "baseline_drift_percent": section.drift_percent,
            "cells": [
                {
                    **_fields(cell),
                    "stages_us": cell.stages,
                    "runs": [_run(run, cell.direction) for run in cell.runs],
                }
                for cell in section.cells
            ],
        }
        for section in table.sections
    ]
    return {**_fields(table), "sections": sections}


def _run(run: Run, direction: str) -> dict[str, Any]:
    histogram = run.histograms.get(direction)
    within = run.within.get(direction)
    return {
        "path": run.planned.path,
        "iteration": run.planned.iteration,
        "failure": run.failure,
        "started_epoch_s": run.started,
        "window": run.window,
        "start_skew_s": run.start_skew_s,
        "apart_s": run.apart_s,
        "warmup_s": run.warmup_s,
        "from_logs": direction in run.in_window,
        "proof": run.proof,
        "nodes": run.nodes,
        "cpu_percent_per_second": run.cpu_percent,
        "osd_energy": run.osd_energy,
        "bootstrap": None
        if within is None
        else {**_fields(within), "log_sd": {**within.log_sd, **log_sds(within)}},
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
    """Arrays become lists, what has fields a mapping, and NaN null, which is what JSON has."""
    # Of these there are the most.
    if isinstance(value, (str, int, float)) or value is None:
        return None if isinstance(value, float) and not math.isfinite(value) else value
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if is_dataclass(value):
        return _plain(_fields(value))
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.ndarray):
        return np.where(np.isfinite(value), value, np.array(None)).tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


_Value = Union[bool, int, float, str, None]
#: No figure, percent or error is larger: what is made of some of them is a number too.
_LARGEST = 1e60
_Figure = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST)]


class _OpenModel(BaseModel):
    """Keep what is not named here, so that newer documents of the same format are read."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)
    #: What a report has in its place.
    becomes: ClassVar[Any]

    def _changed(self) -> dict[str, Any]:
        """Return the fields whose name or value differs in the report."""
        return {}

    def value(self) -> Any:
        """Return the report's object for this part."""
        values = self._changed()
        values = {**{name: _value(v) for name, v in self if name not in values}, **values}
        names = [field.name for field in fields(self.becomes) if field.name in values]
        return self.becomes(**{name: values[name] for name in names})


def _value(part: Any) -> Any:
    if isinstance(part, (list, tuple)):
        return tuple(map(_value, part))
    if isinstance(part, dict):
        return {key: _value(value) for key, value in part.items()}
    return part.value() if isinstance(part, _OpenModel) else part


class ErrorPart(_OpenModel):
    """What an interval and its p follow from; null is what was without bound."""

    becomes = StandardError
    error: Optional[float] = Field(None, ge=0, le=_LARGEST)
    degrees: float = Field(gt=0, le=_LARGEST)
    is_sequence: bool = False
    is_own: bool = False

    def _changed(self) -> dict[str, Any]:
        return {"error": math.inf if self.error is None else self.error}


class ComparisonPart(_OpenModel):
    """A figure in percent of the baseline's, with the ends of its 95 % interval."""

    becomes = Comparison
    percent: float = Field(ge=0, le=_LARGEST)
    low: Optional[float] = Field(None, ge=0, le=_LARGEST)
    high: Optional[float] = Field(None, ge=0, le=_LARGEST)
    basis: Optional[str] = Field(None, description="what the interval rests on")
    level: Optional[str] = Field(None, description="since format 2: what was repeated")
    p: Optional[float] = Field(None, ge=0, le=1, description="since format 2: by chance alone")
    looks: int = Field(1, ge=1, le=1000, description="by how much p is raised")
    within_noise: Optional[bool] = Field(None, description="format 1: whether it includes 100 %")
    differs: Optional[bool] = Field(None, description="since format 2: the verdict")
    errors: list[ErrorPart] = []


class CellPart(_OpenModel):
    """One row: a configuration under one workload. `figures` and `comparisons` are by metric."""

    becomes = ReportCell
    name: str
    dimensions: dict[str, _Value]
    state: Literal["measured", "failed", "missing"]
    reason: Optional[str] = None
    is_baseline: bool = False
    figures: dict[str, Optional[_Figure]] = {}
    withheld: dict[str, str] = Field({}, description="figures that are not shown, and why")
    comparisons: dict[str, ComparisonPart] = {}
    warnings: list[str] = []
    limit: str = Field("", description="what could do no more")
    why: list[str] = Field([], description="what changed beside the throughput, in sentences")
    stages_us: dict[str, _Figure] = Field({}, description="parts of the mean IO's latency")
    runs: list[dict[str, Any]] = Field([], description="every run behind it, with its proof")
    alone: str = Field("", description="its name where no heading says what it is")

    def _changed(self) -> dict[str, Any]:
        return {
            "direction": "",
            "figures": {k: v for k, v in self.figures.items() if v is not None and k in BY_KEY},
            "withheld": {key: why for key, why in self.withheld.items() if key in BY_KEY},
            "stages": self.stages_us,
            "runs": (),
        }


class PairPart(_OpenModel):
    """A row in percent of another one, neither of which is the baseline."""

    becomes = Pair
    name: str
    other: str
    iops: ComparisonPart


class SectionPart(_OpenModel):
    """One mode, in one direction."""

    becomes = Section
    label: str
    mode: str
    direction: str
    baseline_drift_percent: Optional[_Figure] = None
    cells: list[CellPart]
    pairs: list[PairPart] = []
    effects: list[PairPart] = Field([], description="levels of the matrix, alone and together")

    def _changed(self) -> dict[str, Any]:
        cells = tuple(replace(cell.value(), direction=self.direction) for cell in self.cells)
        return {"cells": cells, "drift_percent": self.baseline_drift_percent}


class TablePart(_OpenModel):
    """One scenario and op size."""

    becomes = Table
    title: str
    dimensions: dict[str, _Value]
    sections: list[SectionPart]
    groups: dict[str, str] = Field({}, description="row -> the group that charts show it in")
    load: str = Field("", description="how all its cells were measured, in words")

    def _changed(self) -> dict[str, Any]:
        size = self.dimensions.get("op_size")
        scenario = str(self.dimensions.get("scenario"))
        return {"scenario": scenario, "op_size": size if isinstance(size, int) else None}


class ControlStatePart(_OpenModel):
    """What the control says of a figure: agrees, open, too noisy, differs, missing, no verdict."""

    becomes = ControlState
    state: str = ""
    loss_percent: _Figure = Field(0.0, description="a loss of so much would not show")
    gain_percent: _Figure = Field(0.0, description="a gain of so much would not show")


class ConclusionPart(_OpenModel):
    """The effect of a configuration on a kind of workload, in words."""

    becomes = Conclusion
    load: str
    name: str
    effect: str
    iops: ComparisonPart
    cpu_per_io_percent: Optional[_Figure] = None
    cpu_per_io: Optional[ComparisonPart] = None


class OptionsPart(_OpenModel):
    """What its reader chose."""

    becomes = ReportOptions
    baseline: Optional[str] = None
    only: tuple[str, ...] = ()
    loss: bool = False
    anonymize: bool = False
    spread_from: Optional[str] = None


class ReportDocument(_OpenModel):
    """The whole of report.json."""

    becomes = Report
    format: int = Field(ge=1, le=FORMAT)
    title: str = ""
    baseline: Baseline
    verdicts: int = Field(0, ge=0, le=2**53, description="comparisons that have one")
    headline: tuple[str, ...] = Field((), description="the answer, in sentences")
    limits: tuple[str, ...] = Field((), description="what limits its validity")
    control_states: dict[str, ControlStatePart] = Field({}, description="what it says of a figure")
    controls: dict[str, ControlStatePart] = Field({}, description="that of each compared archive")
    is_unfinished: bool = False
    emulated_only: tuple[str, ...] = Field((), description="archives of emulated hosts")
    options: OptionsPart = OptionsPart()
    emulated_hosts: list[str] = []
    notes: list[str] = []
    configurations: dict[str, Any] = {}
    environment: dict[str, Any] = {}
    conclusions: list[ConclusionPart] = []
    tables: list[TablePart]
    records: list[dict[str, _Value]] = []
    charts: list[str] = Field([], description="files in charts/ that were written with it")


def report_schema() -> dict[str, Any]:
    """The JSON Schema of report.json."""
    schema = ReportDocument.model_json_schema()
    name = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": name, "$id": f"urn:cbt-crypto:report:{FORMAT}", **schema}


def reopened(data: bytes) -> Report:
    """The report, without runs, of a report.json of this or an older format; UsageError."""
    try:
        document = ReportDocument.model_validate_json(data)
    except ValidationError as error:
        key, *_ = fault = first_fault(error)
        is_newer = key == "format"
        why = "is of a newer format; a newer cbt-crypto reads it" if is_newer else ": ".join(fault)
        raise UsageError(f"report.json {one_line(why)}") from None
    return _report(document)


def _report(document: ReportDocument) -> Report:
    report: Report = document.value()
    if not report.control_states and any(is_control(report, cell) for cell in report.cells):
        report = replace(report, control_states=control_states(report.tables, CONTROL))
    return safe(report)

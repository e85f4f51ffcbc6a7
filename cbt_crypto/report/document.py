"""report.json as a published format: its JSON Schema, and reading it back, older ones too.

Format 1 is of 0.1; format 2 tells of verdicts where format 1 told of noise. A change that a reader
of the last one would misread is a new number; what is only added is not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal, Optional, TypeVar, Union

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cbt_crypto.archive.documents import Baseline
from cbt_crypto.archive.files import printable
from cbt_crypto.errors import UsageError
from cbt_crypto.report.figures.repeats import StandardError
from cbt_crypto.report.model import Comparison, Conclusion, Pair, Report, ReportCell, Section, Table
from cbt_crypto.report.options import ReportOptions
from cbt_crypto.report.sanitize import map_text
from cbt_crypto.report.text.csv_json import FORMAT

_DataclassT = TypeVar("_DataclassT")
_Value = Union[bool, int, float, str, None]


class _OpenModel(BaseModel):
    """What is not named here is kept, so that newer documents of the same format are read."""

    model_config = ConfigDict(extra="allow")


class ErrorPart(_OpenModel):
    """What an interval and its p follow from; null is what was without bound."""

    error: Optional[float] = None
    degrees: int
    is_sequence: bool = False
    least: float = 0.0


class ComparisonPart(_OpenModel):
    """A figure in percent of the baseline's, with the ends of its 95 % interval."""

    percent: float
    low: Optional[float] = None
    high: Optional[float] = None
    basis: Optional[str] = Field(None, description="what the interval rests on")
    within_noise: Optional[bool] = Field(None, description="format 1: whether it includes 100 %")
    differs: Optional[bool] = Field(None, description="since format 2: the verdict")
    errors: list[ErrorPart] = []


class CellPart(_OpenModel):
    """One row: a configuration under one load. `figures` and `comparisons` are by metric."""

    name: str
    dimensions: dict[str, _Value]
    state: Literal["measured", "failed", "missing"]
    reason: Optional[str] = None
    is_baseline: bool = False
    figures: dict[str, Optional[float]] = {}
    withheld: dict[str, str] = Field({}, description="figures that are not shown, and why")
    comparisons: dict[str, ComparisonPart] = {}
    warnings: list[str] = []
    runs: list[dict[str, Any]] = Field([], description="every run behind it, with its proof")


class PairPart(_OpenModel):
    """A row in percent of another one, neither of which is the baseline."""

    name: str
    other: str
    iops: ComparisonPart


class SectionPart(_OpenModel):
    """One mode, in one direction."""

    label: str
    mode: str
    direction: str
    baseline_drift_percent: Optional[float] = None
    cells: list[CellPart]
    pairs: list[PairPart] = []


class TablePart(_OpenModel):
    """One scenario and op size."""

    title: str
    dimensions: dict[str, _Value]
    sections: list[SectionPart]
    groups: dict[str, str] = Field({}, description="row -> the group that charts show it in")


class ConclusionPart(_OpenModel):
    """The effect of a configuration on a kind of load, in words."""

    load: str
    name: str
    kind: str
    effect: str
    iops: ComparisonPart
    cpu_per_io_percent: Optional[float] = None


class ReportDocument(_OpenModel):
    """The whole of report.json."""

    format: int = Field(ge=1, le=FORMAT)
    title: str = ""
    baseline: Baseline
    options: dict[str, Any] = {}
    emulated_hosts: list[str] = []
    notes: list[str] = []
    configurations: dict[str, Any] = {}
    environment: dict[str, Any] = {}
    conclusions: list[ConclusionPart] = []
    tables: list[TablePart]
    records: list[dict[str, _Value]] = []


def report_schema() -> dict[str, Any]:
    """The JSON Schema of report.json."""
    schema = ReportDocument.model_json_schema()
    name = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": name, "$id": f"cbt-crypto-report-{FORMAT}", **schema}


def reopened(data: bytes) -> Report:
    """The report of a report.json, of this format or an older one.

    It has no runs: what is drawn of single seconds is not in it. Raises UsageError.
    """
    try:
        document = ReportDocument.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        why = f"{key}: {first['msg']}"
        if key == "format":
            why = "is of a newer format; a newer cbt-crypto reads it"
        raise UsageError(f"report.json {printable(why)}") from None
    return _report(document)


def _report(document: ReportDocument) -> Report:
    options = {key: value for key, value in document.options.items() if value is not None}
    if isinstance(options.get("only"), list):
        options["only"] = tuple(map(str, options["only"]))
    report = Report(
        title=document.title,
        baseline=document.baseline,
        options=_dataclass_of(ReportOptions, options),
        tables=tuple(_table(table) for table in document.tables),
        conclusions=tuple(_conclusion(part) for part in document.conclusions),
        environment=document.environment,
        configurations=document.configurations,
        emulated_hosts=tuple(document.emulated_hosts),
        notes=tuple(document.notes),
        records=tuple(document.records),
        **_more(Report, document),
    )
    return map_text(report, printable)


def _table(table: TablePart) -> Table:
    size = table.dimensions.get("op_size")
    return Table(
        title=table.title,
        scenario=str(table.dimensions.get("scenario")),
        op_size=size if isinstance(size, int) else None,
        dimensions=table.dimensions,
        sections=tuple(_section(section) for section in table.sections),
        groups=table.groups,
    )


def _section(section: SectionPart) -> Section:
    return Section(
        label=section.label,
        mode=section.mode,
        direction=section.direction,
        cells=tuple(_cell(cell, section.direction) for cell in section.cells),
        drift_percent=section.baseline_drift_percent,
        pairs=tuple(Pair(p.name, p.other, _comparison(p.iops)) for p in section.pairs),
    )


def _cell(cell: CellPart, direction: str) -> ReportCell:
    return ReportCell(
        name=cell.name,
        dimensions=cell.dimensions,
        direction=direction,
        state=cell.state,
        is_baseline=cell.is_baseline,
        reason=cell.reason,
        figures={key: value for key, value in cell.figures.items() if value is not None},
        withheld=cell.withheld,
        comparisons={key: _comparison(part) for key, part in cell.comparisons.items()},
        warnings=tuple(cell.warnings),
    )


def _comparison(compared: ComparisonPart) -> Comparison:
    errors = tuple(_error(part) for part in compared.errors)
    return _dataclass_of(Comparison, {**compared.model_dump(), "errors": errors})


def _error(part: ErrorPart) -> StandardError:
    error = math.inf if part.error is None else part.error
    return StandardError(error, part.degrees, part.is_sequence, part.least)


def _conclusion(part: ConclusionPart) -> Conclusion:
    values = {**part.model_dump(), "iops": _comparison(part.iops)}
    return _dataclass_of(Conclusion, values)


def _dataclass_of(kind: type[_DataclassT], values: Mapping[str, Any]) -> _DataclassT:
    """A dataclass made of those `values` that it has fields for."""
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**{key: value for key, value in values.items() if key in names})


def _more(kind: type[Any], document: _OpenModel) -> dict[str, Any]:
    """Plain fields that newer documents have and the model has too."""
    extra, names = document.model_extra or {}, {field.name for field in fields(kind)}
    return {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in extra.items()
        if key in names
    }

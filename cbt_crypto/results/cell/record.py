"""The record: one row a cell, iteration, client process and direction, with units in the names."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Optional

import numpy as np
from numpy.typing import NDArray
from pydantic_core import CoreSchema, core_schema

from cbt_crypto.archive.documents import Scalar


@dataclass(frozen=True)
class Record:
    """What one client process did in one direction of one cell; a field is a column.

    Times are epoch seconds of the head's clock, without ramp; CPU is percent of one CPU.
    """

    run: str
    iteration: int
    dimensions: Mapping[str, Scalar]
    host: str
    volume: str
    direction: str
    start_epoch_s: Optional[float]
    runtime_s: float
    ios: int
    bytes: int
    iops: float
    bandwidth_bytes_per_s: float
    clat_ns_mean: float
    #: By their keys in `PERCENTILES`, each of which is a column.
    percentiles_ns: Mapping[str, Optional[float]]
    clat_ns_max: float
    fio_usr_cpu_percent: float
    fio_sys_cpu_percent: float


def table(records: Iterable[Record]) -> list[dict[str, Scalar]]:
    """The rows as flat dictionaries, every dimension a column; the same columns in each row."""
    rows = list(records)
    dimensions = dict.fromkeys(name for row in rows for name in row.dimensions)
    return [
        {**{name: row.dimensions.get(name) for name in dimensions}, **dict(_columns(row))}
        for row in rows
    ]


def _columns(row: Record) -> Iterator[tuple[str, Scalar]]:
    for field in fields(row):
        if field.name == "percentiles_ns":
            yield from row.percentiles_ns.items()
        elif field.name != "dimensions":
            yield field.name, getattr(row, field.name)


@dataclass(frozen=True)
class _Text:
    """pydantic's way from a 1-D array to text and back: little-endian bytes, for NaN and speed."""

    kind: str

    def write(self, array: NDArray[Any]) -> str:
        return base64.b64encode(array.astype(self.kind, casting="safe").tobytes()).decode()

    def read(self, value: object) -> NDArray[Any]:
        if isinstance(value, np.ndarray):
            return value
        if not isinstance(value, str):
            raise ValueError("is no array")
        return np.frombuffer(base64.b64decode(value, validate=True), self.kind).copy()

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.read, serialization=core_schema.plain_serializer_function_ser_schema(self.write)
        )


Floats = Annotated[NDArray[np.float64], _Text("<f8")]
Ints = Annotated[NDArray[np.int64], _Text("<i8")]

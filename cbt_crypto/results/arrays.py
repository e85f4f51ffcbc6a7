"""The arrays of records: what they hold, and how they are written down and read again exactly."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic_core import CoreSchema, core_schema


@dataclass(frozen=True)
class _Text:
    """pydantic's way from an array of one dimension to text and back: its bytes, little end first.

    Decimal digits would do for numbers, but neither for NaN nor for how long reading them takes.
    """

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

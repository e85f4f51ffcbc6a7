"""`time` as a mapping: measure until the interval of the percent is narrow enough."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Optional

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    ValidationError,
    model_serializer,
    model_validator,
)
from typing_extensions import Self

from cbt_crypto.results.precision.deployments import FIRST

#: More than 0, and less than 100.
PERCENT = r"^(0\.[0-9]{0,3}[1-9]|[1-9][0-9]?(\.[0-9]{1,4})?)%$"

#: What a percent may be asked of, by the report's keys.
Asked = Literal["iops", "clat_ns_mean"]


class MeasureUntil(BaseModel):
    """Blocks of seconds, each a run of the load, until the percents are known well enough."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    precision: Annotated[str, StringConstraints(pattern=PERCENT)] = Field(
        description="largest distance from a percent to the ends of its 95 % interval, e.g. 1%"
    )
    min: int = Field(30, ge=1, le=2_592_000, description="least seconds to measure")
    max: int = Field(300, ge=1, le=2_592_000, description="most seconds to measure")
    block: int = Field(10, ge=2, le=86_400, description="seconds of one block")
    warmup: Optional[int] = Field(
        None,
        ge=0,
        le=43_200,
        description="seconds left out at the start of every block, whatever they hold; default: "
        "a fifth of the block",
    )
    metrics: Optional[list[Asked]] = Field(
        None,
        min_length=1,
        description="the figures whose percents are to be known: iops, clat_ns_mean; default: "
        "iops, and both where the scenario has a rate",
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.block <= self.max or not self.min <= self.max:
            raise ValueError("max must be at least min, and at least one block")
        if self.warmup_s > self.block / 2:
            raise ValueError("warmup must be at most half of a block")
        return self

    @model_serializer(mode="wrap")
    def _as_asked(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without what is not asked for, as archives have it that were written before."""
        written: dict[str, Any] = handler(self)
        if self.metrics is None:
            del written["metrics"]
        return written

    @property
    def warmup_s(self) -> float:
        """Seconds that are left out of each block, the same under every configuration."""
        return float(self.block // 5 if self.warmup is None else self.warmup)

    @property
    def half(self) -> float:
        """`precision` as half the width of an interval of logarithms."""
        return math.log1p(float(self.precision.rstrip("%")) / 100)

    @property
    def fewest(self) -> int:
        """The number of blocks that are measured in any case."""
        return math.ceil(self.min / self.block)

    def fewest_of(self, turns: int) -> int:
        """The same where deployments of so many blocks each are added, a whole number of them."""
        return turns * max(FIRST, math.ceil(self.fewest / turns))

    @property
    def most(self) -> int:
        """The number of blocks after which a cell ends, precise or not."""
        return math.ceil(self.max / self.block)


def until_of(parameters: Mapping[str, Any]) -> Optional[MeasureUntil]:
    """What a cell's parameters say, wherever they come from; None for a fixed time."""
    value = parameters.get("time")
    if not isinstance(value, Mapping):
        return None
    try:
        return MeasureUntil.model_validate(dict(value))
    except ValidationError:
        return None


def asked_of(parameters: Mapping[str, Any]) -> tuple[Asked, ...]:
    """The figures whose percents decide when a cell ends that has such parameters.

    At a rate the file sets the IOPS, which say nothing: then it is the latency that differs. The
    IOPS count all the same, as a configuration may not reach the rate.
    """
    until = until_of(parameters)
    if until is not None and until.metrics is not None:
        return tuple(until.metrics)
    return ("iops",) if parameters.get("rate", "max") == "max" else ("iops", "clat_ns_mean")

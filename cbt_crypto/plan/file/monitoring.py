"""The `monitoring_profiles` section: what watches the nodes while a cell is measured."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Optional

from pydantic import AfterValidator, Field, field_validator, model_validator

from cbt_crypto.plan.file.field_types import FileSection

Role = Literal["head", "clients", "osds", "mons", "mgrs"]


def _words(arguments: str) -> str:
    try:
        shlex.split(arguments)
    except ValueError as error:
        raise ValueError("has a quotation mark that is not closed") from error
    return arguments


#: Arguments of a command, quoted as for a shell.
Arguments = Annotated[str, AfterValidator(_words)]


class CollectlProfile(FileSection):
    """collectl runs beside every cell, unless there is a `sampler`."""

    nodes: list[Role] = Field(
        ["clients", "osds", "mons"], description="roles on whose hosts collectl runs"
    )
    args: Arguments = Field(
        "-s+mYZ -i 1:10",
        description="what collectl records, and how often: every second, processes every 10 s",
    )


class SamplerProfile(FileSection):
    """Our own sampler runs in place of collectl; it needs nothing but Python on a host."""

    nodes: list[Role] = Field(
        ["clients", "osds", "mons"], description="roles on whose hosts the sampler runs"
    )


class PerfProfile(FileSection):
    """perf stat or perf record runs beside every cell."""

    nodes: list[Role] = Field(["osds"], description="roles on whose hosts perf runs")
    perf_cmd: str = Field("perf", description="command for perf(1)")
    args: Arguments = Field("stat -a -I 1000", description="perf's arguments")


class MonitoringProfiles(FileSection):
    """What watches the nodes: collectl or the sampler always does, perf on request."""

    collectl: Optional[CollectlProfile] = Field(
        None, description="how collectl is run, on every host of a role"
    )
    sampler: Optional[SamplerProfile] = Field(None, description="samples in place of collectl")
    perf: Optional[PerfProfile] = Field(None, description="runs perf too")

    @field_validator("collectl", "sampler", "perf", mode="before")
    @classmethod
    def _a_name_alone_means_its_defaults(cls, value: Any) -> Any:
        return {} if value is None else value

    @model_validator(mode="before")
    @classmethod
    def _either_of_the_two_samples(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        if "sampler" in values and "collectl" in values:
            raise ValueError("has collectl and sampler; take one, as both record the same")
        return values if "sampler" in values else {"collectl": {}, **values}

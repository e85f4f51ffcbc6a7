"""The `neighbours` key: load beside the cluster, as from virtual machines on its hosts."""

from __future__ import annotations

from typing import Optional

from pydantic import Field

from cbt_crypto.plan.file.field_types import HostName, Section
from cbt_crypto.plan.file.monitoring import Arguments, Role


class Neighbours(Section):
    """Load by stress-ng on some hosts during each cell, the same in all configurations."""

    hosts: Optional[list[HostName]] = Field(
        None, min_length=1, description="hosts of the campaign that have it; else those of `roles`"
    )
    roles: list[Role] = Field(
        ["osds"], min_length=1, description="roles on whose hosts it runs; not used with `hosts`"
    )
    cpu: int = Field(1, ge=1, le=4096, description="workers that compute, on each host")
    cpu_load: int = Field(
        100, ge=1, le=100, description="percent of the time in which each of them does"
    )
    args: Arguments = Field("", description="more options of stress-ng, for other stressors")
    least_percent: int = Field(
        25, ge=0, le=100, description="a cell fails in which they got less than so much of the CPU "
        "time that they asked for",
    )  # fmt: skip
    stress_cmd: str = Field("stress-ng", description="command for stress-ng(1)")

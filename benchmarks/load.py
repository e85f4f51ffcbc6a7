"""How a load that is given for all processes together is shared out among them."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Optional, Union

from pydantic import Field

#: The baseline's measured maximum is asked for in percent of it.
_PERCENT = re.compile(r"^(\d+(?:\.\d+)?)%$")

Iops = Annotated[int, Field(ge=1, le=1 << 40)]
Share = Annotated[str, Field(pattern=r"^(?:0*[1-9]\d?(?:\.\d+)?|0*\.\d+|0*100(?:\.0+)?)%$")]
#: `max`, IOPS of all processes together, or percent of what the baseline did at `max`.
Rate = Union[Literal["max"], Iops, Share]


def share_of(rate: Rate) -> Optional[float]:
    """50 % as 0.5; None for a rate that is no percent."""
    match = _PERCENT.match(rate) if isinstance(rate, str) else None
    return float(match[1]) / 100 if match else None


def depths(total: Optional[int], iodepth: int, volumes: int) -> tuple[int, ...]:
    """IOs in flight of each process of a client.

    A total is shared out as CBT does it: the remainder to the first volumes, and where it is less
    than their number to as many of them.
    """
    if total is None:
        return (iodepth,) * volumes
    each, more = divmod(total, volumes)
    by_volume = (each + (n < more) for n in range(volumes))
    return tuple(depth for depth in by_volume if depth)


def options(rate: Rate, processes: int, mode: str, rwmixread: int) -> dict[str, object]:
    """fio's options for the part of one of `processes`, all jobs of all of them alike."""
    if not isinstance(rate, int):
        return {}
    rate_of_process = rate / processes
    if mode in ("rw", "randrw"):
        parts = (rate_of_process * rwmixread / 100, rate_of_process * (100 - rwmixread) / 100)
        return {"rate_iops": ",".join(str(max(1, round(part))) for part in parts)}
    return {"rate_iops": max(1, round(rate_of_process))}

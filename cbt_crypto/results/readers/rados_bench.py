"""What upstream CBT keeps of `rados bench`: the summary that it prints, as one JSON mapping."""

from __future__ import annotations

import json
from collections.abc import Mapping

from cbt_crypto.archive.files import Malformed
from cbt_crypto.results.readers.fio import FioOutput, Job, Side

_MARK = "Total time run"
_MIB = 1 << 20


def parse_rados_bench(data: bytes) -> FioOutput:
    """One job of one direction, without percentiles; Malformed without its figures."""
    try:
        summary = json.loads(data)
    except ValueError as error:
        raise Malformed(f"is not JSON: {error}") from None
    if not isinstance(summary, dict):
        raise Malformed("is not a mapping")
    direction = "write" if "Total writes made" in summary else "read"
    ios = int(_number(summary, f"Total {direction}s made"))
    seconds = _number(summary, _MARK)
    bandwidth = _number(summary, "Bandwidth (MB/sec)") * _MIB
    if ios <= 0 or seconds <= 0:
        raise Malformed("tells of no IO")
    side = Side(
        direction=direction,
        ios=ios,
        bytes=round(bandwidth * seconds),
        iops=ios / seconds,
        bandwidth_bytes_per_s=bandwidth,
        runtime_s=seconds,
        clat_ns_mean=_number(summary, "Average Latency(s)") * 1e9,
        clat_ns_max=_number(summary, "Max latency(s)") * 1e9,
        percentiles_ns={},
    )
    return FioOutput("rados bench", None, (Job("rados", None, 0, {}, 0.0, 0.0, (side,)),))


def _number(summary: Mapping[str, object], key: str) -> float:
    try:
        return float(str(summary[key]))
    except (KeyError, ValueError):
        raise Malformed(f"has no number for {key!r}") from None

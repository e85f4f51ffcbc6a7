"""What etcd's own benchmark tool prints: requests per second and a distribution of latencies."""

from __future__ import annotations

import re

from cbt_crypto.archive.files import Malformed
from cbt_crypto.results.readers.fio import FioOutput, Job, Side

#: "  Requests/sec:	7996.3959", "  Total:	2.5011 secs."
_SUMMARY = re.compile(r"^\s+(Total|Slowest|Fastest|Average|Stddev|Requests/sec):\s+([\d.]+)")
#: "  99.9% in 0.3126 secs."
_PERCENTILE = re.compile(r"^\s+([\d.]+)% in ([\d.]+) secs\.")
#: A bar of its histogram: "  0.0402 [998]	|...".
_BAR = re.compile(r"^\s+[\d.]+ \[(\d+)\]")
#: The scenario's own line behind it.
_ENDED = re.compile(r"^ended ([\d.]+)")
#: "  [105] 	rpc error: ..." behind this heading.
_ERRORS = "Error distribution:"


def parse_etcd_benchmark(data: bytes) -> FioOutput:
    """One job of writes, without bytes; Malformed if not whole, or a request failed."""
    text = data.decode("utf-8", "replace")
    if _ERRORS in text:
        lines = text.partition(_ERRORS)[2].strip().splitlines()
        raise Malformed(f"tells of requests that failed: {(lines or ['?'])[0].strip()[:200]}")
    lines = text.splitlines()
    summary = {match[1]: _number(match[2]) for match in map(_SUMMARY.match, lines) if match}
    percentiles = {
        _number(match[1]): _number(match[2]) * 1e9
        for match in map(_PERCENTILE.match, lines)
        if match
    }
    requests = sum(int(match[1]) for match in map(_BAR.match, lines) if match)
    missing = {"Total", "Slowest", "Average", "Requests/sec"} - summary.keys()
    if missing or not percentiles or not requests:
        lacking = sorted(missing)[0] if missing else "a distribution of latencies"
        raise Malformed(f"is not the whole output of etcd's benchmark tool: it lacks {lacking}")
    ended = next((match for match in map(_ENDED.match, lines) if match), None)
    side = Side(
        direction="write",
        ios=requests,
        bytes=0,
        iops=summary["Requests/sec"],
        bandwidth_bytes_per_s=0.0,
        runtime_s=summary["Total"],
        clat_ns_mean=summary["Average"] * 1e9,
        clat_ns_max=summary["Slowest"] * 1e9,
        percentiles_ns=percentiles,
    )
    job = Job("put", None, 0, {}, 0.0, 0.0, (side,))
    return FioOutput("etcd benchmark", _number(ended[1]) if ended else None, (job,), "")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise Malformed(f"holds {text[:40]!r} where a number belongs") from None

"""fio's JSON output (`json` and `json+`): one or several jobs, local or in client/server mode."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any, Optional

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cbt_crypto.archive.files import Malformed, check_values
from cbt_crypto.results.readers.fio_job import SYNC, FioOutput, Job, Side
from cbt_crypto.results.readers.histogram import from_bins

_START = re.compile(r"^\{", re.MULTILINE)
#: Places tried as the start of the JSON; text before it may hold a brace too.
_ATTEMPTS = 32
#: The entry that sums up all others in client/server mode.
_SUMMARY_JOB = "All clients"
_COUNT = Field(default=0, ge=0, le=2**63 - 1)
#: A latency in ns or a count of IOs; the sum of a campaign's is still a 64-bit number.
_BinNumber = Annotated[int, Field(ge=0, lt=2**53)]


class _Model(BaseModel):
    model_config = ConfigDict(allow_inf_nan=False, frozen=True)


class _Latency(_Model):
    max: float = Field(default=0.0, ge=0)
    mean: float = Field(default=0.0, ge=0)
    N: Optional[int] = Field(default=None, ge=0)
    percentile: dict[str, float] = {}
    bins: Optional[dict[_BinNumber, _BinNumber]] = None


class _Side(_Model):
    io_bytes: int = _COUNT
    bw_bytes: float = Field(default=0.0, ge=0)
    iops: float = Field(default=0.0, ge=0)
    runtime: float = Field(default=0.0, ge=0)
    total_ios: int = _COUNT
    clat_ns: _Latency = _Latency()


class _Sync(_Model):
    lat_ns: _Latency = _Latency()


class _Job(_Model):
    jobname: str = ""
    hostname: Optional[str] = None
    error: int = 0
    port: Optional[int] = None
    options: dict[str, Any] = Field(default={}, alias="job options")
    read: _Side = _Side()
    write: _Side = _Side()
    sync: _Sync = _Sync()
    usr_cpu: float = 0.0
    sys_cpu: float = 0.0


class _Output(_Model):
    version: str = Field(alias="fio version")
    timestamp_ms: Optional[int] = None
    timestamp: Optional[int] = None
    global_options: dict[str, Any] = Field(default={}, alias="global options")
    jobs: list[_Job] = []
    client_stats: list[_Job] = []


def parse_fio_json(data: bytes) -> FioOutput:
    """Read what fio wrote with `--output-format=json` or `json+`.

    Text around the JSON is allowed (an error message before it, `normal` output behind it).
    Raises Malformed when there is no whole JSON document of fio's in it.
    """
    check_values(data)
    text = data.decode("utf-8", "replace")
    document, start = _first_document(text)
    try:
        output = _Output.model_validate(document)
    except ValidationError as error:
        raise Malformed(f"is not fio's JSON: {_first_error(error)}") from None
    names = _hosts(output.client_stats)
    jobs = [_job(job, names, output.global_options) for job in _jobs(output)]
    if not jobs:
        raise Malformed("holds no job, so fio did not run one")
    printed = output.timestamp_ms
    if printed is None and output.timestamp is not None:
        printed = output.timestamp * 1000
    when = None if printed is None else printed / 1000
    return FioOutput(output.version, when, tuple(jobs), text[:start].strip())


def _first_document(text: str) -> tuple[Any, int]:
    """The first JSON object that starts a line and is whole, and where it starts."""
    decoder = json.JSONDecoder()
    reason = "is empty" if not text.strip() else f"holds no JSON but {_quoted(text)}"
    for match in islice(_START.finditer(text), _ATTEMPTS):
        try:
            return decoder.raw_decode(text, match.start())[0], match.start()
        except (ValueError, RecursionError) as error:
            reason = f"is cut off or damaged: its JSON does not end well ({error})"
    raise Malformed(reason)


def _quoted(text: str) -> str:
    return repr(text.strip().splitlines()[0][:160])


def _first_error(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    return f"{key}: {first['msg']}"


def _jobs(output: _Output) -> list[_Job]:
    return [*output.jobs, *(job for job in output.client_stats if job.jobname != _SUMMARY_JOB)]


def _hosts(jobs: list[_Job]) -> dict[tuple[Optional[str], Optional[int]], Optional[str]]:
    """Host and port of each fio server -> its name, with the port where a host has several."""
    servers = {(job.hostname, job.port) for job in jobs}
    hosts = [host for host, _ in servers]
    return {
        (host, port): f"{host}:{port}" if hosts.count(host) > 1 else host for host, port in servers
    }


def _job(
    job: _Job,
    hosts: dict[tuple[Optional[str], Optional[int]], Optional[str]],
    shared: dict[str, Any],
) -> Job:
    options = {str(key): str(value) for key, value in {**shared, **job.options}.items()}
    sides = (_side("read", job.read), _side("write", job.write))
    return Job(
        name=job.jobname,
        host=hosts.get((job.hostname, job.port)),
        error=job.error,
        options=options,
        usr_cpu_percent=job.usr_cpu,
        sys_cpu_percent=job.sys_cpu,
        sides=(*(side for side in sides if side.ios), *_syncs(job)),
    )


def _syncs(job: _Job) -> Iterator[Side]:
    """fsync and fdatasync as a direction of their own; fio counts them by their latencies."""
    latency, runtime_s = job.sync.lat_ns, max(job.read.runtime, job.write.runtime) / 1000
    if latency.N and runtime_s:
        yield Side(
            direction=SYNC,
            ios=latency.N,
            bytes=0,
            iops=latency.N / runtime_s,
            bandwidth_bytes_per_s=0.0,
            runtime_s=runtime_s,
            clat_ns_mean=latency.mean,
            clat_ns_max=latency.max,
            percentiles_ns=_percentiles(latency.percentile),
            histogram=None if latency.bins is None else from_bins(latency.bins),
        )


def _side(direction: str, side: _Side) -> Side:
    latency = side.clat_ns
    return Side(
        direction=direction,
        ios=side.total_ios,
        bytes=side.io_bytes,
        iops=side.iops,
        bandwidth_bytes_per_s=side.bw_bytes,
        runtime_s=side.runtime / 1000,
        clat_ns_mean=latency.mean,
        clat_ns_max=latency.max,
        percentiles_ns=_percentiles(latency.percentile),
        histogram=None if latency.bins is None else from_bins(latency.bins),
    )


def _percentiles(given: dict[str, float]) -> dict[float, float]:
    try:
        return {float(percent): value for percent, value in given.items()}
    except ValueError:
        raise Malformed("names a percentile that is not a number") from None

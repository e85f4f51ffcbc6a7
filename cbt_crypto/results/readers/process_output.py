"""Which reader understands what a client process left: by the kind that cell.json gives it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from cbt_crypto.archive.files import Malformed
from cbt_crypto.results.readers.etcd_benchmark import parse_etcd_benchmark
from cbt_crypto.results.readers.fio import FioOutput, parse_fio_json, parse_fio_normal
from cbt_crypto.results.readers.kbench import parse_kbench
from cbt_crypto.results.readers.rados_bench import parse_rados_bench

_JSON = re.compile(rb"^\{", re.MULTILINE)
_NORMAL = re.compile(rb"^(?:<[^>]*> )?.*: \(groupid=", re.MULTILINE)


def parse_output(data: bytes) -> FioOutput:
    """fio's JSON where there is any, else its normal output. Raises Malformed."""
    if not _JSON.search(data) and _NORMAL.search(data):
        return parse_fio_normal(data)
    return parse_fio_json(data)


#: Kind of a process -> reader of its results. What is read has the shape of fio's output.
READERS: Mapping[str, Callable[[bytes], FioOutput]] = {
    "fio": parse_output,
    "etcd_benchmark": parse_etcd_benchmark,
    "rados_bench": parse_rados_bench,
    "kbench": parse_kbench,
}
#: Between a kind and the name of the one job that counts, of a file with the jobs of several loads.
NAMED = ":"


def read_output(kind: str, data: bytes) -> FioOutput:
    """The results of a process. Raises Malformed, also for a kind that is not known."""
    kind, _, name = kind.partition(NAMED)
    reader = READERS.get(kind)
    if reader is None:
        raise Malformed(f"is of a process of kind {kind!r}, which this version cannot read")
    output = reader(data)
    if not name:
        return output
    jobs = tuple(job for job in output.jobs if job.name == name)
    if not jobs:
        raise Malformed(f"holds no job {name!r}")
    return replace(output, jobs=jobs)


def read_results(kind: str, data: bytes) -> FioOutput:
    """The results of a process that did IO. Raises Malformed, also where one of its jobs failed."""
    output = read_output(kind, data)
    failed = next((job for job in output.jobs if job.error), None)
    if failed is not None:
        raise Malformed(f"says that job {failed.name} ended with error {failed.error}")
    if not any(job.sides for job in output.jobs):
        raise Malformed("says that no IO was done")
    return output

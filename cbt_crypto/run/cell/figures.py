"""Whether a measured cell has figures: the last thing that is asked before it is finished.

A process can end with status 0 and leave nothing, or an engine lose what it left. Whatever engine
and scenario it was, such a cell has failed. This runs on nodes that only measure, so it does
without numpy, with which reports read the same files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from cbt_crypto.archive.files import Malformed
from cbt_crypto.archive.folder import Folder
from cbt_crypto.errors import RunError
from cbt_crypto.results.readers.etcd_benchmark import parse_etcd_benchmark
from cbt_crypto.results.readers.rados_bench import parse_rados_bench

_OBJECT = re.compile(r"^\{", re.MULTILINE)
#: Places tried as the start of fio's JSON; what it prints before may hold a brace too.
_ATTEMPTS = 32
#: In fio's normal output: `  read: IOPS=12.3k, BW=...`.
_NORMAL = re.compile(rb"^ +(?:read|write|trim): IOPS=", re.MULTILINE)
_DIRECTIONS = ("read", "write", "trim")


def check_figures(archive: Path, path: str, outcome: Mapping[str, Any]) -> None:
    """Raise RunError, naming process and file, for the first process of a cell without figures.

    `path` is the cell's directory below the archive; `outcome` is what cell.json will say of it.
    """
    folder = Folder(archive).cell(path)
    for process in outcome["processes"]:
        kind, name = process.get("kind", "fio"), process["json"]
        try:
            data = folder.read(name)
            if data is None:
                raise Malformed("is missing")
            _LOOKS[kind](data)
        except Malformed as error:
            raise RunError(
                f"{process['host']}: {kind} {process['volume']} exited with 0 and left no "
                f"figures: {name} {error}"
            ) from None


def _look_at_fio(data: bytes) -> None:
    """fio's JSON must tell of at least one IO. Raises Malformed."""
    for document in _documents(data.decode("utf-8", "replace")):
        jobs = [*_list(document.get("jobs")), *_list(document.get("client_stats"))]
        if not any(_ios(job) for job in jobs):
            raise Malformed("tells of no IO")
        return
    if not _NORMAL.search(data):
        raise Malformed("holds no results of fio's")


def _documents(text: str) -> Iterator[dict[str, Any]]:
    """Whole JSON objects that begin a line."""
    decoder = json.JSONDecoder()
    for match in islice(_OBJECT.finditer(text), _ATTEMPTS):
        try:
            document, _ = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            continue
        yield document


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _ios(job: Any) -> int:
    """IOs that a job counted, in all directions; fsync counts by its latencies."""
    if not isinstance(job, dict):
        return 0
    sides = [(job.get(direction), "total_ios") for direction in _DIRECTIONS]
    sync = job.get("sync")
    sides.append((sync.get("lat_ns") if isinstance(sync, dict) else None, "N"))
    counts = [side.get(key) for side, key in sides if isinstance(side, dict)]
    return sum(count for count in counts if isinstance(count, int))


#: Kind of a process -> what raises Malformed for results without figures.
_LOOKS: Mapping[str, Callable[[bytes], Any]] = {
    "fio": _look_at_fio,
    "etcd_benchmark": parse_etcd_benchmark,
    "rados_bench": parse_rados_bench,
}

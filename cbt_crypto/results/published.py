"""What authors publish beside their articles: single files of fio, kbench and etcd's benchmark.

There is no archive around them, so nothing is known of a cluster or its hosts, and nothing proved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cbt_crypto.archive.documents import FORMAT, CellDocument, PlannedCell, Process
from cbt_crypto.archive.files import Malformed
from cbt_crypto.archive.folder import Folder
from cbt_crypto.results.cell.run import Run, read_unproved_run
from cbt_crypto.results.readers.fio_job import Job
from cbt_crypto.results.readers.kbench import HEADING
from cbt_crypto.results.readers.process_output import NAMED, parse_output, read_output
from cbt_crypto.units import parse_size

#: Files of one article; more are something else.
_MOST_FILES = 1000


class _PublishedLoad(NamedTuple):
    """One load in one file."""

    file: str
    kind: str
    scenario: str
    parameters: dict[str, Any]


def read_published(path: Path, configuration: str) -> list[Run]:
    """A run for each load in a file, or in the files of a directory or of a pattern.

    Files that hold the same load are iterations of it. Raises Malformed for several summaries of
    kbench, which do not say what was measured, and where there is no file that can be read.
    """
    folder, names = _files(path)
    loads = [load for name in names for load in _loads(folder, name)]
    summaries = {load.file for load in loads if load.scenario == "kbench"}
    if len(summaries) > 1:
        raise Malformed(
            f"holds {len(summaries)} summaries of kbench, which do not say what each is of; "
            f"name one, e.g. {path.parent if not path.is_dir() else path}/{min(summaries)}"
        )
    if not loads:
        raise Malformed(
            "there is no results directory, so this is no archive, and no file of fio, kbench or "
            "etcd's benchmark tool"
        )
    return list(_runs(folder, loads, configuration))


def _files(path: Path) -> tuple[Folder, list[str]]:
    if path.is_dir():
        folder, pattern = path.resolve(), "*"
    else:
        folder, pattern = path.parent.resolve(), path.name
    names = sorted(entry.name for entry in folder.glob(pattern) if entry.is_file()) or [pattern]
    return Folder(folder), [name for name in names if not name.startswith(".")][:_MOST_FILES]


def _loads(folder: Folder, name: str) -> Iterator[_PublishedLoad]:
    """What is in a file; nothing where it is none of those that can be read."""
    data = folder.read(name)
    if data is None:
        return
    if HEADING in data:
        for job in read_output("kbench", data).jobs:
            yield _PublishedLoad(name, f"kbench{NAMED}{job.name}", "kbench", {"mode": job.name})
    elif b"Requests/sec:" in data and b"Latency distribution:" in data:
        yield _PublishedLoad(name, "etcd_benchmark", "etcd", {"mode": "put"})
    else:
        try:
            jobs = parse_output(data).jobs
        except Malformed:
            return
        yield from _of_fio(name, jobs)


def _of_fio(name: str, jobs: Iterable[Job]) -> Iterator[_PublishedLoad]:
    """One load where all jobs are alike; else each job is one, as they ran one after another."""
    named = {job.name: _parameters(job) for job in jobs}
    loads = {tuple(sorted(parameters.items())) for parameters in named.values()}
    if len(loads) == 1:
        yield _PublishedLoad(name, "fio", "fio", next(iter(named.values())))
        return
    for job, parameters in named.items():
        yield _PublishedLoad(name, f"fio{NAMED}{job}", "fio", parameters)


def _parameters(job: Job) -> dict[str, Any]:
    parameters: dict[str, Any] = {
        "mode": job.options.get("rw") or job.options.get("readwrite") or "?"
    }
    size = parse_size(job.options.get("bs") or job.options.get("blocksize") or "")
    if size is not None:
        parameters["op_size"] = size
    depth = job.options.get("iodepth", "")
    if depth.isdigit():
        parameters["iodepth"] = int(depth)
    return parameters


def _runs(folder: Folder, loads: Iterable[_PublishedLoad], configuration: str) -> Iterator[Run]:
    seen: dict[str, int] = {}
    for number, published in enumerate(loads):
        load = f"{published.scenario} {sorted(published.parameters.items())}"
        iteration = seen[load] = seen.get(load, -1) + 1
        planned = PlannedCell(
            id=f"published-{number}",
            path=folder.root.name,
            iteration=iteration,
            scenario=published.scenario,
            configuration=configuration,
            parameters=published.parameters,
        )
        process = Process(
            host="unknown", volume="0", kind=published.kind, exit_status=0, json=published.file
        )
        cell = CellDocument(
            **planned.model_dump(exclude={"path"}),
            format=FORMAT,
            state="finished",
            processes=(process,),
        )
        yield read_unproved_run(folder, planned, cell)

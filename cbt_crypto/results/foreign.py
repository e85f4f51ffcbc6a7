"""Results that others made: archives of upstream CBT, and files that authors publish."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, Optional

from cbt_crypto.archive.documents import FORMAT, CellDocument, PlannedCell, Process, Proof
from cbt_crypto.archive.files import Malformed, numbered, one_line, read_yaml
from cbt_crypto.archive.folder import Archive, Folder, open_archive
from cbt_crypto.archive.pack import FREE_BYTES, MOST_TIMES
from cbt_crypto.errors import UsageError
from cbt_crypto.results.cell.run import Run, dimensions_of, read_unproved_run
from cbt_crypto.results.readers.fio import Job
from cbt_crypto.results.readers.process_output import (
    KBENCH_HEADING,
    NUMBERED,
    parse_output,
    read_output,
)
from cbt_crypto.units import parse_size, whole

_OUTPUT = re.compile(r"(?:json_)?output\.(\d+)\.([A-Za-z0-9][\w.:-]*)", re.ASCII)
#: The same below a workload's directory, whose name has the host.
_OUTPUT_OF_WORKLOAD = re.compile(r"(?:json_)?output\.(\d+)")
#: Of directories that differ between the volumes of one cell: total_iodepth is divided.
_OF_ONE_VOLUME = re.compile(r"(/total_iodepth-[^/]+)/iodepth-[^/]+$")
_ITERATION = re.compile(r"\d{8}")
#: Directories below `results/`; deeper ones are no cells of CBT's.
_DEEPEST = 6
#: What tells cells apart for CBT but is no parameter of the measurement.
_NO_PARAMETER = ("iteration", "benchmark", "acceptable", "log_iops", "log_bw", "log_lat")


def read_upstream(root: Folder, configuration: str) -> Iterator[Run]:
    """A run for each directory with fio output; `configuration` is what the archive stands for."""
    hosts = _Hosts(_hosts(root, "osds"), _hosts(root, "clients"))
    for folder in _cell_folders(root.below("results"), 0):
        cells = _workload_cells(folder, hosts) or {folder.relative: _processes(folder)}
        # Where no directory's name has a host, nobody ran anything.
        for path, processes in filter(itemgetter(1), cells.items()):
            yield _run(folder, path, processes, configuration, hosts)


@dataclass(frozen=True)
class _Hosts:
    osds: tuple[str, ...]
    clients: tuple[str, ...]


def _hosts(root: Folder, role: str) -> tuple[str, ...]:
    cluster = _yaml(root.below("results"), "cbt_config.yaml").get("cluster")
    listed = cluster.get(role) if isinstance(cluster, Mapping) else None
    if isinstance(listed, str):
        listed = [listed]
    names = listed if isinstance(listed, (list, Mapping)) else ()
    return tuple(one_line(str(host)).rpartition("@")[2] for host in names)


def _yaml(folder: Folder, name: str) -> Mapping[str, Any]:
    data = folder.read(name)
    try:
        value = None if data is None else read_yaml(data)
    except Malformed as error:
        raise Malformed(f"{folder.label(name)} {error}") from None
    return value if isinstance(value, Mapping) else {}


def _cell_folders(folder: Folder, depth: int) -> Iterator[Folder]:
    """Directories with output of their own, or with that of workloads."""
    names = folder.names
    if any(_OUTPUT.fullmatch(name) for name in names) or (
        "benchmark_config.yaml" in names and any(_outputs_below(folder, 0))
    ):
        yield folder
    elif depth < _DEEPEST:
        for name in _directories(folder):
            yield from _cell_folders(folder.below(name), depth + 1)


def _directories(folder: Folder) -> Iterator[str]:
    # A name that is no text is none of an option, a workload or a host.
    for name in filter(str.isprintable, folder.names):
        path = folder.root / folder.relative / name
        if path.is_dir() and not path.is_symlink():
            yield name


def _outputs_below(folder: Folder, depth: int) -> Iterator[tuple[str, str]]:
    for directory in _directories(folder) if depth < _DEEPEST else ():
        below = folder.below(directory)
        for name in below.names:
            if depth and _OUTPUT_OF_WORKLOAD.fullmatch(name):
                yield directory, name
        for deeper, name in _outputs_below(below, depth + 1):
            yield f"{directory}/{deeper}", name


def _workload_cells(folder: Folder, hosts: _Hosts) -> dict[str, tuple[Process, ...]]:
    """Path of the cell, without hosts -> its processes on all of them."""
    cells: dict[str, dict[tuple[str, str], Process]] = {}
    for directory, name in _outputs_below(folder, 0):
        first, _, rest = directory.partition("/")
        workload, host = _workload_and_host(first, hosts)
        match = _OUTPUT_OF_WORKLOAD.fullmatch(name)
        if match is None or not host:
            continue
        cell = _OF_ONE_VOLUME.sub(r"\1", f"{folder.relative}/{workload}/{rest}")
        processes = cells.setdefault(cell, {})
        key, volume = (host, match.group(1)), match.group(1)
        earlier = processes.get(key)
        if earlier is None or name < earlier.json_file.rpartition("/")[2]:  # json_ sorts first
            processes[key] = Process(
                host=host,
                volume=volume,
                exit_status=0,
                json=f"{directory}/{name}",
                logs=f"{directory}/output.{volume}",
            )
    return {
        cell: tuple(processes[key] for key in sorted(processes))
        for cell, processes in cells.items()
    }


def _workload_and_host(name: str, hosts: _Hosts) -> tuple[str, str]:
    """Split at the file's clients, as both may have dots; else at the first dot."""
    for host in hosts.clients:
        if name.endswith(f".{host}"):
            return name[: -len(host) - 1], host
    workload, _, host = name.partition(".")
    return workload, host


def _run(
    folder: Folder, path: str, processes: tuple[Process, ...], configuration: str, hosts: _Hosts
) -> Run:
    parts = folder.relative.split("/")
    iteration = next((int(part) for part in parts if _ITERATION.fullmatch(part)), 0)
    inner = path[len(folder.relative) + 1 :]
    planned = PlannedCell(
        id=parts[-1],
        path=path,
        iteration=iteration,
        scenario="librbdfio",
        configuration=configuration,
    )
    try:
        # Mode, op size and depth: with lists in CBT's file only fio knows them.
        data = folder.read(processes[0].json_file)
        of_fio = _of_options(parse_output(data).jobs[0].options) if data else {}
        parameters = {**_upstream_parameters(folder, inner.partition("/")[0]), **of_fio}
    except Malformed as error:
        return Run(planned, dimensions_of(planned), failure=str(error))
    planned = planned.model_copy(update={"parameters": parameters})
    cell = CellDocument(
        **planned.model_dump(exclude={"path"}),
        format=FORMAT,
        state="finished",
        osd_hosts=tuple(h for h in hosts.osds if _is_sampled(folder, h, processes)),
        processes=processes,
    )
    return read_unproved_run(replace(folder, shown=""), planned, cell)


def _is_sampled(folder: Folder, host: str, processes: Sequence[Process]) -> bool:
    beside = {p.json_file.rpartition("/")[0] for p in processes if p.host == host} - {""}
    return f"collectl.{host}" in folder.names or any(
        "collectl" in folder.below(directory).names for directory in beside
    )


def _processes(folder: Folder) -> tuple[Process, ...]:
    files: dict[tuple[str, str], str] = {}
    for name in folder.names:
        match = _OUTPUT.fullmatch(name)
        if match:
            key = match.group(1), match.group(2)
            files[key] = min(files.get(key, name), name)  # json_output sorts before output
    return tuple(
        Process(host=host, volume=volume, exit_status=0, json=name, logs=f"output.{volume}")
        for (volume, host), name in sorted(files.items())
    )


def _upstream_parameters(folder: Folder, workload: str) -> dict[str, Any]:
    config = _yaml(folder, "benchmark_config.yaml")
    inner = config.get("cluster", config)
    if not isinstance(inner, Mapping):
        return {}
    parameters = {key: value for key, value in inner.items() if key not in _NO_PARAMETER}
    workloads = parameters.pop("workloads", None)
    of_workload = workloads.get(workload) if isinstance(workloads, Mapping) else None
    if workload:
        parameters.update(
            of_workload if isinstance(of_workload, Mapping) else {}, workload=workload
        )
    return {one_line(str(key)): value for key, value in parameters.items()}


def _of_options(options: Mapping[str, str]) -> dict[str, Any]:
    told = {
        "mode": options.get("rw") or options.get("readwrite") or None,
        "op_size": parse_size(options.get("bs") or options.get("blocksize") or ""),
        "iodepth": whole(options.get("iodepth", "")),
    }
    return {key: value for key, value in told.items() if value is not None}


#: What may be a part of a file's name.
_PLAIN = re.compile(r"[A-Za-z0-9_.:-]{1,200}")
#: Of jobs, and of IOs in flight: more have no place in upstream's names.
_MOST = 10**6


def lay_out(archive: Path, out: Path) -> int:
    """Write our archive in upstream's layout to a new `out`; return how many fio results.

    A folder a configuration, one id a workload. UsageError: no archive, no results, bad names.
    """
    if os.path.lexists(out):
        raise UsageError(f"{out}: exists already; name a new directory")
    opened = open_archive(archive)
    names = _folders(dict.fromkeys(planned.configuration for planned in opened.plan.cells))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=f"{out.name}.part-") as part:
            count = _lay_out_all(opened, names, Path(part, out.name))
            if not count:
                raise UsageError(f"{archive}: has no results of fio's that could be laid out")
            Path(part, out.name).rename(out)
    except Malformed as error:
        raise UsageError(f"{archive}: a file of it {error}") from None
    except OSError as error:
        raise UsageError(f"{out}: cannot be written ({error.strerror})") from None
    return count


class _Room:
    """What may be written: at most `MOST_TIMES` what the files read take on disk."""

    def __init__(self) -> None:
        self._left, self._known = FREE_BYTES, set[tuple[int, int]]()

    def read(self, folder: Folder, name: str) -> Optional[bytes]:
        """The content of a file, to be written once; None if there is none. Raises Malformed."""
        data = folder.read(name)
        if data is None:
            return None
        status = folder.path(name).stat()
        if (place := (status.st_dev, status.st_ino)) not in self._known:
            self._known.add(place)
            self._left += MOST_TIMES * status.st_blocks * 512
        self._left -= len(data)
        if self._left < 0:
            most = f"more than {MOST_TIMES} times the archive's size would be written"
            raise Malformed(f"is sparse, or several cells name it: {most}")
        return data


def _lay_out_all(opened: Archive, names: Mapping[str, str], out: Path) -> int:
    room = _Room()
    count = sum(
        _lay_out(opened.folder, planned, out / names[planned.configuration], room)
        for planned in opened.plan.cells
    )
    for archive_out in out.glob("*"):
        described = room.read(opened.folder.below("results"), "cbt_config.yaml")
        _write(archive_out / "results" / "cbt_config.yaml", described or b"")
    return count


def _folders(configurations: Iterable[str]) -> dict[str, str]:
    """Return a folder's name for each configuration: upstream's reports show it, without `_`."""
    names, taken = dict[str, str](), set[str]()
    for configuration in configurations:
        plain = re.sub(r"[^A-Za-z0-9.+-]+", "-", configuration)[:100].strip("-.") or "configuration"
        names[configuration] = next(name for name in numbered(plain) if name not in taken)
        taken.add(names[configuration])
    return names


def _lay_out(archive: Folder, planned: PlannedCell, archive_out: Path, room: _Room) -> int:
    load = [planned.scenario, {str(key): value for key, value in planned.parameters.items()}]
    digest = hashlib.sha1(json.dumps(load, sort_keys=True, default=str).encode()).hexdigest()[:8]
    run = archive_out / "results" / f"{planned.iteration:08}" / f"id-{digest}"
    count = 0
    for name, data in _results(archive.cell(planned.path), room):
        _write(run / name, data)
        count += 1
    return count


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        file.write(data)


def _results(folder: Folder, room: _Room) -> Iterator[tuple[str, bytes]]:
    """Path in upstream's layout and content, for each process of a finished, proved cell."""
    try:
        cell = folder.document("cell.json", CellDocument)
        proof = folder.document("proof.json", Proof)
    except Malformed:
        return
    if cell is None or cell.state != "finished" or proof is None or not proof.holds:
        return
    # A file that several name is the result of one.
    processes = {p.json_file: p for p in reversed(cell.processes) if p.kind == "fio"}
    for process in reversed(processes.values()):
        data = room.read(folder, process.json_file)
        if data is not None:
            yield _name(cell, process), data


def _name(cell: CellDocument, process: Process) -> str:
    jobs, depth = (_number(cell.parameters.get(key)) for key in ("numjobs", "iodepth"))
    for name in (cell.scenario, process.host, process.volume):
        # They come from the archive, and a path is made of them.
        if not _PLAIN.fullmatch(name) or ".." in name:
            raise Malformed(f"names {name[:100]!r}, which is no name of a host or a volume")
    return (
        f"{cell.scenario}.{process.host}/rbdfio/numjobs-{jobs:03d}/iodepth-{depth:06d}/"
        f"json_output.{process.volume}"
    )


def _number(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < _MOST else 1


#: Files of one article; more are something else.
_MOST_FILES = 1000
#: The scenario of kbench's own summaries.
KBENCH = "kbench"


class _PublishedLoad(NamedTuple):
    file: str
    kind: str
    scenario: str
    parameters: dict[str, Any]


def read_published(path: Path, configuration: str) -> list[Run]:
    """A run for each workload in a file, a directory's files or a pattern's; same workloads repeat.

    Each of several kbench summaries is a configuration. Raises Malformed for no readable file.
    """
    folder, names = _files(path)
    loads = [load for name in names for load in _loads(folder, name)]
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
    shown = [name for name in names if not name.startswith(".") and name.isprintable()]
    return Folder(folder), shown[:_MOST_FILES]


def _loads(folder: Folder, name: str) -> Iterator[_PublishedLoad]:
    """What is in a file; nothing where it is none of those that can be read."""
    data = folder.read(name)
    if data is None:
        return
    if KBENCH_HEADING in data:
        for number, job in enumerate(read_output("kbench", data).jobs):
            load = {"test": job.name.partition(" ")[0], **_of_options(job.options)}
            yield _PublishedLoad(name, f"kbench{NUMBERED}{number}", KBENCH, load)
    elif b"Requests/sec:" in data and b"Latency distribution:" in data:
        yield _PublishedLoad(name, "etcd_benchmark", "etcd", {"mode": "put"})
    else:
        try:
            jobs = parse_output(data).jobs
        except Malformed:
            return
        yield from _of_fio(name, jobs)


#: The file is read for each of them.
_MOST_JOBS = 256
#: Options of a job that begins when those before it have ended.
_IN_TURN = {"stonewall", "wait_for_previous"}


def _of_fio(name: str, jobs: Sequence[Job]) -> Iterator[_PublishedLoad]:
    """One workload if all jobs are alike and ran at once; else each job is one, with its clones."""
    loads = [(job.name, {"mode": "?", **_of_options(job.options)}) for job in jobs]
    is_one = all(parameters == loads[0][1] for _, parameters in loads)
    if is_one and not any(_IN_TURN & job.options.keys() for job in jobs[1:]):
        yield _PublishedLoad(name, "fio", "fio", loads[0][1])
        return
    if len(loads) > _MOST_JOBS:
        raise Malformed(f"has {len(loads)} jobs that differ, more than {_MOST_JOBS}")
    for (_, parameters), numbers in groupby(range(len(loads)), lambda number: loads[number]):
        kind = f"fio{NUMBERED}{','.join(map(str, numbers))}"
        yield _PublishedLoad(name, kind, "fio", parameters)


def _runs(folder: Folder, loads: Sequence[_PublishedLoad], name: str) -> Iterator[Run]:
    summaries = {load.file for load in loads if load.scenario == KBENCH}
    seen: dict[str, int] = {}
    for number, published in enumerate(loads):
        is_one_of_several = published.file in summaries and len(summaries) > 1
        # Nothing but its file's name says what it is of.
        configuration = f"{name} {Path(published.file).stem}" if is_one_of_several else name
        load = f"{configuration} {published.scenario} {sorted(published.parameters.items())}"
        iteration = seen[load] = seen.get(load, -1) + 1
        planned = PlannedCell(
            id=f"published-{number}",
            path=one_line(folder.root.name),
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

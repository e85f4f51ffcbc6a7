"""Archives of upstream CBT's own benchmarks: no plan, no proof, one configuration each.

What a cell was comes from `benchmark_config.yaml` and from the options that fio repeats in its
output; where the OSDs were comes from `cbt_config.yaml`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Optional

from cbt_crypto.archive.documents import FORMAT, CellDocument, PlannedCell, Process
from cbt_crypto.archive.folder import Folder
from cbt_crypto.archive.problem import Malformed
from cbt_crypto.archive.safe_read import read_yaml
from cbt_crypto.results.cell.run import Run, dimensions_of, read_unproved_run
from cbt_crypto.results.readers.process_output import parse_output

_OUTPUT = re.compile(r"(?:json_)?output\.(\d+)\.([A-Za-z0-9][^/]*)")
_ITERATION = re.compile(r"\d{8}")
_SIZE = re.compile(r"(\d+)\s*([kmgKMG]?)(?:i?[bB])?")
_FACTOR = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
#: Directories below `results/`; deeper ones are no cells of CBT's.
_DEEPEST = 6
#: What tells cells apart for CBT but is no parameter of the measurement.
_NO_PARAMETER = ("iteration", "benchmark", "acceptable", "log_iops", "log_bw", "log_lat")


def read_upstream(root: Folder, configuration: str) -> Iterator[Run]:
    """A run for each directory with fio output; `configuration` is what the archive stands for."""
    osds = _osd_hosts(root)
    for folder in _cell_folders(root.below("results"), 0):
        yield _run(root, folder, configuration, osds)


def _osd_hosts(root: Folder) -> tuple[str, ...]:
    """The OSD hosts of the campaign's file; empty where there is no such file."""
    cluster = _yaml(root.below("results"), "cbt_config.yaml").get("cluster")
    osds = cluster.get("osds") if isinstance(cluster, Mapping) else None
    if isinstance(osds, str):
        osds = [osds]
    return tuple(str(host) for host in osds) if isinstance(osds, list) else ()


def _yaml(folder: Folder, name: str) -> Mapping[str, Any]:
    """A YAML mapping; empty when the file is missing. Raises Malformed."""
    data = folder.read(name)
    try:
        value = None if data is None else read_yaml(data)
    except Malformed as error:
        raise Malformed(f"{folder.label(name)} {error}") from None
    return value if isinstance(value, Mapping) else {}


def _cell_folders(folder: Folder, depth: int) -> Iterator[Folder]:
    names = folder.names
    if any(_OUTPUT.fullmatch(name) for name in names):
        yield folder
    elif depth < _DEEPEST:
        for name in names:
            path = folder.root / folder.relative / name
            if path.is_dir() and not path.is_symlink():
                yield from _cell_folders(folder.below(name), depth + 1)


def _run(root: Folder, folder: Folder, configuration: str, osds: tuple[str, ...]) -> Run:
    parts = folder.relative.split("/")
    iteration = next((int(part) for part in parts if _ITERATION.fullmatch(part)), 0)
    planned = PlannedCell(
        id=parts[-1],
        path=folder.relative,
        iteration=iteration,
        scenario="librbdfio",
        configuration=configuration,
    )
    try:
        processes = _processes(folder)
        parameters = {**_parameters(folder), **_from_fio(folder, processes[0].json_file)}
    except Malformed as error:
        return Run(planned, dimensions_of(planned), failure=str(error))
    planned = planned.model_copy(update={"parameters": parameters})
    cell = CellDocument(
        **planned.model_dump(exclude={"path"}),
        format=FORMAT,
        state="finished",
        osd_hosts=tuple(h for h in osds if f"collectl.{h}" in folder.names),
        processes=processes,
    )
    return read_unproved_run(root, planned, cell)


def _processes(folder: Folder) -> tuple[Process, ...]:
    """JSON where there is some, else fio's normal output."""
    found: dict[tuple[str, str], str] = {}
    for name in folder.names:
        match = _OUTPUT.fullmatch(name)
        if match:
            key = match.group(1), match.group(2)
            found[key] = min(found.get(key, name), name)  # json_output sorts before output
    return tuple(
        Process(host=host, volume=volume, exit_status=0, json=name, logs=f"output.{volume}")
        for (volume, host), name in sorted(found.items())
    )


def _parameters(folder: Folder) -> dict[str, Any]:
    config = _yaml(folder, "benchmark_config.yaml")
    inner = config.get("cluster", config)
    if not isinstance(inner, Mapping):
        return {}
    return {str(key): value for key, value in inner.items() if key not in _NO_PARAMETER}


def _from_fio(folder: Folder, name: str) -> dict[str, Any]:
    """Mode, op size and depth as fio had them: with lists in CBT's file only fio knows."""
    data = folder.read(name)
    options = parse_output(data).jobs[0].options if data else {}
    found: dict[str, Any] = {}
    if mode := options.get("rw") or options.get("readwrite"):
        found["mode"] = mode
    size = _bytes(options.get("bs") or options.get("blocksize") or "")
    if size is not None:
        found["op_size"] = size
    if (depth := options.get("iodepth", "")).isdigit():
        found["iodepth"] = int(depth)
    return found


def _bytes(text: str) -> Optional[int]:
    match = _SIZE.fullmatch(text.strip())
    return int(match.group(1)) * _FACTOR[match.group(2).lower()] if match else None

"""An archive of ours, laid out for the report tools of upstream CBT since August 2025.

They look for `id-x/<workload>.<host>/rbdfio/.../json_output.<volume>`, and end at a directory of a
cell that is anything else, such as collectl's. So the layout is a directory of its own, with fio's
results alone. The tools of before read an archive as it is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from cbt_crypto.archive.documents import CellDocument, Process
from cbt_crypto.archive.files import Malformed
from cbt_crypto.archive.folder import Folder, open_archive
from cbt_crypto.errors import UsageError

#: What may be a part of a file's name.
_PLAIN = re.compile(r"[A-Za-z0-9_.:-]{1,200}")
#: Of jobs, and of IOs in flight: more have no place in upstream's names.
_MOST = 10**6


def lay_out(archive: Path, out: Path) -> int:
    """Write `out`, which must not exist; return how many results of fio's are in it.

    Raises UsageError for what is no archive of ours, has no results of fio's, or names what is no
    name; then nothing of that cell is written.
    """
    if os.path.lexists(out):
        raise UsageError(f"{out}: exists already; name a new directory")
    opened = open_archive(archive)
    try:
        count = sum(_lay_out(opened.folder, planned.path, out) for planned in opened.plan.cells)
        if not count:
            raise UsageError(f"{archive}: has no results of fio's that could be laid out")
        described = opened.folder.below("results").read("cbt_config.yaml")
    except Malformed as error:
        raise UsageError(f"{archive}: a file of it {error}") from None
    _write(out / "results" / "cbt_config.yaml", described or b"")
    return count


def _lay_out(archive: Folder, cell: str, out: Path) -> int:
    count = 0
    for name, data in _results(archive.cell(cell)):
        _write(out / cell / name, data)
        count += 1
    return count


def _write(path: Path, data: bytes) -> None:
    """Raises UsageError where it cannot be, or is there already."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(data)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror})") from None


def _results(folder: Folder) -> Iterator[tuple[str, bytes]]:
    """Path in upstream's layout and content, for each process of a finished cell."""
    try:
        cell = folder.document("cell.json", CellDocument)
    except Malformed:
        return
    if cell is None or cell.state != "finished":
        return
    for process in cell.processes:
        data = folder.read(process.json_file) if process.kind == "fio" else None
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

"""An archive of ours, laid out for the report tools of upstream CBT since August 2025.

They look for `id-x/<workload>.<host>/rbdfio/.../json_output.<volume>`, and end at a directory of a
cell that is anything else, such as collectl's. So the layout is a directory of its own, with fio's
results alone. The tools of before read an archive as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cbt_crypto.archive.documents import CellDocument, Process
from cbt_crypto.archive.folder import Folder, open_archive
from cbt_crypto.archive.problem import Malformed
from cbt_crypto.errors import UsageError


def lay_out(archive: Path, out: Path) -> int:
    """Write `out`, which must not exist; return how many results of fio's are in it.

    Raises UsageError for what is no archive of ours, or has no results of fio's.
    """
    if out.exists():
        raise UsageError(f"{out}: exists already; name a new directory")
    opened = open_archive(archive)
    count = 0
    for planned in opened.plan.cells:
        folder = opened.folder.cell(planned.path)
        for name, data in _results(folder):
            path = out / planned.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            count += 1
    if not count:
        raise UsageError(f"{archive}: has no results of fio's that could be laid out")
    described = opened.folder.below("results").read("cbt_config.yaml")
    (out / "results" / "cbt_config.yaml").write_bytes(described or b"")
    return count


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
    return (
        f"{cell.scenario}.{process.host}/rbdfio/numjobs-{jobs:03d}/iodepth-{depth:06d}/"
        f"json_output.{process.volume}"
    )


def _number(value: object) -> int:
    return value if isinstance(value, int) else 1

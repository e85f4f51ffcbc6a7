"""A cell without figures has failed, whatever exit status its processes had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cbt_crypto.errors import RunError
from cbt_crypto.run.cell.measure import check_figures

pytestmark = pytest.mark.unit

DATA = Path(__file__).parents[1] / "data"


def outcome(kind: str) -> dict[str, Any]:
    named = {} if kind == "fio" else {"kind": kind}
    return {"processes": [{"host": "c0", "volume": "0", "json": "out", "exit_status": 0, **named}]}


def cell(tmp_path: Path, content: bytes) -> Path:
    (tmp_path / "results" / "id-1").mkdir(parents=True)
    (tmp_path / "results" / "id-1" / "out").write_bytes(content)
    return tmp_path


RESULTS = [path for path in (DATA / "fio").iterdir() if path.suffix != ".log"]


@pytest.mark.parametrize("path", sorted(RESULTS), ids=lambda path: path.name)
def test_whatever_fio_wrote_has_figures(tmp_path: Path, path: Path) -> None:
    check_figures(cell(tmp_path, path.read_bytes()), "results/id-1", outcome("fio"))


NO_IO = b'{"fio version": "fio-3.33", "jobs": [{"read": {"total_ios": 0}}]}'
FAILED = b'{"fio version": "fio-3.33", "jobs": [{"jobname": "one", "error": 5}]}'


@pytest.mark.parametrize(
    ("kind", "content", "sentence"),
    [
        ("fio", b"", "is empty"),
        ("fio", b"fio: no such file\n", "holds no JSON but 'fio: no such file'"),
        ("fio", b'{"jobs": [{"read": {"total_ios"', "is cut off or damaged"),
        ("fio", b'{"jobs": []}', "is not fio's JSON"),
        ("fio", b'{"fio version": "fio-3.33", "jobs": []}', "holds no job"),
        ("fio", NO_IO, "says that no IO was done"),
        ("fio", FAILED, "says that job one ended with error 5"),
        ("rados_bench", b"{}", "has no number for 'Total reads made'"),
        ("etcd_benchmark", b"Error distribution:\n  [1]  gone\n", "tells of requests that failed"),
    ],
)
def test_what_is_none(tmp_path: Path, kind: str, content: bytes, sentence: str) -> None:
    said = rf"^c0: {kind} 0 exited with 0 and left no figures: out {sentence}"
    with pytest.raises(RunError, match=said):
        check_figures(cell(tmp_path, content), "results/id-1", outcome(kind))


def test_a_file_that_never_came(tmp_path: Path) -> None:
    archive = cell(tmp_path, b"")
    (archive / "results" / "id-1" / "out").unlink()
    with pytest.raises(RunError, match="left no figures: out is missing"):
        check_figures(archive, "results/id-1", outcome("fio"))


def test_the_campaign_asks(host: Any, no_overlays: None) -> None:
    """fio that ends with 0 and has measured nothing: the cell fails, and so does the command."""
    text = (host.directory / "bin" / "fio").read_text()
    host.programs("fio", text.replace("#!/bin/sh\n", "", 1).replace('"total_ios": 1', '"x": 1'))
    result = host.cbt(host.write())
    assert result.exit_code == 1
    assert "exited with 0 and left no figures" in " ".join(result.output.split())

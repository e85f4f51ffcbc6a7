"""An archive as upstream's later report tools look for results."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path

import pytest

from cbt_crypto.archive.documents import FORMAT, KEPT, PlanDocument
from cbt_crypto.archive.folder import Folder
from cbt_crypto.errors import UsageError
from cbt_crypto.results.cell.run import read_run
from cbt_crypto.results.foreign import lay_out

pytestmark = pytest.mark.unit


def archive(root: Path, state: str = "finished", kind: str = "fio") -> Path:
    cell = {
        "id": "id-1", "iteration": 0, "scenario": "rbd_single_client", "configuration": "A",
        "parameters": {"iodepth": 16},
    }  # fmt: skip
    processes = [
        {"host": "c0", "volume": "0", "exit_status": 0, "json": "json_output.0.c0", "kind": kind},
        {"host": "c0", "volume": "1", "exit_status": 0, "json": "gone"},
    ]
    plan = {
        "format": FORMAT, "title": "t", "baseline": {"dimension": "configuration", "value": "A"},
        "configurations": {"A": {}}, "cells": [{**cell, "path": "results/00000000/id-1"}],
    }  # fmt: skip
    folder = root / "results/00000000/id-1"
    (folder / "collectl.c0").mkdir(parents=True)
    (folder / "json_output.0.c0").write_text("{}")
    document = {**cell, "format": FORMAT, "state": state, "processes": processes}
    (folder / "cell.json").write_text(json.dumps(document))
    proof = {"format": FORMAT, "configuration": "A", "proved": True}
    (folder / "proof.json").write_text(json.dumps(proof))
    (root / "results/plan.json").write_text(json.dumps(plan))
    (root / "results/cbt_config.yaml").write_text("cluster: {}\n")
    return root


def test_results_stand_where_workloads_leave_them(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert lay_out(archive(tmp_path / "in"), out) == 1
    found = sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file())
    below = "rbd_single_client.c0/rbdfio/numjobs-001/iodepth-000016/json_output.0"
    assert found == [f"A/results/00000000/id-719a56e0/{below}", "A/results/cbt_config.yaml"]


def test_each_configuration_is_an_archive_with_the_same_ids(tmp_path: Path) -> None:
    made = archive(tmp_path / "in")
    plan = json.loads((made / "results/plan.json").read_text())
    (first,) = plan["cells"]
    for number, name in enumerate(("Secure messenger", "Secure/messenger"), 2):
        path = f"results/00000000/id-{number}"
        copied = made / path
        shutil.copytree(made / first["path"], copied)
        cell = {**json.loads((copied / "cell.json").read_text()), "configuration": name}
        (copied / "cell.json").write_text(json.dumps(cell))
        plan["cells"].append({**first, "id": f"id-{number}", "configuration": name, "path": path})
        plan["configurations"][name] = {}
    (made / "results/plan.json").write_text(json.dumps(plan))
    assert lay_out(made, tmp_path / "out") == 3
    runs = {path.relative_to(tmp_path / "out").parts for path in (tmp_path / "out").glob("*/*/*/*")}
    assert {parts[0] for parts in runs} == {"A", "Secure-messenger", "Secure-messenger-2"}
    assert len({parts[1:] for parts in runs}) == 1


def test_no_two_configurations_share_a_folder(tmp_path: Path) -> None:
    """CBT's tools took the results of both for one: the third name made the number of the first."""
    made = archive(tmp_path / "in")
    plan = json.loads((made / "results/plan.json").read_text())
    (first,) = plan["cells"]
    names = ("LUKS-3", "LUKS", "LUKS!")
    plan["cells"] = [
        {**first, "configuration": name, "iteration": number} for number, name in enumerate(names)
    ]
    (made / "results/plan.json").write_text(json.dumps(plan))
    assert lay_out(made, tmp_path / "out") == 3
    folders = {
        path.relative_to(tmp_path / "out").parts[0] for path in tmp_path.rglob("json_output.0")
    }
    assert folders == {path.name for path in (tmp_path / "out").iterdir()} and len(folders) == 3


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError, match="exists already; name a new directory"):
        lay_out(archive(tmp_path / "in"), tmp_path / "out")


def test_a_pack_is_no_directory(tmp_path: Path) -> None:
    """It said that there is no such directory, of a file that is there."""
    (tmp_path / "a.zip").write_bytes(b"PK")
    with pytest.raises(UsageError, match="is no directory; name the archive"):
        lay_out(tmp_path / "a.zip", tmp_path / "out")


def test_failed_cells_have_no_results(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no results of fio's"):
        lay_out(archive(tmp_path / "in", state="failed"), tmp_path / "out")


@pytest.mark.parametrize("proof", [None, {"proved": False}, {"proved": True, "format": []}])
def test_what_is_not_proved_is_not_handed_over(tmp_path: Path, proof: object) -> None:
    """CBT's tools took for measured what our own report refuses."""
    made = archive(tmp_path / "in")
    path = made / "results/00000000/id-1/proof.json"
    if isinstance(proof, dict):
        path.write_text(json.dumps({"format": FORMAT, "configuration": "A", **proof}))
    else:
        path.unlink()
    with pytest.raises(UsageError, match="has no results of fio's"):
        lay_out(made, tmp_path / "out")
    path.write_text(
        json.dumps({"format": FORMAT, "configuration": "A", "proved": False, "required": False})
    )
    assert lay_out(made, tmp_path / "out") == 1


def test_one_that_fails_midway_leaves_nothing(tmp_path: Path) -> None:
    """Half an archive stayed, which CBT's tools read as a whole one."""
    made = archive(tmp_path / "in")
    path = made / "results/00000000/id-1/cell.json"
    cell = json.loads(path.read_text())
    shutil.copy(path.with_name("json_output.0.c0"), path.with_name("second"))
    cell["processes"].append({**cell["processes"][0], "volume": "a/b", "json": "second"})
    path.write_text(json.dumps(cell))
    with pytest.raises(UsageError, match="is no name of a host or a volume"):
        lay_out(made, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_small_archive_does_not_fill_the_disk(tmp_path: Path) -> None:
    """1.4 MB became 1.3 GB: 20 processes named one file of holes."""
    made = archive(tmp_path / "in")
    folder = made / "results/00000000/id-1"
    os.truncate(folder / "json_output.0.c0", 40 << 20)
    cell = json.loads((folder / "cell.json").read_text())
    first = cell["processes"][0]
    cell["processes"] = [{**first, "volume": str(number)} for number in range(3)]
    (folder / "cell.json").write_text(json.dumps(cell))
    assert lay_out(made, tmp_path / "out") == 1, "each file is one process's"
    cell["processes"].append({**first, "volume": "3", "json": "./json_output.0.c0"})
    (folder / "cell.json").write_text(json.dumps(cell))
    with pytest.raises(UsageError, match="sparse, or several cells name it: more than 100 times "):
        lay_out(made, tmp_path / "again")
    assert not (tmp_path / "again").exists()


#: Of the archive's author: where he would like to write, with a file of his as the content.
OUT = "../" * 12


@pytest.mark.parametrize("value", [f"{OUT}HERE", "/HERE", "a/../../x", "..", "", "a\0b", "x" * 300])
@pytest.mark.parametrize("key", ["host", "volume", "scenario"])
def test_nothing_is_written_elsewhere(tmp_path: Path, key: str, value: str) -> None:
    """A volume that was called ../../etc/cron.d/x was written there, with what the archive had."""
    made = archive(tmp_path / "in")
    path = made / "results/00000000/id-1/cell.json"
    cell = json.loads(path.read_text())
    value = value.replace("HERE", str(tmp_path / "here").lstrip("/"))
    (cell if key == "scenario" else cell["processes"][0])[key] = value
    path.write_text(json.dumps(cell))
    with pytest.raises(UsageError, match="is no name of a host or a volume"):
        lay_out(made, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize("name", ["../../../../../../etc/passwd", "/etc/passwd", "pipe", "link"])
def test_nothing_is_read_elsewhere(tmp_path: Path, name: str) -> None:
    made = archive(tmp_path / "in")
    folder = made / "results/00000000/id-1"
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to("/etc/passwd")
    cell = json.loads((folder / "cell.json").read_text())
    cell["processes"][0]["json"] = name
    (folder / "cell.json").write_text(json.dumps(cell))
    with pytest.raises(UsageError, match=r"in: a file of it (names|is|cannot) "):
        lay_out(made, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize("path", ["../../x", "/tmp/x", "results/cbt_config.yaml"])
def test_a_cell_s_path_that_leads_out(tmp_path: Path, path: str) -> None:
    made = archive(tmp_path / "in")
    plan = json.loads((made / "results/plan.json").read_text())
    plan["cells"].append({**plan["cells"][0], "path": path})
    (made / "results/plan.json").write_text(json.dumps(plan))
    with contextlib.suppress(UsageError):
        lay_out(made, tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} <= {"in", "out"}


def test_output_that_is_kept_gives_no_figures_and_says_so(tmp_path: Path) -> None:
    made = archive(tmp_path, kind=KEPT)
    plan = Folder(made).document("results/plan.json", PlanDocument)
    assert plan is not None
    (planned,) = plan.cells
    run = read_run(Folder(made), planned)
    assert run.failure == "the output of rbd_single_client is kept beside cell.json, and not read"
    assert not run.is_missing

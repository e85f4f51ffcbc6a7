"""Upstream's report tools read what our scenarios leave, and our report what upstream's did."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cbt_crypto.archive.documents import FORMAT
from cbt_crypto.benchmarks.base import Volume
from cbt_crypto.benchmarks.rbd import RbdSingleClient
from cbt_crypto.engine.upstream.checkout import Checkout
from cbt_crypto.results.foreign import lay_out

pytestmark = pytest.mark.contract

#: Upstream's tools look for files whose name ends in a dot and one more character.
HOST = "192.0.2.1"


@pytest.fixture(params=["randread", "randrw"])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Real output of the command of a scenario, on fio's engine that does nothing."""
    cell = tmp_path / "archive" / "results" / "00000000" / "id-0a1b2c3d"
    cell.mkdir(parents=True)
    scenario = RbdSingleClient(
        configuration="A", mode=request.param, time=1, iodepth=4, vol_size=64
    )
    words = shlex.split(scenario.fio_command(0, Volume("v", "rbd", HOST, 64)))
    about_rbd = ("--ioengine=", "--clientname=", "--pool=", "--rbdname=")
    own = [word for word in words if not word.startswith(about_rbd)]
    place = own.index(next(word for word in own if word.startswith("--name=")))
    own[place:place] = ["--ioengine=null", "--size=64M"]
    done = subprocess.run(own, cwd=cell, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (cell / "json_output.0").rename(cell / f"json_output.0.{HOST}")
    (cell.parents[1] / "cbt_config.yaml").write_text("cluster: {head: a}\n")
    return tmp_path / "archive"


def tool(checkout: Checkout, name: str, archive: Path, *options: str) -> None:
    if not (checkout.path / f"tools/{name}.py").exists():
        pytest.skip(f"the checkout of {checkout.version} has no tools/{name}.py yet")
    done = subprocess.run(
        [sys.executable, "-B", "-m", f"tools.{name}", "--archive", str(archive), *options],
        cwd=checkout.path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def readable(archive: Path, checkout: Checkout, tmp_path: Path) -> Path:
    """The archive as this snapshot's tools look for results: as it is, or laid out for them."""
    if not (checkout.path / "post_processing" / "run_results").is_dir():
        return archive
    (output,) = archive.glob("results/*/*/json_output.*")
    cell = {
        "format": FORMAT, "id": "id-0a1b2c3d", "iteration": 0, "scenario": "rbd_single_client",
        "configuration": "A", "parameters": {"iodepth": 4, "numjobs": 1},
    }  # fmt: skip
    process = {"host": HOST, "volume": "0", "exit_status": 0, "json": output.name}
    measured = {**cell, "state": "finished", "processes": [process]}
    (output.parent / "cell.json").write_text(json.dumps(measured))
    proved = {"format": FORMAT, "configuration": "A", "proved": True}
    (output.parent / "proof.json").write_text(json.dumps(proved))
    planned = {**cell, "path": "results/00000000/id-0a1b2c3d"}
    del planned["format"]
    plan = {
        "format": FORMAT, "title": "t", "baseline": {"dimension": "configuration", "value": "A"},
        "configurations": {"A": {}}, "cells": [planned],
    }  # fmt: skip
    (archive / "results" / "plan.json").write_text(json.dumps(plan))
    assert lay_out(archive, tmp_path / "laid out") == 1
    return tmp_path / "laid out" / "A"


def intermediate(archive: Path) -> Path:
    """What the formatter wrote: beside all results, or since 2026 beside those of an operation."""
    found = [
        path for path in archive.rglob("visualisation/*.json") if "timeseries" not in path.name
    ]
    (written,) = found
    return written


def test_upstream_s_formatter_reads_our_cells(
    archive: Path, readable: Path, checkout: Checkout
) -> None:
    root = "json_output*" if readable == archive else "json_output"
    tool(checkout, "fio_common_output_wrapper", readable, "--results_file_root", root)
    written = intermediate(readable)
    assert written.name.startswith(("4096B_", "4096_"))
    (figures,) = [v for v in json.loads(written.read_text()).values() if isinstance(v, dict)]
    (output,) = archive.glob("results/*/*/json_output.*")
    (job,) = json.loads(output.read_text())["jobs"]
    assert float(figures["iops"]) == pytest.approx(job["read"]["iops"] + job["write"]["iops"])


def test_upstream_s_report_is_made_of_our_cells(
    archive: Path, readable: Path, checkout: Checkout, tmp_path: Path
) -> None:
    root = "json_output*" if readable == archive else "json_output"
    tool(checkout, "fio_common_output_wrapper", readable, "--results_file_root", root)
    (tmp_path / "report").mkdir()
    tool(
        checkout, "generate_performance_report", readable,
        "--output_directory", str(tmp_path / "report"),
    )  # fmt: skip
    (page,) = (tmp_path / "report").rglob("*.md")
    assert "IOps" in page.read_text()
    if readable == archive:
        assert list((tmp_path / "report").rglob("*.png"))

"""Both layouts of upstream's archives; that of workloads as upstream of 2026 writes it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cbt_crypto.archive.folder import Folder
from cbt_crypto.results.cell.run import Run
from cbt_crypto.results.foreign import read_upstream

pytestmark = pytest.mark.unit

FIO = (Path(__file__).parents[1] / "data/fio/randread.json").read_bytes()
CELL = "results/00000000/id-0a1b2c3d"
HOSTS = "cluster: {osds: [osd0], clients: [root@c0.lab, root@c1.lab]}\n"


def written(root: Path, *names: str) -> list[Run]:
    """Runs of an archive with fio's output under these names of one cell's directory."""
    for name in names:
        path = root / CELL / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(FIO)
    (root / "results/cbt_config.yaml").write_text(HOSTS)
    (root / CELL / "benchmark_config.yaml").write_text(
        "cluster:\n  iteration: 0\n  iodepth: 7\n  volumes_per_client: 2\n"
        "  workloads: {many.1: {numjobs: [1, 2], iodepth: [4]}, one: {numjobs: 1}}\n"
    )
    return sorted(read_upstream(Folder(root), "A"), key=lambda run: run.planned.path)


def volumes(run: Run) -> list[tuple[str, str]]:
    assert run.failure is None, run.failure
    return [(record.host, record.volume) for record in run.records]


def test_without_workloads_a_directory_is_a_cell(tmp_path: Path) -> None:
    (run,) = written(tmp_path, "json_output.0.c0.lab", "json_output.0.c1.lab", "output.0.c0.lab")
    assert volumes(run) == [("c0.lab", "0"), ("c1.lab", "0")]
    assert run.planned.path == CELL
    assert "workload" not in run.planned.parameters


def test_each_combination_of_a_workload_is_a_cell_of_all_hosts_together(tmp_path: Path) -> None:
    names = [
        f"many.1.{host}/rbdfio/numjobs-00{n}/iodepth-000004/{kind}.{volume}"
        for host in ("c0.lab", "c1.lab")
        for n in (1, 2)
        for volume in (0, 1)
        for kind in ("json_output", "output")
    ]
    one, two = written(tmp_path, *names)
    for n, run in ((1, one), (2, two)):
        assert run.planned.path == f"{CELL}/many.1/rbdfio/numjobs-00{n}/iodepth-000004"
        assert run.planned.parameters["workload"] == "many.1"
        assert "workloads" not in run.planned.parameters
        hosts = ("c0.lab", "c1.lab")
        assert volumes(run) == [(host, volume) for host in hosts for volume in "01"]


def test_volumes_with_unequal_parts_of_a_total_depth_are_one_cell(tmp_path: Path) -> None:
    below = "one.c0.lab/rbdfio/numjobs-001/total_iodepth-5"
    (run,) = written(
        tmp_path, f"{below}/iodepth-000003/json_output.0", f"{below}/iodepth-000002/json_output.1"
    )
    assert volumes(run) == [("c0.lab", "0"), ("c0.lab", "1")]
    assert run.planned.path == f"{CELL}/one/rbdfio/numjobs-001/total_iodepth-5"


def test_logs_and_samples_stand_beside_the_results(tmp_path: Path) -> None:
    data = Path(__file__).parents[1] / "data"
    below = tmp_path / CELL / "one.c0.lab/rbdfio/numjobs-001/iodepth-000004"
    (below / "collectl").mkdir(parents=True)
    (below / "output.0_iops.1.log").write_bytes((data / "fio/randread_iops.log").read_bytes())
    (run,) = written(tmp_path, "one.c0.lab/rbdfio/numjobs-001/iodepth-000004/json_output.0")
    assert volumes(run) == [("c0.lab", "0")]
    assert run.series["read"].iops.sum() > 0


def test_a_damaged_one_is_a_failure_of_its_cell_alone(tmp_path: Path) -> None:
    names = [f"one.c0.lab/rbdfio/numjobs-00{n}/iodepth-000004/json_output.0" for n in (1, 2)]
    written(tmp_path, *names)
    (tmp_path / CELL / names[1]).write_bytes(FIO[:2000])
    good, bad = sorted(read_upstream(Folder(tmp_path), "A"), key=lambda run: run.planned.path)
    assert volumes(good) == [("c0.lab", "0")]
    assert bad.failure and "is cut off" in bad.failure


def test_a_link_out_of_the_archive_is_not_followed(tmp_path: Path) -> None:
    name = "one.c0.lab/rbdfio/numjobs-001/iodepth-000004/json_output.0"
    written(tmp_path / "archive", name)
    (tmp_path / "secret").write_bytes(FIO)
    (tmp_path / "archive" / CELL / name).unlink()
    (tmp_path / "archive" / CELL / name).symlink_to(tmp_path / "secret")
    (run,) = read_upstream(Folder(tmp_path / "archive"), "A")
    assert run.failure and "link out of the archive" in run.failure


@pytest.mark.parametrize(
    "name",
    [
        "nohost/rbdfio/output.0",
        os.fsdecode(b"output.0.c0\xff"),
        os.fsdecode(b"one.c0\xff/rbdfio/output.0"),
        "output.0.c0\nPASS",
    ],
)
def test_names_that_no_program_gives(tmp_path: Path, name: str) -> None:
    """A file in a directory without a host's name, or a name that is no text: a traceback."""
    assert written(tmp_path, name) == []


@pytest.mark.parametrize("key", ['"\\ud800"', "1", "2026-11-28"])
def test_keys_that_are_no_names(tmp_path: Path, key: str) -> None:
    name = "one.c0.lab/rbdfio/json_output.0"
    written(tmp_path, name)
    text = f"cluster: {{? {key} : 1, workloads: {{one: {{? {key} : 2}}}}}}\n"
    (tmp_path / CELL / "benchmark_config.yaml").write_text(text)
    (run,) = read_upstream(Folder(tmp_path), "A")
    assert volumes(run) == [("c0.lab", "0")]
    assert all(one.isprintable() for one in run.planned.parameters)

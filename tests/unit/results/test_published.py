"""kbench's summaries in both of its forms, and files that authors publish without an archive.

The figures are those of kbench's own repository and of the raw results beside "Ceph, etcd and the
sync-hole"; what is checked is that they arrive, and what is made of those that do not fit.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cbt_crypto.archive.files import Malformed
from cbt_crypto.cli import cbt_crypto
from cbt_crypto.report.comparison import compare
from cbt_crypto.report.figures.metric import BY_KEY
from cbt_crypto.report.model import ReportOptions
from cbt_crypto.results.foreign import read_published
from cbt_crypto.results.readers.process_output import parse_kbench

pytestmark = pytest.mark.unit

NEW = """\
TEST_FILE: /data/testfile
Benchmarking iops.fio into test_device-iops.json

=====================
FIO Benchmark Summary
For: test_device
SIZE: 20G
QUICK MODE: DISABLED
=====================
IOPS (Read/Write)
        Random:            7,800 / 4,651
    Sequential:            1,362 / 3,248
  CPU Idleness:                      81%

Bandwidth in KiB/sec (Read/Write)
        Random:        837,862 / 526,258
    Sequential:        742,420 / 462,604
  CPU Idleness:                      77%

Latency in ns (Read/Write)
        Random:    2,874,734 / 7,031,035
    Sequential:    5,760,606 / 8,754,407
  CPU Idleness:                      80%
"""
OLD = """
=====================
FIO Benchmark Summary
For: ./fio-results/Samsung_850_PRO_512GB/raw-block
=====================

Random Read/Write
IOPS:             97,831  / 87,143
Bandwidth:        546,501 KiB/sec   / 506,343 KiB/sec
Average Latency:  118,385 ns  / 45,925 ns

Sequential Read/Write
IOPS:             106,640 / 105,740
Bandwidth:        548,037 KiB/sec   / 513,163 KiB/sec
Average Latency:  43,137 ns  / 46,133 ns

CPU Idleness: 74%
"""
#: As of 2024 the same latencies follow as percentiles.
WITH_P99 = (
    NEW.replace("IOPS (", "IOPS in ops (")
    + """
=========================
FIO Benchmark Latency P99 Summary
For: test_device
=========================
Latency in ns (Read/Write)
        Random:      667,648 / 1,028,096
    Sequential:      618,496 / 1,003,520
"""
)


def _figures(text: str) -> dict[str, tuple[float, float, float]]:
    """What each test told of a mode."""
    sides = {job.name: job.sides[0] for job in parse_kbench(text.encode()).jobs}
    return {
        mode: (
            sides[f"iops {mode}"].iops,
            sides[f"bandwidth {mode}"].bandwidth_bytes_per_s / 1024,
            sides[f"latency {mode}"].clat_ns_mean,
        )
        for mode in ("randread", "randwrite", "read", "write")
    }


@pytest.mark.parametrize("text", [NEW, WITH_P99, NEW.replace("81%", "").replace(",", "")])
def test_the_new_form(text: str) -> None:
    assert _figures(text) == {
        "randread": (7800, 837862, 2874734),
        "randwrite": (4651, 526258, 7031035),
        "read": (1362, 742420, 5760606),
        "write": (3248, 462604, 8754407),
    }


def test_the_old_form() -> None:
    assert _figures(OLD) == {
        "randread": (97831, 546501, 118385),
        "randwrite": (87143, 506343, 45925),
        "read": (106640, 548037, 43137),
        "write": (105740, 513163, 46133),
    }


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("FIO Benchmark Summary", "", "holds no summary"),
        ("Latency in ns", "Delay in ns", "randread has no latency"),
        ("7,800 /", "/", "randread has no iops"),
        ("7,800", "7" * 30, "where a number belongs"),
    ],
)
def test_a_damaged_summary(old: str, new: str, sentence: str) -> None:
    with pytest.raises(Malformed, match=sentence):
        parse_kbench(NEW.replace(old, new).encode())


def test_files_of_the_same_load_are_iterations(tmp_path: Path, data: Path) -> None:
    output = (data / "fio/fdatasync.json_normal").read_bytes()
    normal = output[output.rindex(b"\n}") :]
    declared = b"nvme: (g=0): rw=write, bs=(R) 2300B-2300B, (W) 2300B-2300B, (T) 2300B-2300B, "
    for n in range(3):
        (tmp_path / f"FIO-{n}.txt").write_bytes(
            declared + b"ioengine=sync, iodepth=1\nfio-3.33\n" + normal
        )
    (tmp_path / "README.md").write_text("no results")
    runs = read_published(tmp_path, "drive")
    assert [run.planned.iteration for run in runs] == [0, 1, 2]
    assert all(run.failure is None for run in runs), runs[0].failure
    assert runs[0].dimensions["op_size"] == 2300
    assert {record.direction for record in runs[0].records} == {"write", "sync"}
    assert len(read_published(tmp_path / "FIO-[01]*", "drive")) == 2


def test_jobs_that_ran_one_after_another_are_loads_of_their_own(tmp_path: Path, data: Path) -> None:
    document = _json(data)
    job = document["jobs"][0]
    options = {**document.get("global options", {}), **job["job options"]}
    document["global options"] = {}
    document["jobs"] = [
        {**job, "jobname": name, "job options": {**options, "bs": size}}
        for name, size in (("iops", "4K"), ("bandwidth", "128k"))
    ]
    (tmp_path / "raw-benchmark.json").write_text(json.dumps(document))
    runs = read_published(tmp_path / "raw-benchmark.json", "raw")
    assert [run.dimensions["op_size"] for run in runs] == [4096, 131072]
    assert [len(run.records) for run in runs] == [1, 1]


@pytest.mark.parametrize(
    ("jobs", "loads"),
    [
        ([("a", "4K", "1"), ("b", "4K", "1")], [(4096, 0, 1), (4096, 1, 1)]),
        ([("t", "4K", "1"), ("t", "1M", "1")], [(4096, 0, 1), (1 << 20, 0, 1)]),
        ([("t", "4K", "1"), ("t", "4K", "1"), ("u", "4K", "1")], [(4096, 0, 2), (4096, 1, 1)]),
        ([("a", "4K", None), ("b", "4K", None)], [(4096, 0, 2)]),
    ],
)
def test_jobs_that_waited_for_one_another_are_not_added_up(
    tmp_path: Path, data: Path, jobs: list[Any], loads: list[Any]
) -> None:
    """Two of 1000 IOPS in turn were 2000; of two with one name, one was the other's size."""
    document = _json(data)
    job = document["jobs"][0]
    options = {**document["global options"], **job["job options"]}
    document["global options"] = {}
    document["jobs"] = [
        {**job, "jobname": name, "job options": {
            **options, "bs": size, **({} if waits is None else {"stonewall": waits})}}
        for name, size, waits in jobs
    ]  # fmt: skip
    (tmp_path / "a.json").write_text(json.dumps(document))
    runs = read_published(tmp_path / "a.json", "a")
    iops = job["read"]["iops"]
    assert [run.dimensions["op_size"] for run in runs] == [size for size, *_ in loads]
    assert [run.planned.iteration for run in runs] == [iteration for _, iteration, _ in loads]
    assert [sum(record.iops for record in run.records) for run in runs] == pytest.approx(
        [iops * count for *_, count in loads], rel=1e-3
    )


def _json(data: Path) -> dict:
    text = (data / "fio/randread.json").read_text()
    found: dict = json.JSONDecoder().raw_decode(text, text.index("{"))[0]
    return found


def test_a_test_tells_nothing_but_its_own_figure(tmp_path: Path) -> None:
    """A summary was one workload, with IOPS, bandwidth and latency of three different ones."""
    (tmp_path / "new.txt").write_text(NEW)
    told = {}
    for run in read_published(tmp_path, "drive"):
        of = (run.dimensions["test"], run.dimensions["op_size"], run.dimensions["mode"])
        (direction,) = {record.direction for record in run.records}
        keys = ("iops", "bandwidth_bytes_per_s", "clat_ns_mean", "clat_ns_max")
        told[of] = tuple(BY_KEY[key].of([run], direction) for key in keys)
    assert len(told) == 12
    assert told["iops", 4096, "randread"] == (7800, 7800 * 4096, None, None)
    assert told["bandwidth", 131072, "write"] == (462604 / 128, 462604 * 1024, None, None)
    assert told["latency", 4096, "read"] == (None, None, 5760606, None)


def test_an_archive_stands_beside_an_author_s_summaries(tmp_path: Path) -> None:
    """A directory with several was refused, and rbd_kbench was a workload of another name."""
    drive = tmp_path / "970 EVO"
    drive.mkdir()
    for replicas, iops in ((1, "7,800"), (3, "3,900")):
        text = NEW.replace("7,800", iops)
        (drive / f"CEPH-REPLICA{replicas}-4OSD-nvme3n1.txt").write_text(text)
    (drive / "DRIVE-nvme3n1.txt").write_text("smartctl 7.2\n")
    cells = []
    for n, (test, iops) in enumerate({"iops": 1950.0, "latency": 100.0}.items()):
        for replicas in (1, 3):
            load = {"test": test, "op_size": 4096, "mode": "randread"}
            about = {**load, "vol_size": 64, "iodepth": 64 if n == 0 else 1}
            cells.append((f"{test}-{replicas}", {**about, "replication": replicas}, iops))
    archive = _archive(tmp_path / "ours", cells)
    report = compare({"970 EVO": drive, "Ours": archive}, ReportOptions())
    titles = [table.title for table in report.tables]
    assert titles == ["kbench, 4 KiB, test iops", "kbench, 128 KiB, test bandwidth",
                      "kbench, 4 KiB, test latency"]  # fmt: skip
    rows = {cell.name: cell for cell in report.tables[0].sections[0].cells}
    assert list(rows) == [
        "970 EVO CEPH-REPLICA1-4OSD-nvme3n1", "970 EVO CEPH-REPLICA3-4OSD-nvme3n1",
        "Ours, replication 1", "Ours, replication 3",
    ]  # fmt: skip
    percents = [round(cell.comparisons["iops"].percent) for cell in rows.values()]
    assert percents == [100, 50, 25, 25]
    (latency,) = [s for s in report.tables[2].sections if s.mode == "randread"]
    shown = [cell.figures.get("clat_ns_mean") for cell in latency.cells]
    assert shown[0] == 2874734 and None not in shown and len(shown) == 4


def _archive(root: Path, cells: list[tuple[str, dict[str, Any], float]]) -> Path:
    """One of ours, of these parameters and IOPS, from fio's own output."""
    planned = []
    for name, parameters, iops in cells:
        about = {
            "id": name, "iteration": 0, "scenario": "rbd_kbench", "configuration": "Plain",
            "parameters": parameters,
        }  # fmt: skip
        path = f"results/00000000/id-{name}"
        planned.append({**about, "path": path})
        folder = root / path
        folder.mkdir(parents=True)
        ios, clat = int(iops), {"mean": 5e5, "max": 9e5, "N": int(iops)}
        side = {"iops": iops, "bw_bytes": iops * 4096, "io_bytes": 4096 * ios, "runtime": 1000,
                "total_ios": ios, "clat_ns": clat}  # fmt: skip
        job = {"jobname": "a", "error": 0, "job options": {"rw": "randread"}, "read": side}
        output = {"fio version": "fio-3.33", "timestamp_ms": 1_000_000, "jobs": [job]}
        (folder / "json_output.0.node0").write_text(json.dumps(output))
        process = {"host": "node0", "volume": "0", "exit_status": 0, "json": "json_output.0.node0"}
        cell = {**about, "format": 1, "state": "finished", "processes": [process]}
        (folder / "cell.json").write_text(json.dumps(cell))
        proof = {"format": 1, "proved": True, "overlays": [], "configuration": "Plain"}
        (folder / "proof.json").write_text(json.dumps(proof))
    plan = {"format": 1, "title": "ours", "cells": planned, "configurations": {"Plain": {}}}
    (root / "results/plan.json").write_text(json.dumps(plan))
    return root


def test_single_files_are_compared(tmp_path: Path) -> None:
    for name, text in (("new.txt", NEW), ("old.summary", OLD)):
        (tmp_path / name).write_text(text)
    names = [f"new={tmp_path / 'new.txt'}", f"old={tmp_path / 'old.summary'}"]
    result = CliRunner().invoke(cbt_crypto, ["compare", *names, "-o", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "1254.24" in result.output  # 97,831 of 7,800 IOPS


def test_a_directory_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(Malformed, match="no archive, and no file of fio, kbench or"):
        read_published(tmp_path, "a")


@pytest.mark.parametrize("depth", ["\u00b2", "9" * 5000])
def test_a_depth_that_is_no_number_is_left_out(tmp_path: Path, data: Path, depth: str) -> None:
    document = json.loads((data / "fio/randread.json").read_text())
    for part in (document["global options"], *(job["job options"] for job in document["jobs"])):
        part |= {"iodepth": depth, "log_avg_msec": depth}
    (tmp_path / "a.json").write_text(json.dumps(document))
    (run,) = read_published(tmp_path, "A")
    assert run.failure is None and "iodepth" not in run.planned.parameters


@pytest.mark.parametrize("name", [b"new\xff.txt", b"new\nPASS.txt"])
def test_a_file_s_name_that_is_no_text(tmp_path: Path, name: bytes) -> None:
    """It is a row's name where several are there: a traceback, or a line of its own."""
    drive = tmp_path / os.fsdecode(b"a\xff")
    drive.mkdir()
    for each in (b"new.txt", name):
        (drive / os.fsdecode(each)).write_text(NEW)
    for place in (drive, drive / "new*"):
        assert {run.planned.configuration for run in read_published(place, "A")} == {"A"}
    with pytest.raises(Malformed):
        read_published(drive / os.fsdecode(name), "A")

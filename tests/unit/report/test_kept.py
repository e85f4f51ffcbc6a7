"""What was read of cells is kept, for the very files that it was read from and for nobody else."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from cbt_crypto.archive.folder import open_archive
from cbt_crypto.report import build, write
from cbt_crypto.results.cell import kept
from cbt_crypto.results.cell.run import Run


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; files count as old from the beginning."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(kept, "RESTED_S", -60.0)
    return tmp_path / "cache" / "cbt-crypto" / "records"


@pytest.fixture
def archive(tmp_path: Path, synthetic: ModuleType) -> Path:
    """Two configurations under one load, with everything that a cell can have sampled."""
    shape = synthetic.SyntheticScenario("rbd_multi_client", 2, 1, (4096,))
    campaign = synthetic.SyntheticCampaign(
        scenarios=[shape], configurations=["Unencrypted", "LUKS"], seconds=12,
        load=lambda cell: synthetic.Load(500.0 if cell.configuration == "LUKS" else 1000.0, 2.0),
    )  # fmt: skip
    return Path(synthetic.write_archive(campaign, tmp_path / "archive"))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The cells that are read from their files, as they are."""
    paths: list[str] = []
    real = kept.read_run

    def counting(folder: Any, planned: Any) -> Run:
        paths.append(planned.path)
        return real(folder, planned)

    monkeypatch.setattr(kept, "read_run", counting)
    return paths


def same(one: Any, other: Any) -> bool:
    """Equal in every field; dataclasses with arrays have no such comparison of their own."""
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=True)
    if type(one) is not type(other):
        return False
    if dataclasses.is_dataclass(one):
        return all(
            same(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one)
        )
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and math.isnan(one):
        return math.isnan(other)
    return bool(one == other)


def files_of(report: Path) -> dict[str, bytes]:
    return {str(p.relative_to(report)): p.read_bytes() for p in report.rglob("*") if p.is_file()}


def test_what_is_kept_is_what_was_read(archive: Path, cache: Path) -> None:
    opened = open_archive(archive)
    for cell in opened.plan.cells:
        store = kept.Kept.of(archive)
        assert store.find(opened.folder, cell) is None
        run = store.read(opened.folder, cell)
        assert run.histograms and run.series and run.nodes and run.records and run.within
        found = store.find(opened.folder, cell)
        assert same(run, found)


def test_a_second_report_reads_nothing_and_says_the_same(
    archive: Path, cache: Path, reads: list[str], tmp_path: Path
) -> None:
    write(build(archive), tmp_path / "first")
    assert len(reads) == len(open_archive(archive).plan.cells) > 1
    reads.clear()
    write(build(archive), tmp_path / "second")
    assert not reads
    assert files_of(tmp_path / "first") == files_of(tmp_path / "second")
    build(archive, fresh=True)
    assert len(reads) == len(open_archive(archive).plan.cells)


@pytest.mark.parametrize("change", ["content", "gone", "more", "same size and time", "plan"])
def test_a_cell_that_changed_is_read_again(
    archive: Path, cache: Path, reads: list[str], change: str
) -> None:
    build(archive)
    reads.clear()
    cell = archive / open_archive(archive).plan.cells[0].path
    proof = cell / "proof.json"
    before = proof.stat()
    if change == "content":
        proof.write_text(proof.read_text() + " ")
    elif change == "gone":
        proof.unlink()
    elif change == "more":
        (cell / "another").touch()
    elif change == "same size and time":
        proof.write_text(proof.read_text())
        os.utime(proof, ns=(before.st_atime_ns, before.st_mtime_ns))
    else:
        path = archive / "results" / "plan.json"
        plan = json.loads(path.read_text())
        plan["cells"][0]["parameters"]["iodepth"] = 77
        path.write_text(json.dumps(plan))
    build(archive)
    assert reads == [str(cell.relative_to(archive))]


def test_a_cell_that_ends_is_all_that_is_read(
    archive: Path, cache: Path, reads: list[str], tmp_path: Path
) -> None:
    last = archive / open_archive(archive).plan.cells[-1].path
    last.rename(tmp_path / "to come")
    assert any(cell.state == "missing" for cell in build(archive).tables[0].cells)
    reads.clear()
    (tmp_path / "to come").rename(last)
    build(archive)
    assert reads == [str(last.relative_to(archive))]


def test_files_that_may_still_change_unseen_are_not_kept(
    archive: Path, cache: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "RESTED_S", 3600.0)
    build(archive)
    reads.clear()
    build(archive)
    assert len(reads) == len(open_archive(archive).plan.cells)


def test_a_file_that_changes_while_it_is_read(
    archive: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_archive(archive)
    cell = opened.plan.cells[0]
    real = kept.read_run

    def meanwhile(folder: Any, planned: Any) -> Run:
        run = real(folder, planned)
        (archive / planned.path / "late").touch()
        return run

    monkeypatch.setattr(kept, "read_run", meanwhile)
    store = kept.Kept.of(archive)
    store.read(opened.folder, cell)
    assert store.find(opened.folder, cell) is None


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[" * 100_000, b'{"of": 1}', b'{"of": null, "run": {}}', b"\xff", None]
)
def test_a_record_that_is_none_is_read_anew(archive: Path, cache: Path, content: Any) -> None:
    opened = open_archive(archive)
    cell = opened.plan.cells[0]
    store = kept.Kept.of(archive)
    run = store.read(opened.folder, cell)
    (record,) = cache.glob("*/*.json")
    if content is None:
        document = json.loads(record.read_text())
        document["run"]["histograms"] = {"read": {"latencies_ns": "AAA", "counts": 5}}
        content = json.dumps(document).encode()
    record.write_bytes(content)
    assert store.find(opened.folder, cell) is None
    assert same(store.read(opened.folder, cell), run)


def test_nothing_is_kept_of_a_cell_with_links(archive: Path, cache: Path) -> None:
    """Where a link leads may change while the link does not."""
    cell = archive / open_archive(archive).plan.cells[0].path
    (cell / "proof.json").rename(archive / "elsewhere.json")
    (cell / "proof.json").symlink_to(archive / "elsewhere.json")
    build(archive)
    (directory,) = cache.iterdir()
    assert len(list(directory.glob("*.json"))) == len(open_archive(archive).plan.cells) - 1


def test_records_that_nobody_uses_go(archive: Path, cache: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(archive, tmp_path / "other"))
    build(archive)
    build(other)
    of_other = next(d for d in cache.iterdir() if (d / "archive").read_text() == str(other))
    shutil.rmtree(other)
    build(archive)
    assert of_other.exists()
    os.utime(of_other / "archive", (0, time.time() - 61 * 86_400))
    build(archive)
    assert len(list(cache.iterdir())) == 1 and not of_other.exists()


@pytest.mark.parametrize("how", ["group may write", "a link", "another user's", "no home"])
def test_where_somebody_else_could_put_records_none_are_believed(
    archive: Path, cache: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    if how == "another user's" and os.geteuid() != 0:
        pytest.skip("needs root, to be somebody else too")
    build(archive)
    if how == "group may write":
        cache.chmod(0o770)
    elif how == "a link":
        cache.rename(cache.parent / "moved")
        cache.symlink_to("moved")
    elif how == "another user's":
        os.chown(cache, 65534, 65534)
    else:
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setenv("HOME", "/proc/nowhere")
    reads.clear()
    build(archive)
    assert len(reads) == len(open_archive(archive).plan.cells)


def test_records_are_for_this_user_alone(archive: Path, cache: Path) -> None:
    build(archive)
    modes = {
        path.stat().st_mode & 0o077 for path in (cache, *cache.iterdir(), *cache.glob("*/*.json"))
    }
    assert modes == {0}


def test_code_that_reads_otherwise_reads_again(
    archive: Path, cache: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    build(archive)
    reads.clear()
    monkeypatch.setattr(kept, "code", lambda: "another")
    build(archive)
    assert reads


def test_keeping_costs_less_than_reading(archive: Path, cache: Path) -> None:
    opened = open_archive(archive)
    store = kept.Kept.of(archive)

    def seconds(action: Any) -> float:
        begun = time.perf_counter()
        for cell in opened.plan.cells:
            action(opened.folder, cell)
        return time.perf_counter() - begun

    seconds(store.read)
    reading, finding = zip(*((seconds(kept.read_run), seconds(store.find)) for _ in range(5)))
    assert min(finding) < min(reading) / 2

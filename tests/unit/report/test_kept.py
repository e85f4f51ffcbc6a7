"""What was read of cells is kept, for the very files that it was read from and for nobody else."""

from __future__ import annotations

import dataclasses
import errno
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
from click.testing import CliRunner

from cbt_crypto.archive.folder import open_archive
from cbt_crypto.archive.pack import pack
from cbt_crypto.cli import cbt_crypto
from cbt_crypto.report import build, write
from cbt_crypto.results.cell import kept
from cbt_crypto.results.cell.run import Run
from cbt_crypto.run.progress import SoFar

pytestmark = pytest.mark.unit


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; files count as old from the beginning."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(kept, "RESTED_S", -60.0)
    return tmp_path / "cache" / "cbt-crypto" / "records"


@pytest.fixture
def archive(tmp_path: Path, synthetic: ModuleType) -> Path:
    """Two configurations under one workload, with everything that a cell can have sampled."""
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
        read = store.read(opened.folder, cell)
        store.keep(cell, read)
        run = read.run
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


def test_what_a_campaign_showed_between_cells_is_not_read_again(
    archive: Path, cache: Path, reads: list[str]
) -> None:
    time.sleep(2.5)  # that program is another, for which the files are too young till then
    SoFar(archive, 9).renew()
    build(archive)
    assert not reads


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
    assert store.read(opened.folder, cell).key is None


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[" * 100_000, b'{"of": 1}', b'{"of": null, "run": {}}', b"\xff", None]
)
def test_a_record_that_is_none_is_read_anew(archive: Path, cache: Path, content: Any) -> None:
    opened = open_archive(archive)
    cell = opened.plan.cells[0]
    store = kept.Kept.of(archive)
    read = store.read(opened.folder, cell)
    store.keep(cell, read)
    (record,) = cache.glob("*/*.json")
    if content is None:
        document = json.loads(record.read_text())
        document["run"]["histograms"] = {"read": {"latencies_ns": "AAA", "counts": 5}}
        content = json.dumps(document).encode()
    record.write_bytes(content)
    assert store.find(opened.folder, cell) is None
    assert same(store.read(opened.folder, cell), read)


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
    assert of_other.exists(), "thousands are not looked at for each report"
    build(Path(shutil.copytree(archive, tmp_path / "new")))
    assert len(list(cache.iterdir())) == 2 and not of_other.exists()


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

    for cell in opened.plan.cells:
        store.keep(cell, store.read(opened.folder, cell))
    reading, finding = zip(*((seconds(kept.read_run), seconds(store.find)) for _ in range(5)))
    assert min(finding) < min(reading) / 2


@pytest.mark.parametrize("how", ["moves", "moves and another is there"])
def test_a_cell_that_moves_while_it_is_read(
    archive: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    real = kept.read_run

    def moving(folder: Any, planned: Any) -> Run:
        run = real(folder, planned)
        (archive / planned.path).rename(tmp_path / planned.id)
        if how != "moves":
            shutil.copytree(tmp_path / planned.id, archive / planned.path)
        return run

    monkeypatch.setattr(kept, "read_run", moving)
    build(archive)
    assert not list(cache.glob("*/*.json"))


def test_what_could_not_be_read_this_time_is_not_kept(
    archive: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the system leaves no time anywhere, as what a file holds does."""
    cells = open_archive(archive).plan.cells
    real = os.listdir

    def failing(path: Any) -> list[str]:
        if str(path).endswith(cells[0].path):
            raise OSError(errno.EIO, "Input/output error")
        return real(path)

    monkeypatch.setattr(os, "listdir", failing)
    (failed,) = [cell for cell in build(archive).tables[0].cells if cell.state == "failed"]
    assert failed.reason == "its directory cannot be read (Input/output error)"
    monkeypatch.setattr(os, "listdir", real)
    assert all(cell.state == "measured" for cell in build(archive).tables[0].cells)


def test_deep_directories_and_many_files_are_no_campaign_s(archive: Path, cache: Path) -> None:
    """os.walk would end with a RecursionError; and what is not walked may change unseen."""
    cells = open_archive(archive).plan.cells
    deep = archive / cells[0].path
    for _ in range(600):
        deep = deep / "d"
    os.makedirs(deep)
    build(archive)
    assert len(list(cache.glob("*/*.json"))) == len(cells) - 1


def test_a_directory_that_cannot_be_listed_may_hold_what_is_read(
    archive: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = archive / open_archive(archive).plan.cells[0].path
    (cell / "closed").mkdir()
    real = os.scandir

    def scandir(path: Any) -> Any:
        if str(path).rstrip("/").endswith("closed"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    build(archive)
    assert len(list(cache.glob("*/*.json"))) == len(open_archive(archive).plan.cells) - 1


@pytest.mark.parametrize("limit", ["RECORD_LIMIT", "ARCHIVE_LIMIT"])
def test_what_somebody_sent_does_not_fill_the_cache(
    archive: Path, cache: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(kept, limit, 1000)
    build(archive)
    assert not list(cache.glob("*/*.json"))
    build(archive)
    assert len(reads) == 2 * len(open_archive(archive).plan.cells)


def test_one_cell_has_one_record_however_its_path_is_spelled(archive: Path, cache: Path) -> None:
    path = archive / "results" / "plan.json"
    plan = json.loads(path.read_text())
    first = plan["cells"][0]
    plan["cells"] = [
        first,
        {**first, "path": first["path"].replace("/", "//").replace("//", "/./")},
    ]
    path.write_text(json.dumps(plan))
    build(archive)
    assert len(list(cache.glob("*/*.json"))) == 1


def test_a_pack_leaves_nothing(archive: Path, cache: Path, tmp_path: Path) -> None:
    packed = tmp_path / "archive.zip"
    pack(archive, packed)
    done = CliRunner().invoke(cbt_crypto, ["report", str(packed), "-o", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert not cache.exists()


def test_nothing_but_records_is_ever_removed(archive: Path, cache: Path, tmp_path: Path) -> None:
    """Whatever else somebody keeps there, or has put there for root."""
    build(archive)
    (own,) = cache.iterdir()
    others = [cache / "taxes", cache / ("0" * 32), cache / ("1" * 32), cache / ("2" * 32)]
    elsewhere = tmp_path / "elsewhere"
    for place in (*others[:3], elsewhere):
        place.mkdir(mode=0o700)
        (place / "archive").write_text("mine")
        (place / "letter").write_text("dear")
    (others[2] / "archive").unlink()
    (others[2] / "archive").mkdir()
    others[3].symlink_to(elsewhere)
    for place in (*others, own):
        os.utime(place / "archive", (0, 0))
    build(archive)
    assert all((place / "letter").read_text() == "dear" for place in others)
    assert (elsewhere / "archive").read_text() == "mine"


@pytest.mark.parametrize("part", ["cache", "cbt-crypto"])
def test_a_link_in_the_place_of_the_cache(archive: Path, cache: Path, part: str) -> None:
    """Put where everybody may, it leads root to a directory of his own with other things in it."""
    home = cache.parents[2] / "home"
    for place in (home, home / "cbt-crypto", home / "records"):
        place.mkdir(mode=0o700)
    if part == "cache":
        cache.parent.parent.symlink_to(home)
    else:
        cache.parent.parent.mkdir()
        cache.parent.symlink_to(home)
    build(archive)
    assert not list((home / "records").iterdir())
    # A link that leads to the cache is the user's own matter: where it leads is checked.
    assert (home / "cbt-crypto" / "records").exists() is (part == "cache")


def test_a_cache_below_a_stranger_s_directory(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As sudo leaves $HOME: what root makes there, its owner can replace."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to be somebody else too")
    his = tmp_path / "his"
    his.mkdir()
    os.chown(his, 65534, 65534)
    monkeypatch.setenv("XDG_CACHE_HOME", str(his / "not" / "there"))
    build(archive)
    assert not list(his.iterdir())


def test_any_umask_will_do(archive: Path, cache: Path, reads: list[str]) -> None:
    before = os.umask(0)
    try:
        build(archive)
        build(archive)
    finally:
        os.umask(before)
    assert len(reads) == len(open_archive(archive).plan.cells)
    assert {p.stat().st_mode & 0o077 for p in (cache.parent.parent, cache.parent, cache)} == {0}


def test_where_there_is_no_room_what_is_there_is_found(
    archive: Path, cache: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    build(archive)
    reads.clear()

    def full(*words: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    build(archive)
    assert not reads
    assert not [path for path in cache.glob("*/*") if path.suffix not in ("", ".json")]

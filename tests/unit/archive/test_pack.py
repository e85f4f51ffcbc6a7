"""Packs: what goes in comes out, and what an attacker sends does not."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, Optional

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cbt_crypto.archive.pack import MANIFEST, opened, pack
from cbt_crypto.errors import RunError, UsageError
from cbt_crypto.hosts import directories

pytestmark = pytest.mark.unit


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    folder = tmp_path / "archive"
    cell = folder / "results/00000000/id-1"
    cell.mkdir(parents=True)
    (folder / "results/plan.json").write_text('{"format": 1}')
    (folder / "results/journal.jsonl").write_text("{}")
    (cell / "json_output.0.client0").write_bytes(os.urandom(100) + b"\n" * 100_000)
    (cell / "empty").touch()
    (cell / "passwd").symlink_to("/etc/passwd")
    os.mkfifo(cell / "pipe")
    return folder


def test_what_goes_in_comes_out(archive: Path, tmp_path: Path) -> None:
    assert pack(archive, tmp_path / "a.zip") == 3
    with opened(tmp_path / "a.zip") as found:
        names = {p.relative_to(found.folder).as_posix() for p in found.folder.rglob("*.*")}
        for name in found.manifest.files:
            assert (found.folder / name).read_bytes() == (archive / name).read_bytes()
            assert stat.S_IMODE((found.folder / name).stat().st_mode) == 0o600
        folder = found.folder
    assert not folder.exists(), "gone with the block"
    assert set(found.manifest.files) == {
        "results/plan.json", "results/00000000/id-1/json_output.0.client0",
        "results/00000000/id-1/empty",
    }  # fmt: skip
    assert not any("passwd" in name or "pipe" in name or "journal" in name for name in names)


@pytest.mark.parametrize(
    ("number", "command"),
    [*product((signal.SIGTERM, signal.SIGHUP, signal.SIGKILL), ("report", "pack"))],
)
def test_a_signal_leaves_nothing(
    archive: Path, tmp_path: Path, number: signal.Signals, command: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A closed terminal left the content of a pack in /tmp: up to 100 times its size."""
    temporary, out = tmp_path / "tmp", tmp_path / "out"
    temporary.mkdir()
    out.mkdir()
    for name in range(20):
        with (archive / "results" / f"log.{name}").open("wb") as file:
            file.truncate(60 << 20)
    packed = Path(__file__).parent.parent / "data/packs/archive-format-1.zip"
    words = ["pack", archive, "-o", "a.zip"] if command == "pack" else ["report", packed, "-o", "."]
    with subprocess.Popen(
        [sys.executable, "-m", "cbt_crypto", *map(str, words)], cwd=out, stdout=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(temporary)}, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        ends = time.monotonic() + 60
        # The moment between making a directory or a file and knowing of it is not tried here.
        while not [*temporary.glob("cbt-*pack-*/*"),
                   *(path for path in out.iterdir() if path.stat().st_size)]:  # fmt: skip
            assert process.poll() is None and time.monotonic() < ends
            time.sleep(0.01)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    if number is signal.SIGKILL:
        monkeypatch.setattr(tempfile, "tempdir", str(temporary))
        directories.clear_dead()
    else:
        assert (process.returncode, said) == (2, "interrupted\n")
    left = [*temporary.iterdir(), *out.iterdir()]
    if (number, command) == (signal.SIGKILL, "pack"):
        # Seen by its name, and not read: it was a hidden file that nothing found or removed.
        assert left == [out / "a.zip"]
        with pytest.raises(UsageError), opened(out / "a.zip"):
            pass
    else:
        assert left == []


@pytest.mark.parametrize("name", ["a\nb", "a:b", "a\\b", "a\x7fb", "/".join("abcdefgh")])
def test_what_would_not_be_read_is_not_packed(archive: Path, tmp_path: Path, name: str) -> None:
    """A pack had a file whose name `report` then refused, with all the rest."""
    odd = archive / "results" / name
    odd.parent.mkdir(parents=True, exist_ok=True)
    odd.touch()
    assert pack(archive, tmp_path / "a.zip") == 3
    with opened(tmp_path / "a.zip") as found:
        assert len(found.manifest.files) == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's file needs root")
def test_a_hard_link_to_another_user_s_file_is_not_packed(archive: Path, tmp_path: Path) -> None:
    """Root's `pack` of a user's archive carried a file of root's that he had linked into it."""
    (tmp_path / "secret").write_text("root's")
    os.link(archive / "results/plan.json", tmp_path / "kept")
    assert pack(archive, tmp_path / "a.zip") == 3
    os.chown(tmp_path / "secret", 65534, 65534)
    os.link(tmp_path / "secret", archive / "results/x.json")
    with pytest.raises(UsageError, match=r"x\.json: is a hard link to a file of another user"):
        pack(archive, tmp_path / "b.zip")


def test_the_same_archive_gives_the_same_bytes(archive: Path, tmp_path: Path) -> None:
    pack(archive, tmp_path / "a.zip")
    os.utime(archive / "results/plan.json", (0, 0))
    pack(archive, tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_no_file_is_written_over_and_none_half(archive: Path, tmp_path: Path) -> None:
    target = tmp_path / "a.zip"
    target.write_text("mine")
    with pytest.raises(UsageError, match="is there already"):
        pack(archive, target)
    assert target.read_text() == "mine"
    with pytest.raises(UsageError, match="nothing to pack"):
        pack(tmp_path, tmp_path / "b.zip")
    assert not (tmp_path / "b.zip").exists()
    assert not list(tmp_path.glob(".*"))


def test_where_there_are_no_links(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a memory stick or a share, all was compressed and then thrown away."""

    def link(*_: Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    assert pack(archive, tmp_path / "a.zip") > 0
    with opened(tmp_path / "a.zip"):
        pass
    assert [path.name for path in tmp_path.glob("*.zip*")] == ["a.zip"]
    with pytest.raises(UsageError, match="is there already"):
        pack(archive, tmp_path / "a.zip")


def test_one_that_fails_midway_is_gone_and_nobody_elses(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "a.zip"

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("cbt_crypto.archive.pack.open_below", full)
    with pytest.raises(RunError, match="No space left on device"):
        pack(archive, target)
    assert not target.exists()

    def replaced(*_: Any) -> None:
        target.unlink()
        target.write_text("another's")
        full()

    monkeypatch.setattr("cbt_crypto.archive.pack.open_below", replaced)
    with pytest.raises(RunError):
        pack(archive, target)
    assert target.read_text() == "another's"


Change = Callable[[zipfile.ZipInfo], None]


def write(
    path: Path, files: dict[str, bytes], told: Optional[dict[str, Any]] = None,
    change: Optional[Change] = None, **manifest: Any,
) -> Path:  # fmt: skip
    """A zip of these files, whose manifest is right unless something else is told."""
    sums = {
        name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in files.items()
    }
    files_told = {**sums, **(told or {})}
    whole = {"format": 1, "kind": "raw", "files": files_told, **manifest}
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        warnings.simplefilter("ignore")
        for name, data in files.items():
            entry = zipfile.ZipInfo(name)
            # as in the file: ZipInfo would fix some names itself
            entry.filename = name
            entry.compress_type = zipfile.ZIP_DEFLATED
            if change:
                change(entry)
            made.writestr(entry, data)
        made.writestr(MANIFEST, json.dumps(whole))
    return path


def refused(path: Path) -> str:
    with pytest.raises(UsageError) as error, opened(path):
        pass
    text = str(error.value)
    assert text.startswith(str(path))
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    "name",
    [
        "../evil", "results/../../evil", "/etc/cron.d/evil", "results//evil", "results/./evil",
        "results/..", "results\\..\\evil", "C:/evil", "results/a:stream", "results/a\nb", "evil",
        "results", "results/" + "x" * 2000, "results/evil/",
    ],
)  # fmt: skip
def test_a_path_that_leads_elsewhere(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    text = refused(write(folder / "a.zip", {name: b"x"}))
    assert "holds an unsafe path" in text or "which no raw pack has" in text
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a.zip", "in"]


def _as_link(entry: zipfile.ZipInfo) -> None:
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16


def _as_device(entry: zipfile.ZipInfo) -> None:
    entry.external_attr = (stat.S_IFBLK | 0o666) << 16


def _as_lzma(entry: zipfile.ZipInfo) -> None:
    entry.compress_type = zipfile.ZIP_LZMA


@pytest.mark.parametrize("change", [_as_link, _as_device, _as_lzma])
def test_what_is_no_plain_file(tmp_path: Path, change: Change) -> None:
    refused(write(tmp_path / "a.zip", {"results/link": b"/etc/passwd"}, change=change))


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    text = refused(write(tmp_path / "a.zip", {"results/zeros": bytes(200 << 20)}))
    assert "100 times its size" in text


def test_a_bomb_that_lies_of_its_size(tmp_path: Path) -> None:
    """The manifest and the zip's own header say 10 bytes, and the stream goes on."""
    data = bytes(80 << 20)
    told = {"results/zeros": {"size": 10, "sha256": hashlib.sha256(data[:10]).hexdigest()}}
    path = write(tmp_path / "a.zip", {"results/zeros": data}, told)
    assert "not what the manifest says" in refused(path)
    raw = path.read_bytes().replace(struct.pack("<L", len(data)), struct.pack("<L", 10))
    path.write_bytes(raw)
    refused(path)


@pytest.mark.parametrize(
    "told",
    [
        {"results/a": {"size": 1, "sha256": "0" * 64}},
        {"results/a": {"size": 2, "sha256": hashlib.sha256(b"x").hexdigest()}},
        {"results/a": {"size": -1, "sha256": "0" * 64}},
        {"results/a": {"size": 1, "sha256": "short"}},
        {"results/b": {"size": 0, "sha256": "0" * 64}},
    ],
)
def test_content_is_what_the_manifest_says(tmp_path: Path, told: dict[str, Any]) -> None:
    refused(write(tmp_path / "a.zip", {"results/a": b"x"}, told))


def test_one_path_below_another_and_twice(tmp_path: Path) -> None:
    refused(write(tmp_path / "a.zip", {"results/a": b"x", "results/a/b": b"y"}))
    path = write(tmp_path / "b.zip", {"results/a": b"x"})
    with warnings.catch_warnings(), zipfile.ZipFile(path, "a") as made:
        warnings.simplefilter("ignore")
        made.writestr("results/a", b"y")
    assert "other files than its manifest" in refused(path)


@pytest.mark.parametrize(
    ("manifest", "said"),
    [({"format": 2}, "newer cbt-crypto"), ({"format": 0}, "newer"), ({"kind": "exe"}, "kind")],
)  # fmt: skip
def test_a_manifest_that_is_none(tmp_path: Path, manifest: dict[str, Any], said: str) -> None:
    assert said in refused(write(tmp_path / "a.zip", {"results/a": b"x"}, **manifest))


def test_what_is_no_zip_at_all(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04 and no more")
    refused(tmp_path / "a.zip")
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe")
    refused(tmp_path / "nowhere")
    whole = write(tmp_path / "b.zip", {"results/a": os.urandom(5000)}).read_bytes()
    (tmp_path / "b.zip").write_bytes(whole[:-50])
    refused(tmp_path / "b.zip")


@pytest.mark.parametrize("offset", [1 << 63, (1 << 64) - 1])
def test_an_offset_that_no_file_has(tmp_path: Path, offset: int) -> None:
    """A zip's 64 bits are more than the system's: a traceback."""
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr(MANIFEST, "{}")
        made.filelist[0].header_offset = offset
    assert "is not a pack" in refused(path)


def test_a_name_that_is_no_utf_8_is_refused(archive: Path, tmp_path: Path) -> None:
    """Python reads a file's own header once more, where another name can be."""
    path = tmp_path / "c.zip"
    pack(archive, path)
    raw = bytearray(path.read_bytes())
    raw[7] |= 0x08
    raw[30] = 0x80
    path.write_bytes(raw)
    refused(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.data())
def test_any_byte_may_be_another(archive: Path, tmp_path: Path, data: st.DataObject) -> None:
    """A damaged pack is read as it was or refused in a sentence; nothing else."""
    path = tmp_path / "c.zip"
    path.unlink(missing_ok=True)
    pack(archive, path)
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(raw)
    try:
        with opened(path) as found:
            name = "results/00000000/id-1/json_output.0.client0"
            assert (found.folder / name).read_bytes() == (archive / name).read_bytes()
    except UsageError:
        pass

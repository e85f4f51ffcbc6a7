"""A dead process's temporary directories are cleared, and nobody else's."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from cbt_crypto.hosts import directories

pytestmark = pytest.mark.unit


def test_only_a_dead_process_s_directories_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    dead = directories.prefix("conf").replace(f"-{os.getpid()}-", f"-{ended.pid}-")
    gone = tmp_path / f"{dead}abc"
    gone.mkdir()
    (gone / "daemons.keyring").touch()
    kept = ["cbt-conf-1-2-abc", "cbt-crypto", "cbt-conf", f"x{dead}abc", f"{dead}abc.d"]
    with monkeypatch.context() as other:
        # Of a run that lives on another machine, which has the same $TMPDIR.
        other.setattr(os, "uname", lambda: SimpleNamespace(nodename="other"))
        kept.append(f"{directories.prefix('conf')}abc".replace(f"{os.getpid()}", f"{ended.pid}"))
    for name in kept:
        (tmp_path / name).mkdir()
    (tmp_path / f"{dead}link").symlink_to(tmp_path / "cbt-conf")
    own = Path(tempfile.mkdtemp(prefix=directories.prefix("run")))
    directories.clear_dead()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [*kept, f"{dead}link", own.name]
    )


def test_a_place_that_is_full_or_that_programs_split_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pdsh split its words at a blank in $TMPDIR; and a full one kept a cluster up."""
    blank, good = tmp_path / "a b", tmp_path / "good"
    for place in (blank, good):
        place.mkdir()
    monkeypatch.setattr(directories, "OTHER_PLACES", (str(good),))
    monkeypatch.setattr(tempfile, "tempdir", str(blank))
    assert directories.temporary_place() == str(good)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert directories.temporary_place() == str(tmp_path)
    monkeypatch.setattr(directories, "has_room", lambda place: place == str(good))
    assert directories.temporary_place() == str(good)
    # A user who fills all that anybody may write to does not keep a cluster up.
    (home := tmp_path / "home").mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(directories, "has_room", lambda place: place == str(home))
    assert directories.temporary_place() == str(home)
    # As of `sudo` that keeps HOME: whose it is could put another directory in the place of ours.
    home.chmod(0o777)
    assert directories.temporary_place() == str(tmp_path)
    monkeypatch.setattr(directories, "has_room", lambda place: False)
    assert directories.temporary_place() == str(tmp_path)


def test_a_place_where_others_may_rename_ours_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a shared $TMPDIR without the sticky bit anybody put his script in the place of ours."""
    shared, good = tmp_path / "shared", tmp_path / "good"
    for place in (shared, good, shared / "own"):
        place.mkdir()
    monkeypatch.setattr(directories, "OTHER_PLACES", (str(good),))
    for place in (shared, shared / "own"):
        monkeypatch.setattr(tempfile, "tempdir", str(place))
        shared.chmod(0o777)
        assert directories.temporary_place() == str(good)
        shared.chmod(0o1777)
        assert directories.temporary_place() == str(place)


def test_a_disk_that_an_error_made_read_only_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop_devices: None
) -> None:
    """It says of itself that it can be written, and no script reached a host to tear down."""
    image, place = tmp_path / "image", tmp_path / "place"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(32 << 20)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop,errors=remount-ro", image, place], check=True)
    try:
        assert directories.has_room(str(place))
        source = subprocess.check_output(["findmnt", "-no", "SOURCE", place], text=True).strip()
        Path("/sys/fs/ext4", Path(source).name, "trigger_fs_error").write_text("x")
        assert not directories.has_room(str(place))
    finally:
        subprocess.run(["umount", place], check=True)

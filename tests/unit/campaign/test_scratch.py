"""A dead process's temporary directories are cleared, and nobody else's."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

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
    monkeypatch.setattr(directories, "has_room", lambda place: False)
    assert directories.temporary_place() == str(tmp_path)

"""What a kill between two renames leaves of an archive, and how it is fixed."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from cbt_crypto.errors import UsageError
from cbt_crypto.lab import run

pytestmark = pytest.mark.unit


def names(archive: Path) -> list[str]:
    return sorted(path.name for path in archive.iterdir())


def results(archive: Path, name: str, text: str) -> None:
    (archive / name).mkdir(parents=True)
    (archive / name / "plan.json").write_text(text)


def test_a_kill_before_the_new_results_are_in_place_keeps_the_old(tmp_path: Path) -> None:
    results(tmp_path, ".results.replaced", "old")
    results(tmp_path / ".results.incoming", "results", "new")
    run.settle(tmp_path)
    assert names(tmp_path) == ["results"]
    assert (tmp_path / "results" / "plan.json").read_text() == "old"


def test_a_kill_after_it_keeps_the_new(tmp_path: Path) -> None:
    results(tmp_path, ".results.replaced", "old")
    results(tmp_path, "results", "new")
    (tmp_path / ".results.incoming").mkdir()
    run.settle(tmp_path)
    assert names(tmp_path) == ["results"]
    assert (tmp_path / "results" / "plan.json").read_text() == "new"


@pytest.mark.parametrize("repeated", [False, True])
def test_what_a_node_kept_replaces_nothing_newer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repeated: bool
) -> None:
    """Three cells that a broken connection had left on a node replaced forty of another lab's."""
    cell = tmp_path / "results" / "00000000" / "id-1" / "cell.json"
    cell.parent.mkdir(parents=True)
    cell.write_text('{"state": "finished"}')
    kept = "superseded/00000000.id-1.1" if repeated else "00000000/id-2"

    def fetch(command: list[str], mark: str, target: Path) -> None:
        (target / kept).mkdir(parents=True)
        state = "finished" if repeated else "running"
        (target / kept / "cell.json").write_text(f'{{"state": "{state}"}}')

    monkeypatch.setattr(run.fetch, "fetch", fetch)
    monkeypatch.setattr(run.access, "command", lambda *_: ["true"])
    lab = SimpleNamespace(name="default")
    bring = partial(run.bring_results, lab, SimpleNamespace(name="node0"), "/root/a", tmp_path)
    if repeated:
        bring()
    else:
        with pytest.raises(
            UsageError,
            match=r"1 finished cell that node0 of lab default has not, .* move the archive away",
        ):
            bring()
    assert cell.exists() is not repeated
    assert names(tmp_path) == ["results"]


def test_a_whole_archive_and_none_are_left_as_they_are(tmp_path: Path) -> None:
    run.settle(tmp_path / "absent")
    results(tmp_path, "results", "whole")
    (tmp_path / "report.md").touch()
    run.settle(tmp_path)
    assert names(tmp_path) == ["report.md", "results"]


def test_caches_and_environments_stay_here_and_links_are_followed(tmp_path: Path) -> None:
    source = tmp_path / "package"
    for name in ("code.py", "__pycache__/code.pyc", ".venv/bin/python", ".git/config"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "more.py").write_text("more")
    (source / "linked").symlink_to("../elsewhere")
    stream = io.BytesIO()
    run.pack(stream, {"lib": source, "hello.txt": "hello"})
    stream.seek(0)
    with tarfile.open(fileobj=stream) as tar:
        files = {member.name: member for member in tar.getmembers() if member.isfile()}
        assert sorted(files) == ["hello.txt", "lib/code.py", "lib/linked/more.py"]
        hello = tar.extractfile("hello.txt")
        assert hello is not None and hello.read() == b"hello"
        assert {member.uid for member in files.values()} == {0}


def test_what_runs_on_a_node_needs_only_what_the_image_has() -> None:
    """Reports are made elsewhere: a node has none of the libraries that only they need."""
    program = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("isal", "numpy", "scipy"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
from cbt_crypto import main
from cbt_crypto.run import campaign
from cbt_crypto.engine.embedded import ceph
from cbt_crypto.engine.upstream import engine
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", [".results.replaced", ".results.incoming", "results"])
@pytest.mark.parametrize("kind", ["link", "broken link", "file"])
def test_a_link_in_an_archive_is_refused_with_a_sentence(
    tmp_path: Path, name: str, kind: str
) -> None:
    """It was a traceback, before the archive's links were checked."""
    (tmp_path / "victim").mkdir()
    path = tmp_path / "archive" / name
    path.parent.mkdir()
    if kind == "file":
        path.touch()
    else:
        path.symlink_to(tmp_path / ("victim" if kind == "link" else "nowhere"))
    with pytest.raises(UsageError, match="is no directory; remove it"):
        run.settle(tmp_path / "archive")
    assert (tmp_path / "victim").is_dir()

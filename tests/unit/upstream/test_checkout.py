"""Which engine a campaign gets, and what is said of a checkout."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cbt_crypto.archive.files import write_json
from cbt_crypto.engine.choice import check_same_engine, choose, embedded
from cbt_crypto.engine.upstream.checkout import find, is_checkout, missing_library, read_checkout
from cbt_crypto.errors import UsageError
from cbt_crypto.main import cbt

pytestmark = pytest.mark.unit

_FILES = (
    "cbt.py", "settings.py", "common.py", "monitoring.py", "benchmarkfactory.py",
    "cluster/ceph.py", "benchmark/benchmark.py",
)  # fmt: skip


def make(path: Path) -> Path:
    for name in _FILES:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).touch()
    return path


def commit(path: Path) -> str:
    git = ["git", "-C", str(path), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    environment = {"GIT_COMMITTER_DATE": "2024-03-02T00:00:00", "PATH": "/usr/bin:/bin"}
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], check=True, env=environment)
    told = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    return told.stdout.strip()


def test_a_checkout_is_told_by_its_modules(tmp_path: Path) -> None:
    assert is_checkout(make(tmp_path / "cbt"))
    (tmp_path / "cbt/cluster/ceph.py").unlink()
    assert not is_checkout(tmp_path / "cbt")


def test_monitoring_may_be_a_module_or_a_package(tmp_path: Path) -> None:
    path = make(tmp_path / "cbt")
    (path / "monitoring.py").unlink()
    assert not is_checkout(path)
    (path / "monitoring").mkdir()
    (path / "monitoring/monitoring_factory.py").touch()
    assert is_checkout(path)


def test_a_sibling_that_looks_like_a_checkout_is_never_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CBT_HOME", raising=False)
    (make(tmp_path / "cbt") / "settings.py").unlink()
    with pytest.raises(UsageError, match=r"^\.\./cbt .*: looks like a checkout of CBT"):
        find(None, tmp_path / "project", tmp_path / "elsewhere" / "x")


def test_a_sibling_that_is_something_else_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CBT_HOME", raising=False)
    (tmp_path / "cbt").mkdir()
    (tmp_path / "cbt/cbt.py").touch()
    assert find(None, tmp_path / "project", tmp_path) is None


def test_a_library_that_upstream_needs_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path / "cbt")
    (path / "benchmark/librbdfio.py").write_text("import nonesuch_library\n")
    (path / "benchmark/__init__.py").touch()
    monkeypatch.syspath_prepend(str(path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    said = missing_library(path, "librbdfio")
    assert said and said.startswith("benchmarks.librbdfio: --cbt ")
    assert "needs nonesuch_library, which is not installed; run " in said


def test_this_project_is_none() -> None:
    assert not is_checkout(Path(__file__).parents[3])


def test_commit_date_and_changes_are_told(tmp_path: Path) -> None:
    path = make(tmp_path / "cbt")
    made = commit(path)
    found = read_checkout(path, "--cbt")
    assert (found.commit, found.version) == (made, "2024-03-02")
    (path / "__pycache__").mkdir()
    (path / "__pycache__/x.pyc").touch()
    assert not read_checkout(path, "--cbt").is_changed
    (path / "common.py").write_text("x = 1\n")
    assert read_checkout(path, "--cbt").version == "2024-03-02, changed"


def test_programs_that_a_repository_names_are_not_run(tmp_path: Path) -> None:
    """`git status` asks core.fsmonitor what has changed; `git show` has signatures looked at."""
    path, here = make(tmp_path / "cbt"), tmp_path / "here"
    commit(path)
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {here}\n")
    program.chmod(0o755)
    git = ["git", "-C", str(path)]
    for name in ("core.fsmonitor", "gpg.program", "core.pager", "diff.external"):
        subprocess.run([*git, "config", name, str(program)], check=True)
    subprocess.run([*git, "config", "log.showSignature", "true"], check=True)
    subprocess.run([*git, "status"], check=True, capture_output=True)
    assert here.exists(), "git would run it"
    here.unlink()
    assert read_checkout(path, "--cbt").version == "2024-03-02"
    assert not here.exists()


def test_without_git_it_is_a_checkout_all_the_same(tmp_path: Path) -> None:
    found = read_checkout(make(tmp_path / "cbt"), "--cbt")
    assert (found.commit, found.version) == (None, "of unknown date")


def test_what_is_no_checkout_is_refused_by_the_file_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^--cbt .*: is no checkout of CBT, it has no cbt\.py"):
        choose(tmp_path)


def test_the_order_of_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named, home = make(tmp_path / "a"), make(tmp_path / "b")
    beside, project = make(tmp_path / "cbt"), tmp_path / "project"
    elsewhere = tmp_path / "x" / "y"
    monkeypatch.setenv("CBT_HOME", f"{home}:{named}")
    for checkout, expected in ((named, named), (None, home), (Path("embedded"), None)):
        found = find(checkout, project, elsewhere)
        assert (found and found.path) == expected
    monkeypatch.setenv("CBT_HOME", "embedded")
    assert find(None, project, elsewhere) is None
    monkeypatch.setenv("CBT_HOME", "")
    found = find(None, project, elsewhere)
    assert found and found.path == beside
    assert find(None, elsewhere, elsewhere) is None
    assert find(None, elsewhere, project) == found


def test_an_archive_keeps_to_its_engine(tmp_path: Path) -> None:
    engine = embedded()
    path = tmp_path / "results" / "environment.json"
    check_same_engine(tmp_path, engine)
    write_json(path, {"engine": {"name": "embedded", "version": "0", "commit": None}})
    check_same_engine(tmp_path, engine)
    write_json(path, {"engine": {"name": "upstream", "commit": "9d6480fcea9e39"}})
    with pytest.raises(UsageError, match="was measured with the upstream engine at 9d6480fcea9e,"):
        check_same_engine(tmp_path, engine)


def planned(path: Path, *options: str) -> Result:
    return CliRunner().invoke(cbt, [str(path), "--plan", *options])


def test_a_plan_is_of_the_engine_that_would_run(
    write_campaign: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CBT_HOME", "embedded")
    path = write_campaign(benchmarks={"rbd_single_client": ..., "librbdfio": {"time": 5}})
    assert planned(write_campaign(name="own.yaml")).output.startswith("engine: embedded ")
    refused = planned(path)
    assert refused.exit_code == 2
    assert "librbdfio: is upstream CBT's own; name a checkout of it with --cbt" in refused.output
    refused = planned(path, "--cbt", str(tmp_path))
    assert refused.exit_code == 2
    assert "is no checkout of CBT" in refused.output

"""The branch for upstream, in a repository that has upstream's files by their names only."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

from cbt_crypto.engine.upstream.contribute.branch import BRANCH, contribute
from cbt_crypto.engine.upstream.contribute.edits import require, use_factory, without_complaints
from cbt_crypto.engine.upstream.contribute.parts import COMMITS
from cbt_crypto.errors import UsageError

pytestmark = pytest.mark.unit

PROGRAM = """\
import settings
from cluster.ceph import Ceph


def main(argv):
    options = parse(argv)
    settings.initialize(options)
    # FIXME: a cluster factory
    here = Ceph(settings.cluster)
    return here
"""


def git(path: Path, *words: str) -> str:
    named = ["git", "-C", str(path), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    done = subprocess.run([*named, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    path = tmp_path / "cbt"
    for name in ("settings", "common", "monitoring", "benchmarkfactory"):
        (path / f"{name}.py").parent.mkdir(parents=True, exist_ok=True)
        (path / f"{name}.py").touch()
    for name in ("cluster/ceph.py", "benchmark/benchmark.py"):
        (path / name).parent.mkdir()
        (path / name).touch()
    (path / "cbt.py").write_text(PROGRAM)
    (path / "requirements.txt").write_text("pyyaml\n")
    git(path, "init", "-q", "-b", "master")
    git(path, "add", "-A")
    git(path, "commit", "-qm", "upstream's")
    return path


def test_the_branch_has_a_commit_for_each_review(repository: Path) -> None:
    assert "7 commits" in contribute(repository)
    subjects = git(repository, "log", "--format=%s", f"master..{BRANCH}").splitlines()
    assert subjects == [commit.subject for commit in reversed(COMMITS)]
    assert git(repository, "rev-parse", "--abbrev-ref", "HEAD") == BRANCH
    assert git(repository, "status", "--porcelain") == ""
    for name in ("clusterfactory.py", "cbt_crypto/cluster_overlays/base.py", "docs/Overlays.md"):
        assert (repository / name).is_file()
    for name in ("luks/overlay", "secure_messenger/overlay"):
        path = repository / f"cbt_crypto/cluster_overlays/{name}.py"
        assert path.is_file()
        assert not path.parent.is_symlink()
    assert not (repository / "cbt_crypto/lab").exists()
    assert not (repository / "cbt_crypto/engine/upstream/contribute").exists()


def test_only_two_of_upstream_s_files_change(repository: Path) -> None:
    contribute(repository)
    changed = git(repository, "diff", "--name-status", f"master..{BRANCH}").splitlines()
    assert [line for line in changed if not line.startswith("A")] == [
        "M\tcbt.py",
        "M\trequirements.txt",
    ]


def test_done_again_it_changes_nothing(repository: Path) -> None:
    contribute(repository)
    tip = git(repository, "rev-parse", BRANCH)
    assert "is up to date" in contribute(repository)
    git(repository, "checkout", "-q", "master")
    assert "is up to date" in contribute(repository)
    assert git(repository, "rev-parse", BRANCH) == tip
    assert git(repository, "worktree", "list").count("\n") == 0


def test_when_upstream_has_moved_on_the_branch_is_made_anew(repository: Path) -> None:
    contribute(repository)
    git(repository, "checkout", "-q", "master")
    (repository / "new.py").touch()
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "upstream's too")
    assert "7 commits" in contribute(repository)
    assert (repository / "new.py").exists()
    assert len(git(repository, "rev-list", f"master..{BRANCH}").splitlines()) == len(COMMITS)


def test_somebody_else_s_branch_is_kept(repository: Path) -> None:
    git(repository, "checkout", "-q", "-b", BRANCH)
    with pytest.raises(UsageError, match="give that branch another name"):
        contribute(repository)


@pytest.mark.parametrize("name", ["cbt.py", "untracked"])
def test_a_dirty_checkout_is_refused(repository: Path, name: str) -> None:
    (repository / name).write_text("changed\n")
    with pytest.raises(UsageError, match=f"changes that are not committed .*{name}"):
        contribute(repository)
    assert git(repository, "branch", "--format=%(refname:short)") == "master"


def test_what_is_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no checkout of CBT"):
        contribute(tmp_path)


def test_the_factory_stands_where_the_class_stood() -> None:
    changed = use_factory(PROGRAM)
    assert changed == PROGRAM.replace(
        "from cluster.ceph import Ceph", "import clusterfactory"
    ).replace(
        "    settings.initialize(options)\n    # FIXME: a cluster factory\n    here = Ceph(",
        "    if clusterfactory.is_campaign(options.config_file):\n"
        "        return clusterfactory.run_campaign(options)\n"
        "    settings.initialize(options)\n    here = clusterfactory.get_object(",
    )


@pytest.mark.parametrize(
    ("gone", "sentence"),
    [
        ("from cluster.ceph import Ceph", "0 times an import of Ceph"),
        ("    settings.initialize(options)", r"0 times settings\.initialize"),
        ("    here = Ceph(settings.cluster)", "0 times a call of Ceph in main"),
    ],
)
def test_a_place_that_is_not_found_is_named(repository: Path, gone: str, sentence: str) -> None:
    (repository / "cbt.py").write_text(
        PROGRAM.replace(gone, "    here = 1" if gone[0] == " " else "")
    )
    git(repository, "commit", "-qam", "unlike")
    with pytest.raises(UsageError, match=sentence):
        contribute(repository)
    assert git(repository, "branch", "--format=%(refname:short)") == "master"
    assert git(repository, "status", "--porcelain") == ""


def test_requirements_are_added_once() -> None:
    text = require("pyyaml\nlxml", ["PyYAML >= 6", "numpy >= 1.22"])
    assert text == "pyyaml\nlxml\nnumpy >= 1.22\n"
    assert require(text, ["numpy >= 1.22"]) == text


def test_complaints_of_a_checker_are_answered_and_nothing_else_changes() -> None:
    source = "x = a[1 :]\ny = (\n    a\n    + b\n)\nz = {1: 2}\n"
    quiet = without_complaints(source)
    assert ast.dump(ast.parse(quiet)) == ast.dump(ast.parse(source))
    assert "a[1 :]  # noqa: E203" in quiet
    assert "    + b  # noqa: W503" in quiet
    assert "z = {1: 2}\n" in quiet

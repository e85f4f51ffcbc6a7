"""Branches for upstream, in a repository that has upstream's files by their names only."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from cbt_crypto.engine.upstream.contribute import parts
from cbt_crypto.engine.upstream.contribute.branch import contribute
from cbt_crypto.engine.upstream.contribute.command import contribute_command
from cbt_crypto.engine.upstream.contribute.edits import Edit, changed
from cbt_crypto.engine.upstream.contribute.parts import PARTS, Part
from cbt_crypto.errors import UsageError

pytestmark = pytest.mark.unit

PROGRAM = "import settings\nstart()\nend()\n"
#: The real files of a part, with an edit that fits the repository of these tests.
PART = dataclasses.replace(PARTS["A"], edits=(Edit("cbt.py", "after", r"start\(\)", "report()\n"),))


def git(path: Path, *words: str) -> str:
    named = ["git", "-C", str(path), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    done = subprocess.run([*named, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    path = tmp_path / "cbt"
    names = [f"{name}.py" for name in ("settings", "common", "monitoring", "benchmarkfactory")]
    names += ["cluster/ceph.py", "benchmark/benchmark.py", "workloads/workloads.py"]
    for name in names:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).touch()
    (path / "cbt.py").write_text(PROGRAM)
    git(path, "init", "-q", "-b", "main")
    git(path, "config", "user.name", "A. Contributor")
    git(path, "config", "user.email", "a@example.org")
    git(path, "add", "-A")
    git(path, "commit", "-qm", "upstream's")
    return path


def test_a_branch_has_one_commit_signed_off_and_says_why(repository: Path) -> None:
    assert f"branch {PART.branch} on " in contribute(repository, PART)
    message = git(repository, "log", "--format=%B", f"main..{PART.branch}")
    assert message.startswith(f"{PART.subject}\n\n{PART.body}\n\n")
    assert "\nSigned-off-by: A. Contributor <a@example.org>" in message
    assert message.count("Signed-off-by") == 1
    assert git(repository, "rev-parse", "--abbrev-ref", "HEAD") == "main"
    assert git(repository, "status", "--porcelain") == ""
    shown = git(repository, "show", f"{PART.branch}:cbt.py")
    assert shown == PROGRAM.strip().replace("start()", "start()\nreport()")
    names = git(repository, "diff", "--name-only", f"main..{PART.branch}").split()
    assert names == sorted(["cbt.py", *PART.files()])


def test_what_nobody_signs_off_is_said_to_be_so(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "signed" not in contribute(repository, PART)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", "/dev/null")
    git(repository, "config", "--remove-section", "user")
    for _ in range(2):
        assert "nobody has signed it off: set user.name and user.email" in contribute(
            repository, PART
        )
    git(repository, "config", "user.name", "A. Contributor")
    git(repository, "config", "user.email", "a@example.org")
    assert "signed" not in contribute(repository, PART)
    message = git(repository, "log", "--format=%B", f"main..{PART.branch}")
    assert "\nSigned-off-by: A. Contributor <a@example.org>" in message


def test_done_again_it_changes_nothing(repository: Path) -> None:
    contribute(repository, PART)
    tip = git(repository, "rev-parse", PART.branch)
    assert "is up to date" in contribute(repository, PART)
    git(repository, "checkout", "-q", PART.branch)
    assert "is up to date" in contribute(repository, PART)
    assert git(repository, "rev-parse", PART.branch) == tip
    assert git(repository, "worktree", "list").count("\n") == 0


def test_when_upstream_has_moved_on_the_branch_is_made_anew(repository: Path) -> None:
    contribute(repository, PART)
    (repository / "new.py").touch()
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "upstream's too")
    contribute(repository, PART)
    assert git(repository, "rev-list", f"main..{PART.branch}").count("\n") == 0
    assert "new.py" in git(repository, "ls-tree", "--name-only", PART.branch).split()


def test_somebody_else_s_branch_is_kept(repository: Path) -> None:
    git(repository, "branch", PART.branch)
    with pytest.raises(UsageError, match="give that branch another name"):
        contribute(repository, PART)


@pytest.mark.parametrize("name", ["cbt.py", "untracked"])
def test_a_dirty_checkout_is_refused(repository: Path, name: str) -> None:
    (repository / name).write_text("changed\n")
    with pytest.raises(UsageError, match=f"changes that are not committed .*{name}"):
        contribute(repository, PART)
    assert git(repository, "branch", "--format=%(refname:short)") == "main"


def test_what_is_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no checkout of CBT"):
        contribute(tmp_path, PART)


def test_the_frozen_branch_is_refused(repository: Path) -> None:
    git(repository, "rm", "-q", "workloads/workloads.py")
    git(repository, "commit", "-qm", "as master is")
    with pytest.raises(UsageError, match=r"is of CBT's frozen branch master, or older; run git "):
        contribute(repository, PART)


def test_where_a_place_is_not_found_nothing_is_made(repository: Path) -> None:
    for part in PARTS.values():
        with pytest.raises(UsageError, match="too unlike those"):
            contribute(repository, part)
    assert git(repository, "branch", "--format=%(refname:short)") == "main"
    assert git(repository, "status", "--porcelain") == ""


def test_edits() -> None:
    def edited(where: str, at: str = r" *b\(\)", source: str = "a()\n  b()\nc()\n") -> str:
        return changed(source, Edit("x.py", where, at, "new\n"))  # type: ignore[arg-type]

    assert edited("before") == "a()\nnew\n  b()\nc()\n"
    assert edited("after") == "a()\n  b()\nnew\nc()\n"
    assert edited("instead") == "a()\nnew\nc()\n"
    with pytest.raises(UsageError, match=r"x\.py: 2 lines are like"):
        edited("after", source="b()\nb()\n")


@pytest.mark.parametrize("part", PARTS.values(), ids=lambda part: part.key)
def test_a_part_is_small_and_stands_alone(part: Part) -> None:
    files = part.files()
    texts = [*files.values(), *(edit.text for edit in part.edits)]
    assert sum(text.count("\n") for text in texts) <= part.limit
    assert part.limit <= (250 if part.key == "A" else 450)
    assert any(name.startswith("tests/test_") for name in files)
    assert any(name.startswith("docs/") for name in files)
    assert not any("cbt_crypto" in text or "cbt-crypto" in text for text in texts)
    component, _, summary = part.subject.partition(": ")
    assert component.islower() and summary[0].isupper() and len(part.subject) <= 72


@pytest.mark.parametrize("part", PARTS.values(), ids=lambda part: part.key)
def test_the_text_of_a_pull_request_says_what_why_and_how_it_was_tried(part: Part) -> None:
    text = part.pull_request()
    places = [text.index(f"## {heading}") for heading in ("What", "Why", "How it was tried")]
    assert places == sorted(places)
    assert "```" in text[places[-1] :], "a log of a real run"


def test_the_command_prints_the_text(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(parts.PARTS, "A", PART)  # type: ignore[arg-type]
    done = CliRunner().invoke(contribute_command, [str(repository), "--part", "A"])
    assert done.exit_code == 0, done.output
    assert f"# {PART.subject}\n\n## What\n" in done.output

"""The branch: built beside the checkout's files, and moved to only when it is whole."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from cbt_crypto.engine.upstream.checkout import is_checkout
from cbt_crypto.engine.upstream.contribute import edits, parts
from cbt_crypto.errors import UsageError

BRANCH = "cbt-crypto"
#: Ends the message of each commit of ours, so that a repetition knows them.
TRAILER = "Contributed-with: cbt-crypto contribute"


class Repository:
    """A git repository with upstream's files."""

    def __init__(self, path: Path) -> None:
        """Raises UsageError when it is no clean checkout of CBT's."""
        self.path = path.resolve()
        if not is_checkout(self.path):
            raise UsageError(f"{path}: is no checkout of CBT; name a folder made by git clone")
        if self.git("rev-parse", "--show-toplevel", check=False) != str(self.path):
            raise UsageError(f"{path}: git does not know this folder; name one made by git clone")
        changed = self.git("status", "--porcelain")
        if changed:
            raise UsageError(
                f"{path}: has changes that are not committed ({changed.splitlines()[0].strip()}); "
                "commit or remove them"
            )

    def git(self, *arguments: str, at: Optional[Path] = None, check: bool = True) -> str:
        """What git prints. Raises UsageError with its last words when it fails."""
        done = subprocess.run(
            ["git", "-C", str(at or self.path), *arguments],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if check and done.returncode:
            said = (done.stderr.strip().splitlines() or ["it failed"])[-1]
            raise UsageError(f"{self.path}: git {arguments[0]}: {said}")
        return done.stdout.strip()

    def commit_of(self, name: str) -> Optional[str]:
        """The commit of a branch; None when there is no such branch."""
        return (
            self.git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", check=False) or None
        )

    def base(self) -> str:
        """The newest commit, from where the checkout is, that is none of ours."""
        commits = self.git("rev-list", "--first-parent", "HEAD").splitlines()
        return next(commit for commit in commits if not self.is_ours(commit))

    def is_ours(self, commit: str) -> bool:
        """Whether this program made it."""
        return TRAILER in self.git("show", "-s", "--format=%B", commit)


def contribute(path: Path) -> str:
    """Make the branch, or make it anew; return a sentence for people.

    Raises UsageError, with nothing changed, for a checkout that is dirty or too unlike the known,
    and for a branch of that name on which somebody else committed.
    """
    repository = Repository(path)
    base = repository.base()
    old = repository.commit_of(f"refs/heads/{BRANCH}")
    if old:
        _check_all_ours(repository, old)
    new = _build(repository, base)
    short = base[:12]
    if old and repository.git("rev-parse", f"{old}^{{tree}}", f"{new}^{{tree}}").split() == (
        [repository.git("rev-parse", f"{new}^{{tree}}")] * 2
    ):
        repository.git("checkout", "-q", BRANCH)
        return f"{repository.path}: branch {BRANCH} is up to date, on {short}"
    repository.git("checkout", "-q", "--detach", new)
    repository.git("branch", "-q", "-f", BRANCH, new)
    repository.git("checkout", "-q", BRANCH)
    return f"{repository.path}: branch {BRANCH}: {len(parts.COMMITS)} commits on {short}"


def _check_all_ours(repository: Repository, tip: str) -> None:
    count = 0
    for commit in repository.git("rev-list", "--first-parent", tip).splitlines():
        if not repository.is_ours(commit):
            break
        count += 1
    if not count:
        raise UsageError(
            f"{repository.path}: branch {BRANCH} ends in a commit that is not this program's; "
            "give that branch another name"
        )


def _build(repository: Repository, base: str) -> str:
    """Make the commits in a working tree of their own; return the last."""
    with tempfile.TemporaryDirectory(prefix="cbt-crypto-") as directory:
        tree = Path(directory) / "tree"
        repository.git("worktree", "add", "-q", "--detach", str(tree), base)
        try:
            for commit in parts.COMMITS:
                _write(tree, commit)
                _commit(repository, tree, commit)
            return repository.git("rev-parse", "HEAD", at=tree)
        finally:
            repository.git("worktree", "remove", "--force", str(tree))


def _write(tree: Path, commit: parts.Commit) -> None:
    contents = {**dict(parts.modules(commit)), **parts.written(commit)}
    for name, content in contents.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        is_python = name.endswith(".py")
        path.write_bytes(
            edits.without_complaints(content.decode()).encode() if is_python else content
        )
    if commit.edits_upstream:
        _edit(tree)


def _edit(tree: Path) -> None:
    program = tree / "cbt.py"
    program.write_text(edits.use_factory(program.read_text(encoding="utf-8")), encoding="utf-8")
    needs = tree / "requirements.txt"
    there = needs.read_text(encoding="utf-8") if needs.exists() else ""
    wanted = parts.requirements()
    needs.write_text(edits.require(there, wanted), encoding="utf-8")


def _commit(repository: Repository, tree: Path, commit: parts.Commit) -> None:
    # What upstream ignores, by .gitignore, is ours to add all the same.
    repository.git("add", "--all", "--force", ".", at=tree)
    paragraphs: Sequence[str] = [commit.subject, commit.body, TRAILER]
    message = "\n\n".join(text for text in paragraphs if text)
    repository.git(
        *_identity(repository), "commit", "-q", "--signoff", "--no-verify", "-m", message, at=tree
    )


def _identity(repository: Repository) -> list[str]:
    """git's own; where it knows nobody, this program's name."""
    if repository.git("config", "user.email", check=False):
        return []
    return ["-c", "user.name=cbt-crypto", "-c", "user.email=cbt-crypto@localhost"]

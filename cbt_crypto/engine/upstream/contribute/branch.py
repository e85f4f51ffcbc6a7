"""A part's branch: built beside the checkout's files, and made only when it is whole."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Optional

from cbt_crypto.engine.upstream.checkout import is_checkout
from cbt_crypto.engine.upstream.contribute import edits
from cbt_crypto.engine.upstream.contribute.parts import Part
from cbt_crypto.errors import UsageError

#: Ends the message of each commit of ours, so that a repetition knows them.
TRAILER = "Contributed-with: cbt-crypto contribute"
#: As upstream's guidelines ask for it.
_ASSISTED = "Assisted-by: LLM"
#: Upstream takes what a person has signed off.
_UNSIGNED = (
    "; git does not know whose it is, so nobody has signed it off: set user.name and user.email by "
    "git config, and run this again"
)
#: What the live branch has, and the frozen one has not.
_LIVE = "workloads/workloads.py"


class Repository:
    """A git repository with upstream's files."""

    def __init__(self, path: Path) -> None:
        """Raises UsageError when it is no clean checkout of CBT's."""
        self.path = path.resolve()
        if not is_checkout(self.path):
            raise UsageError(f"{path}: is no checkout of CBT; name a folder made by git clone")
        if self.git("rev-parse", "--show-toplevel", check=False) != str(self.path):
            raise UsageError(f"{path}: git does not know this folder; name one made by git clone")
        if not (self.path / _LIVE).is_file():
            raise UsageError(
                f"{path}: is of CBT's frozen branch master, or older; run git -C {path} checkout "
                "main, which is the branch that takes pull requests"
            )
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

    def knows_who(self) -> bool:
        """Whether git knows whose commits are made here."""
        return bool(self.git("config", "user.email", check=False))

    def is_ours(self, commit: str) -> bool:
        """Whether this program made it."""
        return TRAILER in self.git("show", "-s", "--format=%B", commit)


def contribute(path: Path, part: Part) -> str:
    """Make the part's branch, or make it anew; return a sentence for people.

    What is checked out stays so. Raises UsageError, with nothing changed, for a checkout that is
    dirty or too unlike the known, and for a branch of that name on which somebody else committed.
    """
    repository = Repository(path)
    base = repository.base()
    old = repository.commit_of(f"refs/heads/{part.branch}")
    if old and not repository.is_ours(old):
        raise UsageError(
            f"{repository.path}: branch {part.branch} ends in a commit that is not this "
            "program's; give that branch another name"
        )
    new = _build(repository, base, part)
    short = f"{part.key}: {repository.path}: branch {part.branch}"
    unsigned = "" if repository.knows_who() else _UNSIGNED
    if old and _same(repository, old, new):
        return f"{short} is up to date, on {base[:12]}{unsigned}"
    if repository.git("rev-parse", "--abbrev-ref", "HEAD") == part.branch:
        repository.git("reset", "-q", "--hard", new)
    else:
        repository.git("branch", "-q", "-f", part.branch, new)
    return f"{short} on {base[:12]}{unsigned}"


def _same(repository: Repository, old: str, new: str) -> bool:
    """Whether two commits have one tree, one parent and one message."""
    told = [repository.git("show", "-s", "--format=%T %P %B", commit) for commit in (old, new)]
    return told[0] == told[1]


def _build(repository: Repository, base: str, part: Part) -> str:
    """Make the commit in a working tree of its own; return it."""
    with tempfile.TemporaryDirectory(prefix="cbt-crypto-") as directory:
        tree = Path(directory) / "tree"
        repository.git("worktree", "add", "-q", "--detach", str(tree), base)
        try:
            for name, text in part.files().items():
                path = tree / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            edits.apply(tree, part.edits)
            return _commit(repository, tree, part)
        finally:
            repository.git("worktree", "remove", "--force", str(tree))


def _commit(repository: Repository, tree: Path, part: Part) -> str:
    # What upstream ignores, by .gitignore, is ours to add all the same.
    repository.git("add", "--all", "--force", ".", at=tree)
    message = f"{part.subject}\n\n{part.body}\n\n{_ASSISTED}\n{TRAILER}"
    repository.git(
        *_identity(repository), "commit", "-q", "--signoff", "--no-verify", "-m", message, at=tree
    )
    return repository.git("rev-parse", "HEAD", at=tree)


def _identity(repository: Repository) -> list[str]:
    """git's own; where it knows nobody, this program's name."""
    if repository.knows_who():
        return []
    return ["-c", "user.name=cbt-crypto", "-c", "user.email=cbt-crypto@localhost"]

"""The patches offered to upstream CBT, applied to clones of a checkout.

As a program, with the path of a checkout: writes the numbers in their texts and their lists of
files anew.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cbt_crypto.engine.choice import PROJECT
from cbt_crypto.engine.upstream.checkout import Checkout, read_checkout

#: Name -> file, in the order in which they are numbered.
PATCHES = {
    path.stem[5:]: path for path in sorted((PROJECT / "contrib" / "upstream").glob("*.patch"))
}
#: Patch -> what it needs below it.
NEEDS = {"percent-of-baseline": ("cpu-sums",)}
#: git takes a patch as its author's, applied by somebody.
_SOMEBODY = ["-c", "user.name=test", "-c", "user.email=test@localhost"]


def git(path: Path, *words: str) -> str:
    """Return what git prints."""
    command = ["git", "-C", str(path), *_SOMEBODY, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def clone(checkout: Checkout, path: Path) -> Path:
    """Clone the commit that is checked out; skip the test if it is of the frozen branch."""
    if not (checkout.path / "workloads").is_dir():
        pytest.skip(f"the checkout of {checkout.version} is of CBT's frozen branch")
    subprocess.run(["git", "clone", "-q", str(checkout.path), str(path)], check=True)
    return path


def apply(path: Path, *names: str) -> Path:
    """Apply patches to a clone, in this order; the test fails with git's words if one conflicts."""
    files = [str(PATCHES[name]) for name in names]
    command = ["git", "-C", str(path), *_SOMEBODY, "am", "-q", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(f"git am {' '.join(names)}: {done.stdout}{done.stderr}")
    return path


def alone(name: str) -> tuple[str, ...]:
    """Return the patch with what it needs below it."""
    return *NEEDS.get(name, ()), name


def suite_of(python: Path, path: Path) -> tuple[int, int, str]:
    """Return how many tests of upstream's suite pass and do not pass there, in that Python.

    The suite walks all of /tmp and fails when something vanishes there meanwhile, so it gets its
    own; what it needs from below /tmp is mounted elsewhere.
    """
    own_tmp = (
        'mount --bind "$0" /mnt && mount --bind "$1" /srv && mount --bind "$2" /media && '
        'mount -t tmpfs tmpfs /tmp && mkdir -p "$2" && mount --bind /media "$2" && '
        'cd /mnt && shift 2 && exec "/srv/bin/$@"'
    )
    places = [str(python.parents[1]), sys.prefix]
    suite = [*places, python.name, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "sh", "-c", own_tmp, str(path), *suite],
        capture_output=True, text=True, check=False, timeout=500,
    )  # fmt: skip
    summary = done.stdout.splitlines()[-1] if done.stdout else done.stderr
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", summary)}
    bad = counts.get("failed", 0) + counts.get("errors", 0) + counts.get("error", 0)
    return counts.get("passed", 0), bad, done.stdout[-2000:]


def _write_anew(name: str, tree: Path, told: str) -> None:
    """Write a patch from its commit, with its text, in which `told` takes the numbers' place."""
    rest = PATCHES[name].read_text().partition("\n---\n")[2]
    text = re.split(r"\n(?= \S+ +\| +\d+ )", rest, maxsplit=1)[0]
    text, count = re.subn(r"\d+\s+tests pass on \w+, \d+ with this patch", told, text)
    assert count == 1, f"{name}: its text has no place for the numbers of tests"
    made = git(tree, "format-patch", "-1", "--stdout", "--zero-commit", "--no-signature")
    PATCHES[name].write_text(made.replace("\n---\n", f"\n---\n{text}\n", 1))


def main() -> None:
    """Apply each patch to a clone, run upstream's tests there, and write the patch anew."""
    checkout, python = read_checkout(Path(sys.argv[1]), "the argument"), Path(sys.executable)
    with tempfile.TemporaryDirectory() as directory:
        before, bad, said = suite_of(python, clone(checkout, Path(directory) / "cbt"))
        assert not bad, said
        for name in PATCHES:
            tree = apply(clone(checkout, Path(directory) / name), *alone(name))
            after, bad, said = suite_of(python, tree)
            assert not bad, said
            base = git(tree, "rev-parse", "--short=7", "origin/HEAD").strip()
            _write_anew(name, tree, f"{before} tests pass on {base}, {after} with this patch")


if __name__ == "__main__":
    main()

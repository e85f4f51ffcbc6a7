"""The patches offered to upstream CBT, applied to clones of a checkout."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cbt_crypto.engine.choice import PROJECT
from cbt_crypto.engine.upstream.checkout import Checkout

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

"""The branch that `contribute` makes in each checkout found, by upstream's own measures."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cbt_crypto.engine.upstream.checkout import Checkout
from cbt_crypto.engine.upstream.contribute.branch import contribute

pytestmark = [pytest.mark.contract, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def branches() -> dict[str, Path]:
    return {}


@pytest.fixture
def branch(
    checkout: Checkout, branches: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A clone with the branch, made once for each checkout."""
    if checkout.version not in branches:
        path = tmp_path_factory.mktemp("contribution") / "cbt"
        subprocess.run(["git", "clone", "-q", str(checkout.path), str(path)], check=True)
        contribute(path)
        branches[checkout.version] = path
    return branches[checkout.version]


def suite_of(path: Path) -> tuple[int, int, str]:
    """Passed and not passed, by upstream's own suite there.

    It walks all of /tmp, and fails when something vanishes there meanwhile: it gets its own.
    """
    own_tmp = 'mount --bind "$0" /mnt && mount -t tmpfs tmpfs /tmp && cd /mnt && exec "$@"'
    suite = [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "sh", "-c", own_tmp, str(path), *suite],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    summary = done.stdout.splitlines()[-1] if done.stdout else done.stderr
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", summary)}
    bad = counts.get("failed", 0) + counts.get("errors", 0) + counts.get("error", 0)
    return counts.get("passed", 0), bad, done.stdout[-2000:]


def test_upstream_s_own_tests_pass_there_with_nothing_removed(
    branch: Path, checkout: Checkout, tmp_path: Path
) -> None:
    tests = "git", "-C", str(branch), "diff", "--name-status", "HEAD~7", "--", "tests"
    changed = subprocess.run(tests, capture_output=True, text=True, check=True).stdout
    assert all(line.startswith("A\t") for line in changed.splitlines())
    before = tmp_path / "before"
    shutil.copytree(checkout.path, before, ignore=shutil.ignore_patterns(".git"))
    passed_before, _, _ = suite_of(before)
    passed, bad, said = suite_of(branch)
    assert bad == 0, said
    assert passed > passed_before > 0


def test_upstream_s_flake8_has_nothing_to_say_of_our_files(branch: Path) -> None:
    added = ["git", "-C", str(branch), "diff", "--name-only", "--diff-filter=A", "HEAD~7"]
    names = subprocess.run(added, capture_output=True, text=True, check=True).stdout.split()
    ours = [name for name in names if name.endswith(".py")]
    assert len(ours) > 100
    done = subprocess.run(
        [sys.executable, "-m", "flake8", "--config", "tox.ini", *ours],
        cwd=branch, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr

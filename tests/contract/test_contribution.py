"""The branches that `contribute` makes in each checkout found, by upstream's own measures."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cbt_crypto.engine.upstream.checkout import Checkout
from cbt_crypto.engine.upstream.contribute.branch import contribute
from cbt_crypto.engine.upstream.contribute.parts import PARTS, Part
from cbt_crypto.errors import UsageError

pytestmark = [pytest.mark.contract, pytest.mark.timeout(1200)]

#: By the whole suite of upstream's newest commit that could be had, of June 2026.
_PASSED_IN_JUNE = 841

every_part = pytest.mark.parametrize("part", PARTS.values(), ids=lambda part: part.key)


@pytest.fixture(scope="module")
def clones() -> dict[tuple[str, str], Path]:
    return {}


@pytest.fixture
def branch(
    checkout: Checkout, part: Part, clones: dict[tuple[str, str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:  # fmt: skip
    """A clone with one part's branch checked out, made once for each checkout."""
    if not (checkout.path / "workloads").is_dir():
        pytest.skip(f"the checkout of {checkout.version} is of the frozen branch")
    key = checkout.version, part.key
    if key not in clones:
        path = tmp_path_factory.mktemp("contribution") / "cbt"
        clone(checkout, path)
        contribute(path, part)
        git(path, "checkout", "-q", part.branch)
        clones[key] = path
    return clones[key]


def git(path: Path, *words: str) -> str:
    command = ["git", "-C", str(path), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def clone(checkout: Checkout, path: Path) -> None:
    subprocess.run(["git", "clone", "-q", str(checkout.path), str(path)], check=True)


def suite_of(python: Path, path: Path) -> tuple[int, int, str]:
    """Passed and not passed, by upstream's own suite there, in that Python.

    It walks all of /tmp, and fails when something vanishes there meanwhile: it gets its own, and
    what it needs of ours stands elsewhere. That Python's packages are links into this one's, which
    may be below /tmp too.
    """
    own_tmp = (
        'mount --bind "$0" /mnt && mount --bind "$1" /srv && mount --bind "$2" /media && '
        'mount -t tmpfs tmpfs /tmp && mkdir -p "$2" && mount --bind /media "$2" && '
        'cd /mnt && shift 2 && exec "/srv/bin/$@"'
    )
    prefix, name = str(python.parents[1]), python.name
    places = [prefix, sys.prefix]
    suite = [*places, name, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "sh", "-c", own_tmp, str(path), *suite],
        capture_output=True, text=True, check=False, timeout=500,
    )  # fmt: skip
    summary = done.stdout.splitlines()[-1] if done.stdout else done.stderr
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", summary)}
    bad = counts.get("failed", 0) + counts.get("errors", 0) + counts.get("error", 0)
    return counts.get("passed", 0), bad, done.stdout[-2000:]


@pytest.fixture(scope="module")
def passed_before(python_without_us: Path) -> Callable[[Path], int]:
    """How many of upstream's tests pass on the commit that a part's branch is on."""
    known: dict[str, int] = {}

    def count(branch: Path) -> int:
        commit = git(branch, "rev-parse", "HEAD~1")
        if commit not in known:
            git(branch, "checkout", "-q", "HEAD~1")
            known[commit], _, _ = suite_of(python_without_us, branch)
            git(branch, "checkout", "-q", "-")
        return known[commit]

    return count


@every_part
def test_upstream_s_own_tests_pass_there_with_nothing_removed(
    branch: Path, part: Part, passed_before: Callable[[Path], int], python_without_us: Path
) -> None:
    """Where this package is not installed; the text of the pull request says how many."""
    changed = git(branch, "diff", "--name-status", "HEAD~1", "--", "tests").splitlines()
    assert changed and all(line.startswith("A\t") for line in changed)
    before = passed_before(branch)
    passed, bad, said = suite_of(python_without_us, branch)
    assert bad == 0, said
    own = sum(text.count("    def test_") for name, text in part.files().items() if "test" in name)
    assert passed == before + own > own > 0
    if before == _PASSED_IN_JUNE:
        assert f"The test suite with these tests: {passed} passed." in part.pull_request()


@pytest.mark.parametrize("part", [PARTS["A"]], ids=["A"])
def test_this_package_beside_it_changes_nothing_that_is_not_asked_for(
    branch: Path, part: Part, passed_before: Callable[[Path], int], python_without_us: Path
) -> None:
    """Same suite, same help: with plugins, with nothing to plug in, and on upstream's commit."""
    assert has_us(Path(sys.executable)) and not has_us(python_without_us)
    passed, bad, said = suite_of(Path(sys.executable), branch)
    assert bad == 0 and passed > passed_before(branch), said
    helps = [help_of(Path(sys.executable), branch), help_of(python_without_us, branch)]
    git(branch, "checkout", "-q", "HEAD~1")
    helps.append(help_of(python_without_us, branch))
    git(branch, "checkout", "-q", part.branch)
    # One snapshot has a line of its log before it.
    assert "\nusage: cbt.py" in f"\n{helps[0]}" and set(helps) == {helps[0]}


def has_us(python: Path) -> bool:
    words = [str(python), "-c", "import cbt_crypto"]
    return subprocess.run(words, cwd="/", capture_output=True, check=False).returncode == 0


def help_of(python: Path, path: Path) -> str:
    words = [str(python), "-B", "./cbt.py", "--help"]
    return subprocess.run(words, cwd=path, capture_output=True, text=True, check=True).stdout


@every_part
def test_it_is_as_small_as_a_review_wants(branch: Path, part: Part) -> None:
    counts = [line.split()[:2] for line in git(branch, "diff", "--numstat", "HEAD~1").splitlines()]
    assert sum(int(added) + int(removed) for added, removed in counts) <= part.limit
    assert len(git(branch, "log", "--format=%h", "HEAD~1..").split()) == 1


@every_part
@pytest.mark.parametrize(
    "words",
    [
        ["flake8", "--config", "tox.ini"],
        ["ruff", "check", "--isolated", "--line-length=120", "--target-version=py39",
         "--select=E,F,W,I,B,UP"],
        ["black", "--check", "-q", "-l", "120"],
        ["mypy", "--strict", "--follow-imports=silent", "--explicit-package-bases"],
    ],
    ids=lambda words: words[0],
)  # fmt: skip
def test_checkers_have_nothing_to_say_of_new_files(
    branch: Path, part: Part, words: list[str]
) -> None:
    new = [name for name in part.files() if name.endswith(".py")]
    done = subprocess.run(
        [sys.executable, "-m", *words, *new],
        cwd=branch, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@every_part
def test_flake8_says_no_more_of_changed_files_than_before(branch: Path, part: Part) -> None:
    def complaints() -> int:
        names = sorted({edit.path for edit in part.edits})
        flake8 = [sys.executable, "-m", "flake8", "--config", "tox.ini", *names]
        done = subprocess.run(flake8, cwd=branch, capture_output=True, text=True, check=False)
        return len([line for line in done.stdout.splitlines() if ".py:" in line])

    git(branch, "checkout", "-q", "HEAD~1")
    before = complaints()
    git(branch, "checkout", "-q", part.branch)
    assert complaints() <= before


@every_part
def test_the_frozen_branch_is_refused(checkout: Checkout, part: Part, tmp_path: Path) -> None:
    if (checkout.path / "workloads").is_dir():
        pytest.skip(f"the checkout of {checkout.version} is of the live branch")
    clone(checkout, tmp_path / "cbt")
    with pytest.raises(UsageError, match="frozen branch master, or older"):
        contribute(tmp_path / "cbt", part)

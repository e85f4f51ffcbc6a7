"""The patches in contrib/upstream on each checkout found, by upstream's own measures."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from synthetic_archive import Load, SyntheticCampaign, SyntheticScenario, write_archive
from upstream_patches import PATCHES, alone, apply, clone, git, suite_of

from cbt_crypto import report
from cbt_crypto.engine.upstream.checkout import Checkout
from cbt_crypto.results.foreign import lay_out

pytestmark = [pytest.mark.contract, pytest.mark.timeout(1200)]

#: Each of these changes cluster/ceph.py; none needs another.
_FEATURES = ("luks", "messenger-modes", "cpusets")
#: The commit that the patches were made on, and how many of its tests pass.
_BASE, _PASSED_ON_BASE = "9b4a548", 615

every_patch = pytest.mark.parametrize("name", PATCHES)


@pytest.fixture(scope="module")
def trees() -> dict[tuple[str, str], Path]:
    return {}


@pytest.fixture
def tree(
    checkout: Checkout, name: str, trees: dict[tuple[str, str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:  # fmt: skip
    """A clone with one patch and what it needs, made once for each checkout."""
    key = checkout.version, name
    if key not in trees:
        path = clone(checkout, tmp_path_factory.mktemp("patched") / "cbt")
        trees[key] = apply(path, *alone(name))
    return trees[key]


def own_tests(name: str) -> int:
    """Return how many tests a patch adds."""
    return len(re.findall(r"^\+    def test_", PATCHES[name].read_text(), re.M))


@pytest.fixture(scope="module")
def passed_before(
    python_without_us: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Checkout], int]:
    """Return how many tests pass without any patch."""
    known: dict[str, int] = {}

    def count(checkout: Checkout) -> int:
        if checkout.version not in known:
            path = clone(checkout, tmp_path_factory.mktemp("before") / "cbt")
            known[checkout.version], _, _ = suite_of(python_without_us, path)
        return known[checkout.version]

    return count


@pytest.mark.parametrize(
    "names",
    [*itertools.permutations(_FEATURES, 2), *itertools.permutations(("hook", *_FEATURES))],
    ids="+".join,
)
def test_features_apply_in_any_order(
    checkout: Checkout, names: tuple[str, ...], tmp_path: Path
) -> None:
    apply(clone(checkout, tmp_path / "cbt"), *names)


@every_patch
def test_upstream_s_tests_pass_with_each_alone(
    checkout: Checkout, tree: Path, name: str, passed_before: Callable[[Checkout], int],
    python_without_us: Path,
) -> None:  # fmt: skip
    """In a Python without this package; the patch's text says how many."""
    changed = git(tree, "diff", "--name-status", "HEAD~1", "--", "tests").splitlines()
    assert changed and all(line.startswith("A\t") for line in changed)
    passed, bad, said = suite_of(python_without_us, tree)
    assert bad == 0, said
    own = sum(own_tests(each) for each in alone(name))
    assert own > 0 and passed == passed_before(checkout) + own
    if git(tree, "rev-parse", "HEAD~" + str(len(alone(name)))).startswith(_BASE):
        told = f"{_PASSED_ON_BASE} tests pass on {_BASE}, {passed} with this patch"
        assert told in " ".join(PATCHES[name].read_text().split()), "see make upstream-patches"


def test_upstream_s_tests_pass_with_all_together(
    checkout: Checkout, passed_before: Callable[[Checkout], int], python_without_us: Path,
    tmp_path: Path,
) -> None:  # fmt: skip
    tree = apply(clone(checkout, tmp_path / "cbt"), *PATCHES)
    for python in (python_without_us, Path(sys.executable)):
        passed, bad, said = suite_of(python, tree)
        assert bad == 0, said
        assert passed == passed_before(checkout) + sum(map(own_tests, PATCHES))


_CPUSETS_OF_A_PLUGIN = """
import benchmarkfactory, clusterfactory, plugins, settings
from cluster.cluster import Cluster
plugins.find = lambda group, name: Cluster
settings.cluster = {"type": "x", "clients": [], "tmp_dir": "/t", "cpusets": {"clients": "1"}}
cluster = clusterfactory.get_object(settings.cluster)
made = benchmarkfactory.get_object("/a", cluster, "librbdfio", {"iteration": 0})
print(made.mkfiocmd(0))
"""


def test_a_plugin_s_cluster_has_cpusets(checkout: Checkout, tmp_path: Path) -> None:
    tree = apply(clone(checkout, tmp_path / "cbt"), "hook", "cpusets")
    done = subprocess.run(
        [sys.executable, "-B", "-c", _CPUSETS_OF_A_PLUGIN],
        cwd=tree, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "sudo taskset -c 1 /usr/bin/fio" in done.stdout, done.stderr


@pytest.mark.parametrize("name", ["hook"])
def test_help_stays_as_it_is(tree: Path, name: str, python_without_us: Path) -> None:
    helps = {help_of(python, tree) for python in (Path(sys.executable), python_without_us)}
    git(tree, "checkout", "-q", "HEAD~1")
    helps.add(help_of(python_without_us, tree))
    git(tree, "checkout", "-q", "-")
    assert len(helps) == 1 and "usage: cbt.py" in helps.pop()


def help_of(python: Path, path: Path) -> str:
    words = [str(python), "-B", "./cbt.py", "--help"]
    return subprocess.run(words, cwd=path, capture_output=True, text=True, check=True).stdout


@every_patch
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
def test_checkers_have_nothing_to_say_of_new_files(tree: Path, name: str, words: list[str]) -> None:
    added = git(tree, "diff", "--name-only", "--diff-filter=A", "HEAD~1").splitlines()
    done = subprocess.run(
        [sys.executable, "-m", *words, *(path for path in added if path.endswith(".py"))],
        cwd=tree, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@every_patch
def test_flake8_says_no_more_of_changed_files_than_before(tree: Path, name: str) -> None:
    changed = git(tree, "diff", "--name-only", "--diff-filter=M", "HEAD~1", "--", "*.py").split()

    def complaints() -> int:
        flake8 = [sys.executable, "-m", "flake8", "--config", "tox.ini", *changed]
        done = subprocess.run(flake8, cwd=tree, capture_output=True, text=True, check=False)
        return len([line for line in done.stdout.splitlines() if ".py:" in line])

    after = complaints()
    git(tree, "checkout", "-q", "HEAD~1")
    before = complaints()
    git(tree, "checkout", "-q", "-")
    assert after <= before


def test_percentages_equal_those_of_this_report(
    checkout: Checkout, tmp_path: Path, report_cells: Callable[[Path], list[dict[str, Any]]]
) -> None:
    """To four digits, of one archive as this program reads it and laid out for upstream."""
    small = SyntheticScenario("rbd_multi_client", processes_per_client=3, iodepth=8)
    names = ("Plain", "Secure messenger")
    campaign = SyntheticCampaign([small], names, lambda cell: Load(
        1000.0 if cell.configuration == "Plain" else 847.31, 2.0 + cell.op_size / 1e6
    ))  # fmt: skip
    archive = write_archive(campaign, tmp_path / "archive")
    report.publish(archive, Console(quiet=True))
    ours = [
        cell["comparisons"]["iops"]["percent"]
        for cell in report_cells(archive)
        if cell["name"] == "Secure messenger"
    ]
    lay_out(archive, tmp_path / "out")
    for path in (tmp_path / "out").rglob("json_output.*"):
        # Upstream reads them among fio's global options, where its own commands have them.
        output = json.loads(path.read_text())
        size = output["jobs"][0]["job options"]["bs"]
        given = {"bs": size, "iodepth": "8", "numjobs": "1", "runtime": "20"}
        output["global options"].update(given)
        path.write_text(json.dumps(output))
    tree = apply(clone(checkout, tmp_path / "cbt"), *alone("percent-of-baseline"))
    folders = [str(tmp_path / "out" / name) for name in ("Plain", "Secure-messenger")]
    done = subprocess.run(
        [sys.executable, "-B", "-c", _PERCENTS, *folders],
        cwd=tree, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    theirs = [float(line) for line in done.stdout.split()]
    assert len(theirs) == len(ours) == 4
    assert sorted(theirs) == pytest.approx(sorted(ours), rel=1e-4)


_PERCENTS = """
import sys
from pathlib import Path
from post_processing.percent_of_baseline import get_points
baseline, other = [get_points(Path(name)) for name in sys.argv[1:]]
for key, point in baseline.items():
    print(100 * other[key].iops / point.iops)
"""

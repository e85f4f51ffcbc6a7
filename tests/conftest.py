"""Campaign files, programs that stand in for real ones, and how tests share the machine."""

from __future__ import annotations

import copy
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Callable, Optional

import pytest
import upstream_patches
import yaml
from hypothesis import settings
from loops import loop_lock
from xdist.scheduler import LoadScopeScheduling

from cbt_crypto.engine.choice import PROJECT
from cbt_crypto.engine.upstream.checkout import (
    EMBEDDED,
    Checkout,
    named_by_environment,
    read_checkout,
    siblings,
)
from cbt_crypto.plan.file import Campaign, read_campaign

# Under nohup, or in a script's background, these are ignored, also by whatever a test starts.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

# A machine that does something else besides must not fail a test.
settings.register_profile("suite", deadline=None, max_examples=50)
settings.load_profile("suite")

#: Checkouts of upstream CBT: those that `$CBT_HOME` lists, else `../cbt`.
_CHECKOUTS = pytest.StashKey[list[Checkout]]()
#: `$CBT_HOME` as whoever started the tests had it.
_NAMED = "CBT_HOME_OF_TESTS"


def pytest_configure(config: pytest.Config) -> None:
    """Find the checkouts, once; every campaign of a test runs on the engine that the test names."""
    # xdist's workers inherit what is set below: what was named is kept for them.
    os.environ["CBT_HOME"] = os.environ.setdefault(_NAMED, os.environ.get("CBT_HOME", ""))
    named = [Path(name) for name in named_by_environment() if name != EMBEDDED]
    paths = named or siblings(PROJECT, Path.cwd())
    if not hasattr(config, "workerinput"):
        os.environ[_SHARED] = tempfile.mkdtemp(prefix="cbt-crypto-tests-")
    config.stash[_CHECKOUTS] = [read_checkout(path, "CBT_HOME") for path in paths]
    os.environ["CBT_HOME"] = EMBEDDED


#: Kinds of tests in the order in which they begin: long ones first, so that workers end together.
_LONG_FIRST = ("alone", "slow", "lab", "e2e", "contract", "unit")
#: A directory of this run, which its workers share.
_SHARED = "CBT_CRYPTO_TESTS_SHARED"
#: How long those marked `alone` may take at most.
_ALONE_S = 600
#: Of a commands.log.
_LAST_LINES = 60


class _ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """A file of tests to a worker, as it shares fixtures; all virtual machines to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid in _alone():
            return "alone"
        return "lab" if nodeid.startswith("tests/lab/") else nodeid.partition("::")[0]


def _shared(name: str) -> Path:
    return Path(os.environ[_SHARED], name)


@cache
def _alone() -> frozenset[str]:
    """The names of the tests to run that are to be alone, which every worker has written down."""
    return frozenset(_shared("alone").read_text().splitlines())


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Optional[_ByFile]:
    """Of `--dist loadgroup`."""
    return _ByFile(config, log) if config.getoption("dist") == "loadgroup" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With several workers, begin with what is to be alone, then with what takes long."""

    def rank(item: pytest.Item) -> int:
        ranks = [n for n, name in enumerate(_LONG_FIRST) if item.get_closest_marker(name)]
        return min(ranks, default=len(_LONG_FIRST))

    if hasattr(config, "workerinput"):
        items.sort(key=rank)
        # xdist's own groups are in names that pytest 9.2 lets nobody change.
        _shared("alone").write_text("\n".join(item.nodeid for item in items if _is_alone(item)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: Optional[pytest.Item]
) -> Generator[None, Any, Any]:
    """With several workers, tests marked `alone` run first, and all others after them."""
    if not hasattr(item.config, "workerinput") or not _alone():
        return (yield)
    over = _shared("alone is over")
    if _is_alone(item):
        result = yield
        if nextitem is None or not _is_alone(nextitem):
            over.touch()
        return result
    ends = time.monotonic() + _ALONE_S
    while not over.exists() and time.monotonic() < ends:
        time.sleep(0.2)
    return (yield)


def _is_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("alone") is not None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what a failed test on real parts ran last, by its newest commands.log."""
    report = yield
    directory = item.funcargs.get("tmp_path") if isinstance(item, pytest.Function) else None
    if report.failed and isinstance(directory, Path) and not item.get_closest_marker("unit"):
        logs = list(directory.parent.rglob("commands.log"))
        if logs:
            newest = max(logs, key=lambda log: log.stat().st_mtime)
            last = newest.read_text(errors="replace").splitlines()[-_LAST_LINES:]
            report.sections.append((f"end of {newest}", "\n".join(last)))
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Remove what the workers shared."""
    if not hasattr(session.config, "workerinput"):
        shutil.rmtree(os.environ[_SHARED], ignore_errors=True)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`checkout` is each of them in turn; `bench`, also the embedded engine, as None."""
    found = metafunc.config.stash[_CHECKOUTS]
    names = [checkout.version for checkout in found]
    if "checkout" in metafunc.fixturenames:
        metafunc.parametrize("checkout", found, ids=names, indirect=True)
    if "bench" in metafunc.fixturenames:
        metafunc.parametrize("bench", [None, *found], ids=["embedded", *names], indirect=True)


@pytest.fixture(scope="session")
def etcd_benchmark() -> str:
    """etcd's own benchmark tool, which no distribution packages: docs/drives.md builds it."""
    tool = os.environ.get("ETCD_BENCHMARK") or shutil.which("etcd-benchmark")
    if tool is None:
        pytest.skip("needs etcd's benchmark tool as etcd-benchmark or $ETCD_BENCHMARK")
    return tool


@pytest.fixture
def loop_devices(_old_partitions: None) -> Iterator[None]:
    """Loop devices for this test alone: another beside it might take one that it gives back."""
    with loop_lock():
        yield


@pytest.fixture
def kept_loop_devices(_old_partitions: None) -> Iterator[Callable[[], None]]:
    """For a test that keeps its loop devices to its end, or else calls what this gives first."""
    with loop_lock(is_shared=True) as alone:
        yield alone


@pytest.fixture(scope="session")
def _old_partitions() -> None:
    """A test that was killed left its partitions on a device that has no file any more."""
    if os.geteuid() != 0 or not Path("/dev/loop-control").exists():
        pytest.skip("loop devices need root and the loop module")
    with loop_lock():
        for partition in Path("/sys/block").glob("loop*/loop*p*/partition"):
            device = partition.parent.parent
            if not (device / "loop" / "backing_file").exists():
                command = ["delpart", f"/dev/{device.name}", partition.read_text().strip()]
                subprocess.run(command, check=True)


@pytest.fixture
def start_child() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a program and waits for its first line, `up`; it ends with the test."""
    started: list[subprocess.Popen[str]] = []

    def start(command: list[str], up: str = "up", **more: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **more)
        started.append(process)
        assert process.stdout is not None and process.stdout.readline() == f"{up}\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def without_discards(tmp_path: Path) -> Iterator[Path]:
    """A directory whose files have no holes, so that loop devices on them cannot discard."""
    folder = tmp_path / "ramfs"
    folder.mkdir()
    subprocess.run(["mount", "-t", "ramfs", "ramfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(scope="session")
def report_cells() -> Callable[[Path], list[dict[str, Any]]]:
    """Gives the cells of an archive's report.json, of all its tables."""

    def cells(archive: Path) -> list[dict[str, Any]]:
        tables = json.loads((archive / "report.json").read_text())["tables"]
        return [cell for t in tables for section in t["sections"] for cell in section["cells"]]

    return cells


@pytest.fixture(scope="session")
def checkout(request: pytest.FixtureRequest) -> Checkout:
    """A checkout of upstream CBT."""
    found: Checkout = request.param
    return found


@pytest.fixture
def with_plugins(checkout: Checkout, tmp_path: Path) -> Path:
    """A clone with the hook for plugins, and nothing else of ours."""
    return upstream_patches.apply(upstream_patches.clone(checkout, tmp_path / "cbt"), "hook")


def _python_without_us(directory: Path) -> Path:
    """A Python that has all that this one has, as links, but for this package."""
    venv.create(directory, symlinks=True)
    (packages,) = directory.glob("lib/python*/site-packages")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "cbt_crypto" not in entry.name:
            (packages / entry.name).symlink_to(entry)
    return directory / "bin" / "python"


@pytest.fixture(scope="session")
def python_without_us(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python in which this package is not installed."""
    return _python_without_us(tmp_path_factory.mktemp("without-us"))


@pytest.fixture(scope="session")
def python_with_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python in which this package is installed as it would be published: by its wheel."""
    directory = tmp_path_factory.mktemp("wheel")
    python = _python_without_us(directory / "venv")
    build = [sys.executable, "-m", "build", "--outdir", str(directory), str(PROJECT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = directory.glob("*.whl")
    pip = [str(python), "-m", "pip", "install", "-q", "--no-deps", str(wheel)]
    subprocess.run(pip, check=True)
    return python


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say which checkouts were tested against: no line would mean nothing."""
    found = config.stash[_CHECKOUTS]
    for checkout in found:
        terminalreporter.line(f"upstream CBT: {checkout.version}, {checkout.commit}")
    if not found:
        terminalreporter.line(
            "upstream CBT: NOT TESTED, no checkout was found; name one with CBT_HOME, or several "
            f"with {os.pathsep!r} between them",
            yellow=True,
        )


BASE: dict[str, Any] = {
    "cluster": {
        "head": "head",
        "clients": ["c0", "c1"],
        "osds": ["o0", "o1"],
        "mons": {"head": {"a": "10.0.0.1"}},
        "mgrs": {"head": {"x": None}},
        "replication": 2,
        # tests of the control turn it on
        "control": False,
    },
    "benchmarks": {"rbd_single_client": {"time": 10}},
}


def _merged(base: Any, changes: Any) -> Any:
    """`changes` laid over `base`; a value of `...` removes its key."""
    if not (isinstance(base, dict) and isinstance(changes, Mapping)):
        return changes
    result = {**base}
    for key, value in changes.items():
        result[key] = _merged(result.get(key), value)
    return {key: value for key, value in result.items() if value is not ...}


@pytest.fixture(autouse=True)
def own_state(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Open runs of a test, and records of its archives, are known to that test alone."""
    own = str(tmp_path_factory.mktemp("state"))
    monkeypatch.setenv("XDG_STATE_HOME", own)
    # Labs of the others have their images there.
    if request.node.get_closest_marker("unit"):
        monkeypatch.setenv("XDG_CACHE_HOME", own)


@pytest.fixture
def write_campaign(tmp_path: Path) -> Callable[..., Path]:
    """Write a small valid campaign with `cluster`, `benchmarks` and other sections changed."""

    def write(name: str = "campaign.yaml", **sections: Any) -> Path:
        path = tmp_path / name
        content = _merged(copy.deepcopy(BASE), sections)
        path.write_text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
        return path

    return write


@pytest.fixture
def campaign_of(write_campaign: Callable[..., Path]) -> Callable[..., Campaign]:
    """Load the written campaign."""
    return lambda **sections: read_campaign(write_campaign(**sections))


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Put a program of that name and shell text in front of the PATH."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", f"{directory}{os.pathsep}{os.environ['PATH']}")

    def make(name: str, text: str) -> Path:
        path = directory / name
        path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    return make


@dataclass
class Shims:
    """pdsh, pdcp, rpdcp and ssh that note their calls and act on this machine."""

    log: Path
    monkeypatch: pytest.MonkeyPatch

    def calls(self, *programs: str) -> list[list[str]]:
        """The calls of these programs, all for none, in order: name and arguments."""
        records = self.log.read_text().split("\x1e") if self.log.exists() else [""]
        calls = [record.split("\x1f") for record in records[:-1]]
        return [call for call in calls if not programs or call[0] in programs]

    def dead(self, *hosts: str) -> None:
        """These hosts are not there."""
        self.monkeypatch.setenv("SHIM_DEAD", ",".join(hosts))

    def mute(self, *hosts: str) -> None:
        """These hosts never answer."""
        self.monkeypatch.setenv("SHIM_MUTE", ",".join(hosts))


@pytest.fixture
def shims(
    programs: Callable[[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Shims:
    """Put the shims in front of the PATH."""
    log = tmp_path / "shims.log"
    monkeypatch.setenv("SHIM_LOG", str(log))
    monkeypatch.setenv("SHIM_DEAD", "")
    monkeypatch.setenv("SHIM_MUTE", "")
    folder = Path(__file__).parent / "programs"
    programs("ssh", (folder / "ssh.sh").read_text())
    monkeypatch.setenv("SHIM_PIDS", str(tmp_path / "shims.pids"))
    for name in ("pdsh", "pdcp", "rpdcp", "scp", "pkill"):
        programs(name, f"#!{sys.executable} -IS\n{(folder / 'shim.py').read_text()}")
    return Shims(log, monkeypatch)

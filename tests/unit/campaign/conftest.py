"""A host on which every program of a campaign is a fake, and the command that runs one there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cbt_crypto.cluster_overlays import OVERLAYS
from cbt_crypto.cluster_overlays.base import Verdict
from cbt_crypto.engine.embedded import common
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.main import cbt
from cbt_crypto.run.cell import proof, watch

#: fio as far as a campaign looks at it: it says its engines, and leaves a result.
_FIO = """
[ "$1" = --enghelp ] && { echo "Available IO engines:"; echo "	rbd"; exit 0; }
for word; do case $word in
    --output=*) echo '{"fio version": "fio-3.33", "jobs": [{"read": {"total_ios": 1}}]}' \\
        > "${word#--output=}" ;;
esac; done
"""
#: collectl, whose first sample is waited for.
_COLLECTL = """
[ "$1" = --version ] && exit 0
for word; do :; done
echo '>>> 1795186054.001 <<<' > "$word/host.raw"
exec sleep 100
"""


@dataclass
class FakeHost:
    """Campaigns on localhost, by `cbt.py`'s own command."""

    directory: Path
    write_campaign: Callable[..., Path]
    programs: Callable[[str, str], Path]

    @property
    def tmp_dir(self) -> Path:
        return self.directory / "tmp_dir"

    @property
    def archive(self) -> Path:
        return self.directory / "archive"

    def write(self, **sections: Any) -> Path:
        """A campaign on localhost alone."""
        cluster = {
            "head": "localhost",
            "clients": ["localhost"],
            "osds": ["localhost"],
            "replication": 1,
            "mons": {"head": ..., "localhost": {"a": "127.0.0.1:13377"}},
            "mgrs": {"head": ..., "localhost": {"x": None}},
            "osd_file_size": "1G",
            "tmp_dir": str(self.tmp_dir),
            **sections.pop("cluster", {}),
        }
        benchmarks = sections.pop("benchmarks", {})
        load = benchmarks.get("rbd_single_client", {})
        if load is not ...:
            # Small volumes: no machine that tests need have 50 GB free.
            benchmarks = {**benchmarks, "rbd_single_client": {"vol_size": 64, **load}}
        return self.write_campaign(cluster=cluster, benchmarks=benchmarks, **sections)

    def cbt(self, *arguments: Any, report: bool = False) -> Result:
        """Run `cbt.py`; the archive is named unless the arguments do."""
        words = [str(argument) for argument in arguments]
        if "-a" not in words and "--plan" not in words:
            words += ["-a", str(self.archive)]
        words += [] if report else ["--no-report"]
        return CliRunner().invoke(cbt, words, catch_exceptions=False)

    def snapshot(self) -> dict[str, Any]:
        """What is in tmp_dir and the archive: path -> content, None for a directory."""
        return {
            str(path): path.read_bytes() if path.is_file() else None
            for top in (self.tmp_dir, self.archive)
            for path in sorted([top, *top.rglob("*")])
            if path.exists()
        }


@pytest.fixture(scope="session")
def wait_for() -> Callable[..., None]:
    """Waits until a condition holds; fails when it does not within so many seconds."""

    def wait(condition: Callable[[], Any], seconds: float = 20) -> None:
        ends = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < ends
            time.sleep(0.02)

    return wait


@pytest.fixture
def no_overlays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing to prove: a fake cluster could not."""
    monkeypatch.setattr(watch, "fault", lambda *_: None)
    monkeypatch.setattr(proof, "judge_daemons", lambda *_: Verdict(True, "the same OSDs"))
    monkeypatch.setattr(proof, "lost_osds", lambda *_: None)
    before = dict(OVERLAYS)
    OVERLAYS.clear()
    yield
    # in their order, which documents show
    OVERLAYS.clear()
    OVERLAYS.update(before)


@pytest.fixture
def host(
    tmp_path: Path, programs: Callable[[str, str], Path], write_campaign: Callable[..., Path]
) -> Iterator[FakeHost]:
    python = programs("fake-python", "exit 0")
    programs("ceph", f"#!{python}\n")
    for name in ("rbd", "ceph-mon", "ceph-mgr", "ceph-osd", "monmaptool", "osdmaptool"):
        programs(name, "exit 0")
    programs("ceph-authtool", "echo AQAhTwJrhpn1DRAA9jO1pPCjO4UjDjYZ3Ea7bQ==")
    programs("ceph-conf", "echo /usr/share/ceph/mgr")
    programs("collectl", _COLLECTL)
    programs("fio", _FIO)
    before = os.getcwd()
    os.chdir(tmp_path)
    yield FakeHost(tmp_path, write_campaign, programs)
    os.chdir(before)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A cell's directory on a node."""
    path = tmp_path / "run dir"
    path.mkdir()
    return path


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    """Hosts by our own engine, below `tmp_path`."""
    return Remote(common, str(tmp_path))

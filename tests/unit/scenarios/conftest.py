"""A cluster's commands, and fake programs that note how they were called."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

import pytest

from cbt_crypto.benchmarks.base import ClusterCommands
from cbt_crypto.hosts.site import Site


@dataclass
class Noted:
    """Runs scripts with fake fio and rbd; `calls` has what they were called with."""

    directory: Path
    log: Path
    status: int = -1
    stderr: str = ""
    calls: list[list[str]] = field(default_factory=list)

    def run(self, script: str) -> Noted:
        """Run a host's script as an engine does, in the run directory."""
        done = subprocess.run(
            ["sh", "-c", f"set -eu\nSUDO=\n(\nset -eu\n{script}\n)"],
            check=False, capture_output=True, text=True,
            env={**os.environ, "FAKE_LOG": str(self.log)},
        )  # fmt: skip
        self.status, self.stderr = done.returncode, done.stderr
        text = self.log.read_text() if self.log.exists() else ""
        self.calls = [record.split("\x1f") for record in text.split("\x1e")[:-1]]
        return self

    def files(self, pattern: str) -> dict[str, str]:
        """Name -> content of files of the run directory."""
        return {path.name: path.read_text() for path in sorted(self.directory.glob(pattern))}


# A call is noted in one write: a client's fio processes run at the same time.
_FAKE = r"""
call=$(printf '%s' "NAME"; printf '\037%s' "CEPH_CONF=${CEPH_CONF-}" "$@"; printf '\036')
printf '%s' "$call" >>"$FAKE_LOG"
echo "NAME says $*"
case "$*" in FAIL) echo "NAME: it is broken" >&2; exit 3 ;; esac
"""


@pytest.fixture
def fakes(programs: Callable[[str, str], Path], tmp_path: Path) -> Callable[[Sequence[str]], Noted]:
    """Fake fio and rbd, which fail where their arguments match one of these shell patterns."""

    def make(failing: Sequence[str] = ()) -> Noted:
        for name in ("fio", "rbd"):
            patterns = "|".join(failing) or "never"
            programs(name, _FAKE.replace("NAME", name).replace("FAIL", patterns))
        directory = tmp_path / "run dir's"
        directory.mkdir()
        return Noted(directory, tmp_path / "calls")

    return make


@pytest.fixture
def commands() -> ClusterCommands:
    conf = "'/tmp/a b/ceph.conf'"
    return ClusterCommands(f"ceph -c {conf}", f"rbd -c {conf}", f"env CEPH_CONF={conf}")


@pytest.fixture
def site() -> Site:
    return Site("/tmp/cbt", "/tmp/cbt/ceph/ceph.conf", "head", ("c0", "c1", "c2"), ())

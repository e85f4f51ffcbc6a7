"""Campaigns on this machine: real Ceph, real fio, in a directory of the test's own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import pytest
import yaml
from one_machine import cluster_section

ROOT = Path(__file__).resolve().parents[2]
_PROGRAMS = ("ceph", "ceph-mon", "ceph-mgr", "ceph-osd", "rbd", "fio", "collectl", "pdsh")


@dataclass
class Machine:
    """Runs campaigns below one directory."""

    directory: Path

    @property
    def tmp_dir(self) -> Path:
        return self.directory / "cluster"

    @property
    def archive(self) -> Path:
        return self.directory / "archive"

    def write(
        self,
        configurations: dict[str, Any],
        benchmarks: dict[str, Any],
        monitoring: Optional[dict[str, Any]] = None,
    ) -> Path:
        """A campaign of two OSDs on sparse files."""
        path = self.directory / "campaign.yaml"
        cluster = cluster_section(
            self.directory, 13321, configurations=configurations,
            # tests of the control turn it on
            control=False,
            # as the file names them, so that a test knows what is measured first
            order="sequential",
        )  # fmt: skip
        sections = {"cluster": cluster, "benchmarks": benchmarks}
        if monitoring:
            sections["monitoring_profiles"] = monitoring
        path.write_text(yaml.safe_dump(sections, sort_keys=False))
        return path

    def command(self, config: Path, *options: str) -> list[str]:
        return [
            sys.executable,
            str(ROOT / "cbt.py"),
            "-a",
            str(self.archive),
            *options,
            str(config),
        ]

    def run(self, config: Path, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(config, *options),
            capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip

    def cells(self) -> list[dict[str, Any]]:
        """Every cell.json, with its proof and directory."""
        found = []
        for path in sorted(self.archive.glob("results/*/id-*/cell.json")):
            cell = json.loads(path.read_text())
            proof = path.with_name("proof.json")
            cell["proof"] = json.loads(proof.read_text()) if proof.exists() else None
            cell["directory"] = path.parent
            found.append(cell)
        return found

    def leftovers(self) -> list[str]:
        """Processes that a campaign of this directory started, and the directory itself."""
        mark = f"CBT_CRYPTO_MARK={self.tmp_dir}@".encode()
        found = [str(self.tmp_dir)] if self.tmp_dir.exists() else []
        for environ in Path("/proc").glob("[0-9]*/environ"):
            try:
                if mark in environ.read_bytes():
                    found.append(environ.with_name("cmdline").read_text().replace("\0", " "))
            except OSError:
                continue
        return found


@pytest.fixture(scope="session")
def needs_ceph() -> None:
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    if missing:
        pytest.fail(f"{', '.join(missing)} missing: e2e tests need them; `make test-packages`")


@pytest.fixture(scope="module")
def machine_factory(
    needs_ceph: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Machine]]:
    yield lambda name: Machine(tmp_path_factory.mktemp(name))


@pytest.fixture
def machine(needs_ceph: None, tmp_path: Path) -> Machine:
    return Machine(tmp_path)

"""What is found to be broken after something failed: the script runs on this machine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from fake_hosts import FakeHosts

from cbt_crypto.engine.embedded import common
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.site import Site
from cbt_crypto.run.campaign import diagnosis

pytestmark = pytest.mark.unit


def found(tmp_path: Path, *clients: str) -> str:
    site = Site(str(tmp_path), "/c", "localhost", clients, ())
    return diagnosis(Remote(common, site.tmp_dir), site)


def test_nothing_is_wrong_where_nothing_runs(tmp_path: Path) -> None:
    assert found(tmp_path) == ""


def test_a_daemon_that_has_ended_or_whose_number_is_another_s(tmp_path: Path) -> None:
    run = tmp_path / "ceph" / "run"
    run.mkdir(parents=True)
    program = tmp_path / "ceph-osd"
    shutil.copy("/bin/sleep", program)
    with subprocess.Popen([str(program), "60"]) as osd, subprocess.Popen(["sleep", "60"]) as other:
        (run / "osd.0.pid").write_text(f"{osd.pid}\n")
        assert found(tmp_path) == ""
        (run / "osd.1.pid").write_text(f"{other.pid}\n")
        (run / "mon.a.pid").write_text("4194399\n")
        assert found(tmp_path) == "; mon.a has ended on localhost; osd.1 has ended on localhost"
        osd.kill()
        other.kill()


def test_a_host_that_does_not_answer(tmp_path: Path, shims: object) -> None:
    shims.dead("127.9.9.9")  # type: ignore[attr-defined]
    assert found(tmp_path, "127.9.9.9") == "; 127.9.9.9 does not answer"


def test_a_host_with_megabytes_of_faults() -> None:
    """They were printed, and made cell.json one that is too large to be read."""
    hosts = FakeHosts(lambda host, command: f"{'x' * 5000}\n" * 2000)
    assert len(diagnosis(hosts.remote(), Site("/t", "/c", "a", (), ()))) < 30_000

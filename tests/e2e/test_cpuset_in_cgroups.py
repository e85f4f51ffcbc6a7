"""The overlay's own scripts, on a process of two threads that stands for an OSD."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cbt_crypto.cluster_overlays.cpuset import CpuSet
from cbt_crypto.hosts.site import Osd, Site

pytestmark = pytest.mark.e2e

HOST = f"cpuset-test-{os.getpid()}"
ABSENT = CpuSet.absent()
OSD = """
import sys, threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
print("up", flush=True)
sys.stdin.read()
"""


def run(text: str, tmp_dir: object = "") -> subprocess.CompletedProcess[str]:
    script = f"set -eu\nSUDO=; [ $(id -u) = 0 ] || SUDO='sudo -n'\n{text}"
    marked = {**os.environ, "CBT_CRYPTO_MARK": f"{tmp_dir}@{HOST}"}
    return subprocess.run(
        ["sh", "-c", script], check=False, capture_output=True, text=True, env=marked
    )


def sh(text: str, tmp_dir: object = "") -> str:
    done = run(text, tmp_dir)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    pid_file = tmp_path / "osd.0.pid"
    osd = Osd(0, HOST, "/dev/null", str(tmp_path), str(tmp_path / "a.asok"), str(pid_file))
    made = Site(str(tmp_path), str(tmp_path / "ceph.conf"), HOST, (HOST,), (osd,))
    command = [sys.executable, "-c", OSD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        pid_file.write_text(f"{process.pid}\n")
        yield made
    sh(ABSENT.take_down(made)[HOST])


def proved(overlay: CpuSet, site: Site) -> str:
    """Apply, probe twice and return the reason of the proof."""
    sh(overlay.after_osds(site)[HOST])
    looks = [{HOST: sh(overlay.probe(site)[HOST])} for _ in range(2)]
    verdict = overlay.judge(site, *looks)
    assert verdict.proved, verdict
    assert sum(verdict.evidence["osd.0"]["threads"].values()) == 2
    return verdict.reason


def test_there_and_back_again(site: Site) -> None:
    one = CpuSet(osd_cores=1, clients="rest")
    (need,) = one.requirements(site)
    assert need.judge(sh(need.script)) is None
    everywhere = {HOST: sh(ABSENT.probe(site)[HOST])}
    assert ABSENT.judge(site, everywhere, everywhere).proved

    assert "run on their cores" in proved(one, site)
    confined = {HOST: sh(ABSENT.probe(site)[HOST])}
    assert not ABSENT.judge(site, everywhere, confined).proved
    own = sh("grep Cpus_allowed_list /proc/self/status")
    client = sh(one.wrap_client(HOST, "grep Cpus_allowed_list /proc/self/status"), site.tmp_dir)
    assert client != own

    proved(CpuSet(osd_cores=1, smt=False, numa="spread"), site)
    assert "may use every CPU" in proved(ABSENT, site)


def test_take_down_leaves_no_group_and_can_be_repeated(site: Site) -> None:
    sh(CpuSet(client_cores=1).after_osds(site)[HOST])
    groups = f"find /sys/fs/cgroup -maxdepth 3 -path '*/cbt-crypto-{HOST}*' -type d"
    assert sh(groups).count("\n") == 2
    sh(ABSENT.take_down(site)[HOST])
    sh(ABSENT.take_down(site)[HOST])
    assert sh(groups) == ""


def test_two_campaigns_on_one_host_have_groups_of_their_own(site: Site) -> None:
    """They differ by tmp_dir: the end of one takes nothing from the other."""
    other = replace(site, tmp_dir=f"{site.tmp_dir}/other")
    overlay = CpuSet(client_cores=1)
    try:
        for one in (site, other):
            sh(overlay.after_osds(one)[HOST])
        sh(ABSENT.take_down(other)[HOST])
        look = overlay.wrap_client(HOST, "grep Cpus_allowed_list /proc/self/status")
        assert "Cpus_allowed_list" in sh(look, site.tmp_dir)
        assert "there is no cgroup" in run(look, other.tmp_dir).stderr
    finally:
        sh(ABSENT.take_down(other)[HOST])


def test_a_group_with_somebody_else_s_work_in_it_is_left(site: Site) -> None:
    sh(CpuSet(client_cores=1).after_osds(site)[HOST])
    path = f"*/cbt-crypto-{HOST}.*/clients"
    (clients,) = sh(f"find /sys/fs/cgroup -maxdepth 3 -path '{path}' -type d").split()
    theirs = Path(clients).parent / "theirs"
    theirs.mkdir()
    try:
        assert "is not ours alone: theirs/" in run(ABSENT.take_down(site)[HOST]).stderr
        assert theirs.exists() and Path(clients).exists()
    finally:
        theirs.rmdir()

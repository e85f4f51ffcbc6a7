"""Faults in the middle of a campaign, on real Ceph: each is noticed, said, and survived."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from fault_lab import DATE, GO_ON, KILL, SSHD, STOP, Laboratory, document
from fault_story import CELL_2, Story

from cbt_crypto.lab import namespace, run

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def test_one_fio_is_killed(story: Story) -> None:
    running = story.begin()
    assert story.lab.kill(1, KILL, "fio")
    said = story.end("one fio killed", running)
    assert "node1: fio 0 exited with 137" in said


def test_one_client_s_ssh_is_cut(story: Story) -> None:
    running = story.begin()
    assert story.lab.kill(1, KILL, "sshd-session")
    said = story.end("one client's ssh cut in the middle", running)
    assert "node1" in said


def test_a_client_s_network_is_cut(story: Story) -> None:
    running = story.begin()
    # The node's own end stays up and hears nothing: no error, only silence.
    link = _link(story.lab, 1)
    subprocess.run(["ip", "link", "set", link, "down"], check=True)
    said = story.end(
        "a client's network goes silent", running,
        heal=lambda: subprocess.run(["ip", "link", "set", link, "up"], check=True),
    )  # fmt: skip
    assert "node1" in said


def test_an_osd_is_killed(story: Story) -> None:
    running = story.begin()
    assert story.lab.kill(3, KILL, "ceph-osd")
    said = story.end("an OSD killed during a cell", running)
    assert "osd" in said.lower()


def test_an_osd_host_is_powered_off(story: Story) -> None:
    running = story.begin()
    story.lab.power_off(3)
    story.end("an OSD host powered off", running, heal=lambda: story.lab.power_on(3))


def test_a_host_reboots_between_cells(story: Story) -> None:
    running = story.begin(after=0)
    story.lab.power_off(3)
    story.lab.power_on(3)
    story.end("a host reboots between cells", running)


def test_the_monitor_s_disk_is_full(story: Story) -> None:
    tmp_dir = "/srv/small/cbt"
    story.content = document({"tmp_dir": tmp_dir})
    mount = "mkdir -p /srv/small && mount -t tmpfs -o size=800M tmpfs /srv/small"
    story.lab.on(0, mount)
    try:
        running = story.begin()
        story.lab.on(0, "dd if=/dev/zero of=/srv/small/fill bs=1M 2>/dev/null || :")
        story.end(
            "the monitor's disk full", running, heal=lambda: story.lab.on(0, "rm /srv/small/fill")
        )
    finally:
        story.lab.on(0, "umount -l /srv/small")


def test_the_archive_s_disk_is_full(story: Story) -> None:
    story.lab.on(0, "mkdir -p /srv/arch && mount -t tmpfs -o size=64M tmpfs /srv/arch")
    story.lab.archive = "/srv/arch/archive"
    try:
        running = story.begin()
        story.lab.on(0, "dd if=/dev/zero of=/srv/arch/fill bs=1k 2>/dev/null || :")
        said = story.end(
            "the archive's disk full", running, heal=lambda: story.lab.on(0, "rm /srv/arch/fill")
        )
        assert "No space left" in running.said() or "archive" in said
    finally:
        story.lab.on(0, "umount -l /srv/arch")


def test_a_clock_is_set_during_a_cell(story: Story) -> None:
    running = story.begin()
    story.lab.on(2, DATE)
    said = story.end(
        "a clock set off by 5 s during a cell (by its date command)", running,
        heal=lambda: story.lab.on(2, "rm /usr/local/bin/date"),
    )  # fmt: skip
    assert "node2: its clock was set by +5.0 s" in said


def test_a_hung_ssh(story: Story) -> None:
    running = story.begin()
    stopped = story.lab.pids(1, *SSHD)
    assert story.lab.kill(1, STOP, *SSHD) == len(stopped) > 0
    said = story.end("a hung ssh (SIGSTOP on sshd)", running,
                     heal=lambda: story.lab.kill(1, GO_ON, *SSHD))  # fmt: skip
    assert "node1" in said


@pytest.mark.parametrize(
    ("stage", "at", "after"),
    [("deployment", "deploy Default", 1.5), ("prefill", "prefill", 0.3), ("run", CELL_2, 2.0)],
)
def test_kill_9(story: Story, stage: str, at: str, after: float) -> None:
    running = story.begin(at, after)
    story.lab.signal("KILL")
    story.end(f"kill -9 of cbt.py in {stage}", running, status=255, silent=True)


def test_kill_9_in_collection(story: Story) -> None:
    running = story.begin(after=0)
    incoming = f"{story.lab.archive}/results/*/id-*/.incoming"
    story.lab.on(0, f"until ls -d {incoming} 2>/dev/null; do :; done; kill -9 $(cat campaign/pid)")
    story.end("kill -9 of cbt.py in collection", running, status=255, silent=True)


def test_kill_9_in_report(story: Story) -> None:
    """On this machine, where the report's libraries are, on a copy of a real archive."""
    running = story.begin(after=0)
    assert running.finish() == 0, running.said()
    archive = story.where / "archive"
    archive.mkdir()
    run.bring_results(story.lab.lab, story.lab.node(0), story.lab.archive, archive)
    command = [sys.executable, "-m", "cbt_crypto", "report", str(archive)]
    for after in (0.5, 2.0, 3.0, 4.0):
        report = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(after)
        report.kill()
        report.wait()
        page = archive / "report.html"
        assert not page.exists() or page.read_text().rstrip().endswith("</html>")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    story.table.add(
        "kill -9 of the report", "at the next start", "nothing: files are whole or not there",
        "2 of 2", "temporary files of the report", "complete",
    )  # fmt: skip


def _link(lab: Laboratory, index: int) -> str:
    return namespace.link_name(lab.lab.directory, index)

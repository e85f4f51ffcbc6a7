"""Faults in the middle of a campaign, on real Ceph: each is noticed, said, and survived."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import pytest
from fault_lab import GO_ON, KILL, SSHD, STOP, Laboratory, Running, document, until
from fault_table import Table

from cbt_crypto.lab import carry, ssh

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

CELL_2 = "cell 2/2"


@dataclass
class Story:
    """One fault, from a campaign's start to the start after it."""

    lab: Laboratory
    table: Table
    where: Path
    content: Any = None

    def begin(self, at: str = CELL_2, after: float = 2.0, options: str = "") -> Running:
        """A campaign that has come to `at`."""
        self.lab.carry_in(self.content or document(), self.where)
        running = self.lab.start(options)
        running.wait_for(at)
        time.sleep(after)
        self.before = self.lab.finished()
        self.since = time.monotonic()
        return running

    def end(
        self, fault: str, running: Running, heal: Optional[Callable[[], Any]] = None,
        status: int = 1, silent: bool = False,
    ) -> str:  # fmt: skip
        """Let it end, heal, start again: then all must be there and nothing else."""
        assert running.finish() == status, running.said()
        after, said = (0.0, "") if silent else running.noticed(self.since)
        if heal:
            heal()
        left = self.lab.leftovers()
        again = self.lab.start()
        assert again.finish() == 0, running.said() + "\n---\n" + again.said()
        if silent:
            said = next(line for _, line in again.lines if line.startswith("taking down"))
        now = self.lab.finished()
        assert len(now) == 2, again.said()
        assert self.before.items() <= now.items(), "a finished cell was lost or measured again"
        assert self.lab.leftovers() == []
        self.table.add(
            fault,
            "at the next start" if silent else f"{after:.0f} s",
            said,
            f"{len(self.before)} of {len(self.before)}",
            _short(left),
            "complete, nothing left",
        )
        return said


def _short(left: list[str]) -> str:
    """What was left, by kind and node."""
    kinds: dict[str, set[str]] = {}
    for line in left:
        node, _, what = line.partition(": ")
        program = what.split()[0].rpartition("/")[2] if what else "?"
        kind = "tmp_dir" if program == "cbt-crypto" else "hold" if "@" in what[:12] else program
        kinds.setdefault(kind, set()).add(node)
    return "; ".join(f"{kind} on {', '.join(sorted(nodes))}" for kind, nodes in kinds.items()) or (
        "none"
    )


@pytest.fixture
def story(lab: Laboratory, table: Table, tmp_path: Path) -> Story:
    return Story(lab, table, tmp_path)


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
    carry.bring_results(story.lab.lab, story.lab.node(0), story.lab.archive, archive)
    command = ["python", "-m", "cbt_crypto", "report", str(archive)]
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


#: A `date` that is 5 s ahead: what a node's kernel shares with the others here is its clock.
_DATE = r"""printf '#!/bin/sh\nexec /bin/date -d "+5 seconds" "$@"\n' > /usr/local/bin/date
chmod +x /usr/local/bin/date"""


def test_a_clock_is_set_during_a_cell(story: Story) -> None:
    running = story.begin()
    story.lab.on(2, _DATE)
    said = story.end(
        "a clock set off by 5 s during a cell (by its date command)", running,
        heal=lambda: story.lab.on(2, "rm /usr/local/bin/date"),
    )  # fmt: skip
    assert "node2: its clock was set by +5.0 s" in said


def _refused(lab: Laboratory, where: Path) -> tuple[float, str]:
    """Seconds and words until a campaign is refused before anything is touched."""
    lab.carry_in(document(), where)
    since = time.monotonic()
    running = lab.start()
    assert running.finish() == 2, running.said()
    lines = [line for _, line in running.lines if not line.startswith(("engine", "warning"))]
    assert len(lines) == 1, running.said()
    assert lab.leftovers() == []
    return time.monotonic() - since, lines[0]


def test_a_clock_is_off_before_the_start(lab: Laboratory, table: Table, tmp_path: Path) -> None:
    lab.on(2, _DATE)
    try:
        after, said = _refused(lab, tmp_path)
    finally:
        lab.on(2, "rm /usr/local/bin/date")
    assert said.startswith("node2: its clock is ") and "ahead of the head's" in said
    table.add(
        "a clock off by 5 s before the start (by its date command)", f"{after:.0f} s", said,
        "no cell yet", "none", "refused until mended",
    )  # fmt: skip


def test_pdsh_is_missing_on_a_node(lab: Laboratory, table: Table, tmp_path: Path) -> None:
    lab.on(2, "mv /usr/bin/pdcp /usr/bin/pdcp.away; mv /usr/bin/pdsh /usr/bin/pdsh.away")
    try:
        after, said = _refused(lab, tmp_path)
    finally:
        lab.on(2, "mv /usr/bin/pdcp.away /usr/bin/pdcp; mv /usr/bin/pdsh.away /usr/bin/pdsh")
    assert said == "node2: pdcp is missing; install pdsh"
    table.add(
        "pdsh missing on a node", f"{after:.0f} s", said, "no cell yet", "none",
        "refused until mended",
    )  # fmt: skip


def test_a_hung_ssh(story: Story) -> None:
    running = story.begin()
    stopped = story.lab.pids(1, *SSHD)
    assert story.lab.kill(1, STOP, *SSHD) == len(stopped) > 0
    said = story.end("a hung ssh (SIGSTOP on sshd)", running,
                     heal=lambda: story.lab.kill(1, GO_ON, *SSHD))  # fmt: skip
    assert "node1" in said


def test_a_partial_archive_on_another_machine(story: Story) -> None:
    """Copied without a cell's results while the campaign ran; then it goes on from node1."""
    running = story.begin()
    copy = "tar -c --exclude='json_output.0.node1' -C /root archive"
    process = subprocess.run(
        ssh.command(story.lab.lab, story.lab.node(0), copy), stdout=subprocess.PIPE, check=False
    )
    subprocess.run(
        ssh.command(story.lab.lab, story.lab.node(1), "tar -x -C /root"),
        input=process.stdout, check=True,
    )  # fmt: skip
    story.lab.carry_in(document(), story.where, index=1)
    refused = story.lab.start(index=1)
    assert refused.finish() == 2, refused.said()
    said = refused.lines[-1][1]
    assert "ran on another machine" in said and "cbt-crypto cleanup" in said
    assert running.finish() == 0, running.said()
    cleanup = f"cd {'/root/campaign'} && python3 -c 'from cbt_crypto.cli import cbt_crypto; "
    cleanup += "cbt_crypto()' cleanup /root/archive 2>&1"
    story.lab.on(1, cleanup)
    there = story.lab.start(index=1)
    assert there.finish() == 0, there.said()
    assert "cell 1/2" in there.said(), "the cell whose results were not copied is measured again"
    assert len(story.lab.finished(index=1)) == 2
    assert story.lab.leftovers() == []
    story.lab.on(1, "rm -rf /root/archive")
    story.table.add(
        "a partial archive copied to another machine, while its run went on", "1 s", said,
        "2 of 2 in the archive, 0 in the copy", "none", "complete after cleanup, nothing left",
    )  # fmt: skip


def test_a_second_run_is_refused(story: Story) -> None:
    running = story.begin(after=0)
    story.lab.carry_in(document(), story.where, index=1)
    second = story.lab.start("-a /root/other", index=1)
    since = time.monotonic()
    assert second.finish() == 2, second.said()
    refused = next(line for _, line in second.lines if "is in use by" in line)
    assert "is in use by root@node0 (process " in refused
    assert "archive /root/archive, since 2" in refused
    assert running.finish() == 0, running.said()
    assert story.lab.leftovers() == []
    story.table.add(
        "a second run on the same hosts", f"{time.monotonic() - since:.0f} s", refused,
        "2 of 2", "none", "refused until the first has ended",
    )  # fmt: skip


def test_ctrl_c_once(story: Story) -> None:
    running = story.begin()
    story.lab.signal("INT")
    story.end("Ctrl-C once", running)
    assert "interrupted; run the same command again to go on" in running.said()


def test_ctrl_c_twice(story: Story) -> None:
    running = story.begin()
    story.lab.signal("INT")
    running.wait_for("once more stops at once")
    story.lab.signal("INT")
    until("the end", lambda: running.process.poll() is not None, 5)
    said = running.said()
    assert "stopped at once; left on node0: processes with CBT_CRYPTO_MARK=" in said
    assert f"clear it with: cbt-crypto cleanup {story.lab.archive}" in said
    assert story.lab.leftovers() != []
    story.end("Ctrl-C twice", running)


def _link(lab: Laboratory, index: int) -> str:
    from cbt_crypto.lab import bridge  # noqa: PLC0415

    return bridge.link_name(lab.lab.directory, index)

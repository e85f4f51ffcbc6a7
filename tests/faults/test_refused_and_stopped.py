"""What is refused before anything is touched, and campaigns that people stop."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from fault_lab import DATE, Laboratory, document, until
from fault_story import Story
from fault_table import Table

from cbt_crypto.lab import access

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


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
    lab.on(2, DATE)
    try:
        after, said = _refused(lab, tmp_path)
    finally:
        lab.on(2, "rm /usr/local/bin/date")
    assert said.startswith("node2: its clock is ") and "ahead of the head's" in said
    table.add(
        "a clock off by 5 s before the start (by its date command)", f"{after:.0f} s", said,
        "no cell yet", "none", "refused until fixed",
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
        "refused until fixed",
    )  # fmt: skip


def test_a_partial_archive_on_another_machine(story: Story) -> None:
    """Copied without a cell's results while the campaign ran; then it goes on from node1."""
    running = story.begin()
    copy = "tar -c --exclude='json_output.0.node1' -C /root archive"
    process = subprocess.run(
        access.command(story.lab.lab, story.lab.node(0), copy), stdout=subprocess.PIPE, check=False
    )
    subprocess.run(
        access.command(story.lab.lab, story.lab.node(1), "tar -x -C /root"),
        input=process.stdout, check=True,
    )  # fmt: skip
    story.lab.carry_in(document(), story.where, index=1)
    refused = story.lab.start(index=1)
    assert refused.finish() == 2, refused.said()
    said = refused.lines[-1][1]
    assert "is not one of your runs on this machine" in said and "cleanup --foreign" in said
    assert running.finish() == 0, running.said()
    cleanup = f"cd {'/root/campaign'} && python3 -c 'from cbt_crypto.cli import cbt_crypto; "
    cleanup += "cbt_crypto()' cleanup --foreign --yes /root/archive >&2"
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
    assert f"remove it with: cbt-crypto cleanup {story.lab.archive}" in said
    assert story.lab.leftovers() != []
    story.end("Ctrl-C twice", running)

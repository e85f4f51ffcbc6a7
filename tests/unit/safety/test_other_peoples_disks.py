"""A path is never proof: what a disk is, and what is on it, decides. Contents are compared."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cbt_crypto.engine.choice import embedded
from cbt_crypto.errors import UsageError
from cbt_crypto.hosts.devices import destroy
from cbt_crypto.hosts.devices.identity_on_host import TAG, check_unused
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.plan.file import read_campaign
from cbt_crypto.plan.order import cells_of
from cbt_crypto.run import devices
from cbt_crypto.run.journal import Journal
from cbt_crypto.run.locks import this_run

from .conftest import Bench, digest, run

pytestmark = pytest.mark.unit


def ours(bench: Bench, path: str) -> str:
    """Format as an OSD does: BlueStore's label with the uuid that proof gives."""
    label = "printf 'bluestore block device\\n%s\\n' \"$uuid\" | dd of=DEV conv=notrunc status=none"
    return destroy.format_osds(bench.tmp_dir, {path: label.replace("DEV", path)})


@pytest.mark.parametrize("stranger", ["ext4", "swap", "raw", "partitions"])
@pytest.mark.parametrize("wipe", [False, True])
def test_a_path_that_leads_to_another_disk_since(bench: Bench, stranger: str, wipe: bool) -> None:
    """The disks swap their places between a kill and the next start."""
    mine, place = bench.disk("mine")
    other, elsewhere = bench.disk("other")
    bench.begin(place, wipe=wipe)
    bench.good(destroy.claim(bench.tmp_dir, [place]))
    bench.good(ours(bench, place))
    bench.detach(place)
    bench.detach(elsewhere)
    make(other, stranger)
    bench.attach(other, place)
    before = digest(other)
    said = bench.refused(destroy.empty_all(bench.tmp_dir))
    assert str(mine) in said and str(other) in said and "nothing was touched" in said
    said = bench.refused(destroy.claim(bench.tmp_dir, [place]))
    assert str(mine) in said and str(other) in said
    bench.refused(ours(bench, place))
    bench.refused(destroy.overwrite(bench.tmp_dir, place))
    assert digest(other) == before
    # Once it is there again, wherever, it is emptied; the other one is left alone.
    bench.attach(mine, elsewhere)
    bench.good(destroy.empty_all(bench.tmp_dir))
    assert digest(other) == before
    assert mine.read_bytes().startswith(TAG)


def make(path: Path, kind: str) -> None:
    if kind == "ext4":
        run("mkfs.ext4", "-q", str(path))
    elif kind == "swap":
        run("mkswap", str(path))
    elif kind == "raw":
        with path.open("r+b") as file:
            file.seek(20 << 20)
            file.write(os.urandom(8 << 20))
    else:
        write_mbr(path)


def write_mbr(path: Path) -> None:
    """One partition, as any partitioning tool writes it."""
    entry = b"\0\x20\x21\0\x83\xfe\xff\xff" + (2048).to_bytes(4, "little")
    entry += (64 << 20 >> 9).to_bytes(4, "little")
    with path.open("r+b") as file:
        file.seek(446)
        file.write(entry.ljust(64, b"\0") + b"\x55\xaa")


def test_what_somebody_made_on_our_disk_since_is_his(bench: Bench) -> None:
    mine, place = bench.disk("mine")
    bench.begin(place)
    bench.good(destroy.claim(bench.tmp_dir, [place]))
    bench.good(ours(bench, place))
    run("mkfs.ext4", "-q", "-F", place)
    before = digest(mine)
    bench.good(destroy.empty_all(bench.tmp_dir))
    assert digest(mine) == before, "nothing of ours is there, so nothing is done"
    assert "carries data (ext4)" in bench.refused(ours(bench, place))
    assert "carries data (ext4)" in bench.refused(destroy.claim(bench.tmp_dir, [place]))
    assert digest(mine) == before


def test_what_was_not_looked_at_is_not_written_to(bench: Bench) -> None:
    disk, place = bench.disk("disk")
    before = digest(disk)
    bench.begin()
    for text in (destroy.claim(bench.tmp_dir, [place]), ours(bench, place)):
        assert "was not identified before this run" in bench.refused(text)
    bench.good(destroy.empty_all(bench.tmp_dir))
    assert digest(disk) == before


def test_what_is_looked_at_and_not_claimed_is_not_formatted(bench: Bench) -> None:
    disk, place = bench.disk("disk")
    bench.begin(place)
    assert "was not claimed" in bench.refused(ours(bench, place))
    bench.good(destroy.empty_all(bench.tmp_dir))
    assert not disk.read_bytes().strip(b"\0")


def test_a_campaign_leaves_a_disk_that_the_next_one_takes(bench: Bench) -> None:
    disk, place = bench.disk("disk")
    for _ in range(2):
        bench.begin(place)
        assert bench.good(destroy.look(bench.tmp_dir, place, "osd_devices")).splitlines()[0] == "ok"
        bench.good(destroy.claim(bench.tmp_dir, [place]))
        bench.good(ours(bench, place))
        with open(place, "r+b") as device:  # what was measured with
            device.seek(30 << 20)
            device.write(os.urandom(1 << 20))
        bench.good(destroy.empty_all(bench.tmp_dir))
        assert disk.read_bytes().startswith(TAG)


def test_only_what_may_be_wiped_is(bench: Bench) -> None:
    disk, place = bench.disk("disk")
    make(disk, "ext4")
    before = digest(disk)
    bench.begin(place)
    assert "carries data (ext4)" in bench.refused(destroy.claim(bench.tmp_dir, [place]))
    assert digest(disk) == before
    bench.begin(place, wipe=True)
    bench.good(destroy.claim(bench.tmp_dir, [place]))
    assert disk.read_bytes().startswith(TAG)


def test_a_disk_that_a_virtual_machine_has_open(bench: Bench) -> None:
    disk, place = bench.disk("disk")
    bench.begin(place, wipe=True)
    with open(place, "r+b") as opened:
        user = subprocess.Popen(["sleep", "30"], stdin=opened)
    try:
        said = bench.good(destroy.look(bench.tmp_dir, place, "osd_devices"))
        assert said.startswith("is held open by sleep (process ")
        assert "held open by sleep" in bench.refused(destroy.claim(bench.tmp_dir, [place]))
    finally:
        user.kill()
        user.wait()
    assert not disk.read_bytes().strip(b"\0")


def test_a_disk_that_a_program_had_open_for_a_moment(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As losetup looks for a free one; the campaign was refused."""
    _, place = bench.disk("disk")
    with open(place, "r+b") as opened:
        user = subprocess.Popen(["sleep", "30"], stdin=opened)

    sleep = time.sleep

    def until_it_ends(seconds: float) -> None:
        user.kill()
        user.wait()
        sleep(seconds)

    monkeypatch.setattr(time, "sleep", until_it_ends)
    check_unused(place)
    assert user.poll() is not None


#: Opens a device in a thread whose descriptors are its own; its process's first may end before.
_OF_A_THREAD = """
import ctypes, os, sys, threading
libc, ready = ctypes.CDLL(None), threading.Event()
def own():
    libc.unshare(0x400)
    os.open(sys.argv[1], os.O_RDWR)
    print("up", flush=True)
    threading.Event().wait(60)
threading.Thread(target=own).start()
if sys.argv[2] == "ends":
    libc.pthread_exit(None)
"""


@pytest.mark.parametrize("first", ["lives", "ends"])
def test_a_disk_that_one_thread_has_open(
    bench: Bench, start_child: Callable[..., Any], first: str
) -> None:
    """Only the descriptors of each process's first thread were looked at."""
    _, place = bench.disk("disk")
    start_child([sys.executable, "-c", _OF_A_THREAD, place, first])
    bench.begin(place, wipe=True)
    assert "is held open by" in bench.refused(destroy.claim(bench.tmp_dir, [place]))


def test_a_mounted_disk_is_not_emptied(bench: Bench) -> None:
    disk, place = bench.disk("disk")
    bench.begin(place)
    bench.good(destroy.claim(bench.tmp_dir, [place]))
    mount = bench.folder / "mnt"
    mount.mkdir()
    bench.good(destroy.file_system(bench.tmp_dir, "ext4", place, str(mount)))
    try:
        (mount / "file").write_text("his")
        assert "is mounted" in bench.refused(destroy.empty_all(bench.tmp_dir))
        assert (mount / "file").read_text() == "his"
    finally:
        run("umount", str(mount))
    bench.good(destroy.empty_all(bench.tmp_dir))
    assert disk.read_bytes().startswith(TAG)


def test_a_copy_of_bluestore_s_label_goes_too(bench: Bench) -> None:
    disk, place = bench.disk("disk", mib=1100)
    bench.begin(place)
    bench.good(destroy.claim(bench.tmp_dir, [place]))
    bench.good(ours(bench, place))
    with open(place, "r+b") as device:
        label = device.read(4096)
        device.seek(1 << 30)
        device.write(label)
    bench.good(destroy.empty_all(bench.tmp_dir))
    with disk.open("rb") as file:
        file.seek(1 << 30)
        assert not file.read(4096).strip(b"\0")


@pytest.mark.parametrize("where", ["folder", "link", "above", "link of his", "behind a link"])
def test_a_path_that_others_can_lead_elsewhere(bench: Bench, where: str) -> None:
    """A link below a directory of others, who change it between the proof and the command."""
    (disk, place), folder = bench.disk("disk"), bench.folder / "open" / "devices"
    folder.mkdir(parents=True)
    path = folder / "osd"
    path.symlink_to(place)
    asked = path
    if where == "folder":
        folder.chmod(0o777)
    elif where == "above":
        folder.parent.chmod(0o777)
    elif where == "link":
        os.chown(folder, 65534, 65534)
    elif where == "link of his":
        os.chown(path, 65534, 65534, follow_symlinks=False)
    else:
        folder.chmod(0o770)
        asked = bench.folder / "way"
        asked.symlink_to("open/../open/devices/osd")
    before = digest(disk)
    said = bench.good(destroy.look(bench.tmp_dir, str(asked), "osd_devices"))
    assert said.startswith("leads through ") and str(bench.folder) in said
    assert "leads through" in bench.refused(destroy.identify(bench.tmp_dir, [str(asked)]))
    bench.begin(place, wipe=True)
    notes = bench.notes()
    bench.good(destroy.record(bench.tmp_dir, {str(asked): notes[place]}))
    for text in (destroy.claim(bench.tmp_dir, [str(asked)]), ours(bench, str(asked))):
        assert "leads through" in bench.refused(text)
    assert digest(disk) == before


@pytest.mark.parametrize("target", ["DEVICE", "../x/./DEVICE"])
def test_a_link_of_ours_will_do(bench: Bench, target: str) -> None:
    """As udev's, in a directory of root's; also below /tmp, whose files are their owners' alone."""
    _, place = bench.disk("disk")
    path, way = bench.folder / "osd", bench.folder / "x"
    way.mkdir()
    (way / "node").symlink_to(place)
    path.symlink_to(place if target == "DEVICE" else f"{way}/../x//./node")
    assert bench.good(destroy.look(bench.tmp_dir, str(path), "osd_devices")).startswith("ok")


def test_links_without_end(bench: Bench) -> None:
    for name, target in (("a", "b"), ("b", "a")):
        (bench.folder / name).symlink_to(target)
    said = bench.good(destroy.look(bench.tmp_dir, f"{bench.folder}/a", "osd_devices"))
    assert "is not a block device there" in said


def test_notes_of_somebody_else_decide_nothing(bench: Bench) -> None:
    """/tmp/own, made by another user first, with notes that name our system's disk."""
    disk, place = bench.disk("disk")
    make(disk, "ext4")
    bench.begin(place, wipe=True)
    before = digest(disk)
    os.chown(bench.tmp_dir, 65534, 65534)
    for text in (destroy.claim(bench.tmp_dir, [place]), destroy.empty_all(bench.tmp_dir)):
        assert "belongs to uid 65534" in bench.refused(text)
    os.chown(bench.tmp_dir, 0, 0)
    os.chmod(bench.tmp_dir, 0o777)
    assert "can be written to by others" in bench.refused(destroy.claim(bench.tmp_dir, [place]))
    assert digest(disk) == before


def test_lost_notes_are_put_back(bench: Bench) -> None:
    disk, place = bench.disk("disk")
    bench.begin(place)
    notes = bench.notes()
    bench.good(destroy.claim(bench.tmp_dir, [place]))
    bench.good(ours(bench, place))
    os.unlink(Path(bench.tmp_dir) / destroy.NOTES)
    bench.good(destroy.restore(bench.tmp_dir, notes) + "\n" + destroy.empty_all(bench.tmp_dir))
    assert disk.read_bytes().startswith(TAG)


def test_an_archive_knows_its_devices(
    bench: Bench, tmp_path: Path, write_campaign: Callable[..., Path]
) -> None:
    """Two loop devices of one size with each other's files: the second would have been wiped."""
    (mine, place), (other, elsewhere) = bench.disk("mine"), bench.disk("other")
    cluster = {
        "head": "localhost", "clients": ["localhost"], "osds": ["localhost"], "replication": 1,
        "mons": {"head": ..., "localhost": {"a": "127.0.0.1:13377"}},
        "mgrs": {"head": ..., "localhost": {"x": None}},
        "tmp_dir": bench.tmp_dir, "osd_devices": [place], "osds_per_node": 1, "wipe": True,
    }  # fmt: skip
    campaign = read_campaign(write_campaign(cluster=cluster))
    remote, archive = Remote(embedded().common, bench.tmp_dir), tmp_path / "archive"

    def look() -> None:
        devices.check_same(archive, devices.read_identities(remote, campaign, cells_of(campaign)))

    found = devices.read_identities(remote, campaign, cells_of(campaign))
    Journal(archive, "r1").begin(campaign, this_run(archive), embedded(), found)
    look()
    bench.detach(place)
    bench.detach(elsewhere)
    bench.attach(other, place)
    with pytest.raises(UsageError, match=f"now: file {other} .*knows it as file {mine} "):
        look()
    bench.detach(place)
    mine.unlink()
    mine.write_bytes(bytes(64 << 20))
    bench.attach(mine, place)
    look()


def test_an_empty_directory_is_still_ours_to_take(bench: Bench) -> None:
    """Made for campaigns by an administrator, in memory too: a look leaves it so."""
    _, place = bench.disk("disk")
    Path(bench.tmp_dir).mkdir(mode=0o700)
    bench.good(destroy.look(bench.tmp_dir, place, "osd_devices"))
    bench.good(destroy.identify(bench.tmp_dir, [place]))
    assert os.listdir(bench.tmp_dir) == []
    bench.begin(place)
    bench.good(destroy.claim(bench.tmp_dir, [place]))

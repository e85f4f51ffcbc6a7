"""Somebody has our device alone for a moment, as `check`, or ceph-volume's inventory, has it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Callable

import pytest

from cbt_crypto.hosts.devices import destroy

from .conftest import Bench

pytestmark = pytest.mark.unit

#: Before a program first changes the device, somebody takes it for half a second.
TAKEN = """
case " $* " in *" -n "*) exec {program} "$@" ;; esac  # wipefs that only looks
if mkdir "{seen}" 2> /dev/null; then
    {{ {python} -c '
import os, time
os.open("{device}", os.O_RDONLY | os.O_EXCL)
os.close(1)
time.sleep(0.5)
' & }} | cat > /dev/null
fi
exec {program} "$@"
"""
LUKS = 'FORMAT="--type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000" keys={0}; '
LUKS += "head -c 64 /dev/urandom > {0}/cbt-crypto-x; format_luks cbt-crypto-x {1} /dev/null"


@pytest.mark.parametrize(
    ("program", "text"),
    [
        ("wipefs", "empty {1}"),
        ("blkdiscard", "discard {1}"),
        ("mkfs.ext4", "make_ext4 {1} label"),
        ("mkfs.xfs", "make_xfs {1} label"),
        ("mount", "make_ext4 {1} label; patiently mount {1} {0}; umount {0}"),
        ("cryptsetup", LUKS),
        ("pvcreate", "make_group cbt-crypto-x {1}; remove_group cbt-crypto-x {1}"),
    ],
)
def test_it_is_waited_for(
    bench: Bench, programs: Callable[[str, str], Path], program: str, text: str
) -> None:
    """Campaigns ended with "Device or resource busy" because another one was set up beside them."""
    real = shutil.which(program, path="/usr/sbin:/usr/bin:/sbin:/bin")
    if not real:
        pytest.skip(f"needs {program}; make test-packages installs it")
    _, device = bench.disk("disk", mib=400)
    bench.begin(device)
    bench.good(destroy.claim(bench.tmp_dir, [device]))
    seen = bench.folder / "seen"
    taken = TAKEN.format(seen=seen, device=device, python=sys.executable, program=real)
    programs(program, taken)
    place = bench.folder / "place"
    place.mkdir()
    bench.good(destroy.proved(bench.tmp_dir, [text.format(place, device)]))
    assert seen.exists()


def test_what_another_holds_for_good_is_not_waited_for_long(bench: Bench) -> None:
    _, device = bench.disk("disk")
    held = os.open(device, os.O_RDONLY | os.O_EXCL)
    try:
        text = destroy.proved(bench.tmp_dir, [f"patiently mkfs.ext4 -q -F {device}"])
        assert "in use" in bench.refused(text)
    finally:
        os.close(held)


@contextmanager
def mounted_elsewhere(bench: Bench, device: str, seconds: float) -> Iterator[int]:
    """A process whose mount namespace keeps what was mounted here, as a container may keep it."""
    place = bench.folder / "place"
    place.mkdir()
    bench.good(f"mkfs.ext4 -q -F {device}; mount {device} {place}")
    keeper = ["unshare", "--mount", "sleep", str(seconds)]
    with subprocess.Popen(keeper) as process:
        while os.readlink(f"/proc/{process.pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt"):
            time.sleep(0.01)
        bench.good(f"umount {place}")
        yield process.pid
        process.kill()


def test_what_is_taken_down_waits_for_another_mount_namespace(bench: Bench) -> None:
    """A campaign's tear-down failed because somebody's `unshare` kept what it had unmounted."""
    _, device = bench.disk("disk")
    bench.begin(device)
    bench.good(destroy.claim(bench.tmp_dir, [device]))
    bench.good(destroy.proved(bench.tmp_dir, [f"prove ready {device} ext4"]))
    with mounted_elsewhere(bench, device, 6):
        bench.good(destroy.proved(bench.tmp_dir, [f"empty {device}"]))


def test_it_says_whose_mount_namespace(bench: Bench) -> None:
    _, device = bench.disk("disk")
    bench.begin(device, wipe=True)
    with mounted_elsewhere(bench, device, 60) as pid:
        said = bench.refused(destroy.claim(bench.tmp_dir, [device]))
    assert f"is mounted in the mount namespace of sleep (process {pid}); end that, or name" in said

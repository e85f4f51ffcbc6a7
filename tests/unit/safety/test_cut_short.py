"""A command of ours that was ended excused whatever anybody put on the device since."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cbt_crypto.hosts.devices import destroy
from cbt_crypto.hosts.devices.identity_on_host import TAG

from .conftest import Bench, digest, run
from .test_other_peoples_disks import write_mbr

pytestmark = pytest.mark.unit

COMMANDS = ("luks", "bluestore", "lvm", "md", "ext4", "xfs")


def write(device: str, place: int, mib: int) -> None:
    with open(device, "r+b") as file:
        file.seek(place)
        file.write(os.urandom(mib << 20))
        os.fsync(file.fileno())


def zero(device: str) -> None:
    with open(device, "r+b") as file:
        file.write(bytes(32 << 10))
        os.fsync(file.fileno())


def begun(bench: Bench, device: str, what: str) -> None:
    """The command has begun, and `prove made` never came."""
    bench.begin(device)
    bench.good(destroy.claim(bench.tmp_dir, [device]))
    bench.good(destroy.proved(bench.tmp_dir, [f"prove ready {device} {what} > /dev/null"]))


def is_left_alone(bench: Bench, disk: Path, device: str) -> None:
    before = digest(disk)
    look = bench.good(destroy.look(bench.tmp_dir, device, "osd_devices"))
    assert look.startswith("signature data without a name at byte "), look
    assert "carries data" in bench.refused(destroy.claim(bench.tmp_dir, [device]))
    bench.good(destroy.empty_all(bench.tmp_dir))
    bench.begin(device)
    assert "carries data" in bench.refused(destroy.claim(bench.tmp_dir, [device]))
    assert digest(disk) == before


@pytest.mark.parametrize("what", COMMANDS)
def test_raw_data_since_a_command_was_ended(bench: Bench, what: str) -> None:
    """As plain dm-crypt or a database: check said ok, and cleanup overwrote the first 4 MiB."""
    disk, device = bench.disk("disk")
    begun(bench, device, what)
    write(device, 0, 32)
    is_left_alone(bench, disk, device)


@pytest.mark.parametrize("what", [*COMMANDS, "lent"])
@pytest.mark.parametrize("place", [32 << 10, 40 << 20])
def test_what_such_a_command_leaves_is_emptied(bench: Bench, what: str, place: int) -> None:
    """Zeros in the place of the tag, then keys or tables, then what was measured with before."""
    disk, device = bench.disk("disk")
    begun(bench, device, what)
    write(device, place, 8)
    zero(device)
    assert bench.good(destroy.look(bench.tmp_dir, device, "osd_devices")).startswith("ok")
    bench.good(destroy.empty_all(bench.tmp_dir))
    assert disk.read_bytes().startswith(TAG)


@pytest.mark.parametrize("what", ["luks", "lent"])
def test_in_another_boot_nothing_is_excused(bench: Bench, what: str) -> None:
    disk, device = bench.disk("disk")
    begun(bench, device, what)
    write(device, 40 << 20, 8)
    zero(device)
    notes = bench.notes()
    notes[device]["since"] = notes[device]["since"].replace("-", "+")
    (Path(bench.tmp_dir) / destroy.NOTES).write_text(json.dumps(notes))
    is_left_alone(bench, disk, device)


@pytest.mark.parametrize("program", ["wipefs", "dd", "blkdiscard"])
def test_a_wipe_that_was_ended(
    bench: Bench, programs: Callable[[str, str], Path], program: str
) -> None:
    """Whenever it ends, what it leaves has our tag, and what has not is somebody's."""
    disk, device = bench.disk("disk")
    bench.begin(device)
    bench.good(destroy.claim(bench.tmp_dir, [device]))
    bench.good(destroy.proved(bench.tmp_dir, [f"make_ext4 {device} label"]))
    write(device, 40 << 20, 8)
    real = shutil.which(program, path="/usr/sbin:/usr/bin:/sbin:/bin")
    text = f'case " $* " in *" -n "*) exec {real} "$@" ;; esac; exit 1'
    fake = programs(program, text)
    script = destroy.empty_all(bench.tmp_dir)
    if program == "blkdiscard":
        bench.good(script)
        bench.begin(device)
        script = destroy.claim(bench.tmp_dir, [device], discard=True)
    bench.refused(script)
    fake.unlink()
    bench.good(destroy.empty_all(bench.tmp_dir))
    assert disk.read_bytes().startswith(TAG)
    begun(bench, device, "lent")
    programs(program, text)
    bench.sh(destroy.empty_all(bench.tmp_dir))
    write(device, 0, 32)
    fake.unlink()
    is_left_alone(bench, disk, device)


def test_keys_that_were_being_wiped(bench: Bench) -> None:
    """The first tag is over LUKS's header, and the second header is still there."""
    disk, device = bench.disk("disk")
    bench.begin(device)
    bench.good(destroy.claim(bench.tmp_dir, [device]))
    keys = bench.folder / "keys"
    keys.mkdir()
    options = "--type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000"
    text = f'FORMAT="{options}" keys={keys}; head -c 64 /dev/urandom > {keys}/cbt-crypto-x\n'
    text += f"format_luks cbt-crypto-x {device} /dev/null\nprove tag {device} {device}"
    bench.good(destroy.luks(bench.tmp_dir, text))
    assert disk.read_bytes().startswith(TAG)
    close = f"key_directories={keys}\nclose_luks cbt-crypto-x {device}"
    bench.good(destroy.luks(bench.tmp_dir, close))
    assert disk.read_bytes().startswith(TAG) and not bench.notes()[device]["claimed"]
    assert run("wipefs", "-n", device) == ""


def test_a_partition_table_is_left_to_wipefs(bench: Bench) -> None:
    """It has the kernel forget the partitions; the first tag is before the table."""
    disk, device = bench.disk("disk")
    bench.begin(device, wipe=True)
    bench.good(destroy.claim(bench.tmp_dir, [device]))
    write_mbr(disk)
    bench.good(destroy.proved(bench.tmp_dir, [f"prove tag {device} {device}"]))
    assert disk.read_bytes().startswith(TAG) and "dos" in run("wipefs", "-n", device)

"""What somebody put on a drive behind our tag, since we left it, is his."""

from __future__ import annotations

import pytest

from cbt_crypto.hosts.devices import destroy

from .conftest import Bench, digest, run

pytestmark = pytest.mark.unit


def left(bench: Bench, device: str) -> None:
    """The device was ours, was written to, and was emptied."""
    bench.begin(device, wipe=True)
    bench.good(destroy.claim(bench.tmp_dir, [device]))
    with open(device, "r+b") as file:
        file.seek(8 << 20)
        file.write(b"measured with" * 100_000)
    bench.good(destroy.empty_all(bench.tmp_dir))


@pytest.mark.parametrize("mib", [1, 4, 32, 63])
def test_a_file_system_behind_it(bench: Bench, mib: int) -> None:
    """As `losetup -o` or a linear mapping makes one; the tag alone was believed."""
    disk, device = bench.disk("disk")
    left(bench, device)
    inner = run("losetup", "--find", "--show", "-o", str(mib << 20), device)
    run("mkfs.ext2", "-q", inner)
    run("losetup", "--detach", inner)
    before = digest(disk)
    assert "data without a name" in bench.good(destroy.look(bench.tmp_dir, device, "osd_devices"))
    bench.begin(device)
    assert "carries data" in bench.refused(destroy.claim(bench.tmp_dir, [device]))
    assert digest(disk) == before
    bench.begin(device, wipe=True)
    bench.good(destroy.claim(bench.tmp_dir, [device]))


def test_what_we_measured_with_is_nobody_s(bench: Bench) -> None:
    _, device = bench.disk("disk")
    left(bench, device)
    assert bench.good(destroy.look(bench.tmp_dir, device, "osd_devices")).startswith("ok")
    bench.begin(device)
    bench.good(destroy.claim(bench.tmp_dir, [device]))
    with open(device, "r+b") as file:
        file.seek(16 << 20)
        file.write(b"measured again" * 100_000)
    # of a claimed one the tag says that it is ours, whatever is behind it
    bench.good(destroy.proved(bench.tmp_dir, [f"make_ext4 {device} label"]))
    bench.good(destroy.empty_all(bench.tmp_dir))


def test_a_tag_that_was_copied(bench: Bench) -> None:
    _, ours = bench.disk("ours")
    theirs, device = bench.disk("theirs", mib=128)
    left(bench, ours)
    with open(ours, "rb") as copied, open(device, "r+b") as file:
        file.write(copied.read(4096))
        file.seek(64 << 20)
        file.write(b"his" * 1_000_000)
    before = digest(theirs)
    bench.begin(device)
    assert "carries data" in bench.refused(destroy.claim(bench.tmp_dir, [device]))
    assert digest(theirs) == before


def test_a_claim_of_another_drive_that_had_the_path(bench: Bench) -> None:
    """What may be behind the tag of a claimed drive may not be behind that of the next one."""
    _, ours = bench.disk("ours")
    theirs, device = bench.disk("theirs")
    left(bench, device)
    with open(device, "r+b") as file:
        file.seek(32 << 20)
        file.write(b"his" * 1_000_000)
    bench.begin(ours)
    bench.good(destroy.claim(bench.tmp_dir, [ours]))
    bench.detach(ours)
    bench.detach(device)
    bench.attach(theirs, ours)
    before = digest(theirs)
    bench.begin(ours)
    assert "carries data" in bench.refused(destroy.claim(bench.tmp_dir, [ours]))
    assert digest(theirs) == before

"""A partition and its disk are one thing to a campaign: real partitions, as the kernel has them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cbt_crypto.engine.choice import embedded
from cbt_crypto.errors import UsageError
from cbt_crypto.hosts.devices import destroy
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.site import Osd, Site
from cbt_crypto.run import hold_on_host
from cbt_crypto.run.locks import hosts_held, this_run

from .conftest import Bench, digest, run

pytestmark = pytest.mark.unit


@pytest.fixture
def partitions(bench: Bench) -> Iterator[tuple[str, str, str]]:
    """A disk with two real partitions, as the kernel knows them."""
    if not shutil.which("addpart"):
        pytest.skip("needs addpart of util-linux")
    _, disk = bench.disk("parted")
    for number in (1, 2):
        run("addpart", disk, str(number), str(number * 2048), "40960" if number == 2 else "2048")
    yield disk, f"{disk}p1", f"{disk}p2"
    for number in (1, 2):
        run("delpart", disk, str(number))


def site(folder: Path, device: str) -> Site:
    osd = Osd(0, "localhost", device, "/d/0", "/s", "/p")
    return Site(str(folder), "/c", "localhost", ("localhost",), (osd,))


@pytest.mark.parametrize("first, second", [(0, 1), (1, 0), (1, 2), (2, 0), (1, 1)])
def test_they_lock_together(
    partitions: tuple[str, str, str], tmp_path: Path, first: int, second: int
) -> None:
    one = site(tmp_path / "one", partitions[first])
    two = site(tmp_path / "two", partitions[second])
    who = this_run(tmp_path)
    with (
        hosts_held(Remote(embedded().common, one.tmp_dir), one, "first", who),
        pytest.raises(UsageError, match=f"device {partitions[second]} is in use by "),
        hosts_held(Remote(embedded().common, two.tmp_dir), two, "second", who),
    ):
        pytest.fail("held twice")


def test_two_partitions_of_one_campaign_are_held_once(partitions: tuple[str, str, str]) -> None:
    names = {tuple(hold_on_host.addresses(["device", path])) for path in partitions}
    assert len(names) == 1


def test_a_loop_device_over_a_partition_is_its_disk(
    bench: Bench, partitions: tuple[str, str, str]
) -> None:
    over = bench.attach(Path(partitions[2]))
    try:
        found = hold_on_host.addresses(["device", over])
    finally:
        bench.detach(over)
    assert found == hold_on_host.addresses(["device", partitions[0]])


def test_a_disk_whose_partition_is_in_use(bench: Bench, partitions: tuple[str, str, str]) -> None:
    """Mounted is one partition; named are the disk, and the other partition."""
    disk, _, data = partitions
    run("mkfs.ext4", "-q", data)
    mount = bench.folder / "mnt"
    mount.mkdir()
    run("mount", "-o", "ro", data, str(mount))
    before = digest(bench.folder / "parted")
    try:
        said = bench.good(destroy.look(bench.tmp_dir, disk, "osd_devices"))
        assert said.startswith("is mounted, or a part of it is")
        bench.begin(disk, wipe=True)
        assert "is mounted" in bench.refused(destroy.claim(bench.tmp_dir, [disk]))
        assert digest(bench.folder / "parted") == before
    finally:
        run("umount", str(mount))

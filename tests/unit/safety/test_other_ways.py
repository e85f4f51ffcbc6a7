"""The same sectors by another way: the kernel says of neither device that the other is in use."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cbt_crypto.hosts.devices import destroy

from .conftest import Bench, digest, run

pytestmark = [pytest.mark.unit, pytest.mark.xdist_group("loop devices")]


@contextmanager
def mounted(bench: Bench, device: str) -> Iterator[None]:
    place = bench.folder / "mnt"
    place.mkdir(exist_ok=True)
    run("mount", "-o", "ro", device, str(place))
    try:
        yield
    finally:
        run("umount", str(place))


def refused_untouched(bench: Bench, file: Path, device: str, said: str) -> None:
    before = digest(file)
    look = bench.good(destroy.look(bench.tmp_dir, device, "osd_devices"))
    assert said in look.splitlines()[0]
    bench.begin(device, wipe=True)
    assert said in bench.refused(destroy.claim(bench.tmp_dir, [device]))
    assert digest(file) == before


def test_a_loop_over_the_device(bench: Bench) -> None:
    file, device = bench.disk("disk")
    run("mkfs.ext4", "-q", device)
    over = bench.attach(Path(device))
    try:
        with mounted(bench, over):
            refused_untouched(bench, file, device, f"is in use by {over}, a loop over it")
    finally:
        bench.detach(over)


@pytest.mark.parametrize("name", ["same", "hard link", "link"])
def test_another_loop_over_the_same_file(bench: Bench, name: str) -> None:
    """As a drive has two paths without multipath: both are free, and one is mounted."""
    file, device = bench.disk("disk")
    run("mkfs.ext4", "-q", device)
    other = bench.folder / "other"
    if name == "hard link":
        os.link(file, other)
    elif name == "link":
        other.symlink_to(file)
    twin = bench.attach(file if name == "same" else other)
    try:
        with mounted(bench, twin):
            refused_untouched(bench, file, device, f"is {twin} as well, which is mounted")
    finally:
        bench.detach(twin)


def test_a_mount_that_only_another_namespace_sees(bench: Bench) -> None:
    file, device = bench.disk("disk")
    run("mkfs.ext4", "-q", device)
    script = f"mount -o ro {device} /mnt && echo up && read x"
    with subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as container:
        assert container.stdout is not None and container.stdout.readline() == b"up\n"
        refused_untouched(bench, file, device, "is in use")
        container.communicate(b"\n")


def test_a_mount_that_was_detached_and_is_still_in_use(bench: Bench) -> None:
    file, device = bench.disk("disk")
    run("mkfs.ext4", "-q", device)
    place = bench.folder / "mnt"
    place.mkdir()
    run("mount", "-o", "ro", device, str(place))
    opened = os.open(place, os.O_RDONLY)
    run("umount", "--lazy", str(place))
    try:
        refused_untouched(bench, file, device, "is in use")
    finally:
        os.close(opened)


def test_a_node_of_another_device_at_our_path(bench: Bench) -> None:
    """Somebody makes the path anew, with the numbers of his victim's disk."""
    _, device = bench.disk("mine")
    theirs, victim = bench.disk("theirs")
    run("mkfs.ext4", "-q", victim)
    path = bench.folder / "node"
    os.mknod(path, 0o600 | 0o060000, os.stat(device).st_rdev)
    bench.begin(str(path), wipe=True)
    bench.good(destroy.claim(bench.tmp_dir, [str(path)]))
    before = digest(theirs)
    path.unlink()
    os.mknod(path, 0o600 | 0o060000, os.stat(victim).st_rdev)
    assert "is another device now" in bench.refused(destroy.claim(bench.tmp_dir, [str(path)]))
    bench.refused(destroy.format_osds(bench.tmp_dir, {str(path): "false"}))
    bench.sh(destroy.empty_all(bench.tmp_dir))
    assert digest(theirs) == before

"""Sectors reached by another way: the kernel says of neither device that the other is in use."""

from __future__ import annotations

import glob
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cbt_crypto.hosts.devices import destroy
from cbt_crypto.hosts.devices.identity_on_host import folder_of, writers
from cbt_crypto.hosts.devices.layers_on_host import number_at
from cbt_crypto.hosts.directory_on_host import Refused
from cbt_crypto.hosts.trust_on_host import mounts

from .conftest import Bench, digest, run

pytestmark = pytest.mark.unit


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


def test_a_loop_over_a_mounted_device_is_no_device_of_its_own(bench: Bench) -> None:
    """With `wipe: true` the file system below it was wiped."""
    file, device = bench.disk("disk")
    run("mkfs.ext4", "-q", device)
    over = bench.attach(Path(device))
    try:
        with mounted(bench, device):
            refused_untouched(bench, file, over, "is on other devices")
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


def test_another_loop_over_a_part_of_the_same_file(bench: Bench) -> None:
    """It has another size, and so was no twin: a mounted file system was wiped."""
    file, device = bench.disk("disk")
    part = run("losetup", "--show", "-f", "-o", "1048576", str(file)).strip()
    try:
        run("mkfs.ext4", "-q", part)
        with mounted(bench, part):
            refused_untouched(bench, file, device, f"is {part} as well, which is mounted")
    finally:
        run("losetup", "--detach", part)


def test_loops_over_other_parts_of_a_file_are_other_devices(bench: Bench) -> None:
    file, whole = bench.disk("disk")
    bench.detach(whole)
    half = file.stat().st_size // 2 // 4096 * 4096
    parts = [
        run("losetup", "--show", "-f", "-o", str(at), "--sizelimit", str(half), str(file)).strip()
        for at in (0, half)
    ]
    try:
        run("mkfs.ext4", "-q", parts[1])
        with mounted(bench, parts[1]):
            look = bench.good(destroy.look(bench.tmp_dir, parts[0], "osd_devices"))
            assert look.splitlines()[0] == "ok"
    finally:
        for part in parts:
            run("losetup", "--detach", part)


_HOLD = """\
import ctypes, mmap, os, sys
opened = os.open(sys.argv[1], os.O_RDWR)
if sys.argv[2] == "ring":
    # io_uring_setup, and io_uring_register with IORING_REGISTER_FILES; the same everywhere.
    call = ctypes.CDLL(None).syscall
    ring = call(425, 8, ctypes.create_string_buffer(120))
    if ring < 0 or call(427, ring, 2, ctypes.byref(ctypes.c_int(opened)), 1):
        sys.exit(print("none", flush=True))
    os.close(opened)
if sys.argv[2] == "mapped":
    memory = mmap.mmap(opened, 4096, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    os.close(opened)
print("up", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["open", "mapped", "ring"])
@pytest.mark.parametrize("what", ["device", "twin", "file"])
def test_a_process_that_may_write_to_it_by_any_way(bench: Bench, what: str, how: str) -> None:
    """A virtual machine asks for no exclusive use, nor keeps what it has mapped, or a ring has."""
    file, device = bench.disk("disk")
    twin = bench.attach(file)
    path = {"device": device, "twin": twin, "file": str(file)}[what]
    try:
        with subprocess.Popen(
            [sys.executable, "-c", _HOLD, path, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as holder:
            assert holder.stdout is not None
            if (said := holder.stdout.readline()) == b"none\n":
                pytest.skip("this kernel lets nobody have an io_uring")
            assert said == b"up\n"
            refused_untouched(bench, file, device, f"(process {holder.pid}); name another device")
            holder.communicate()
    finally:
        bench.detach(twin)


def test_many_processes_with_many_files_do_not_hold_up_the_search(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit was of each process: a user's several hundred outlasted every step's."""
    _, device = bench.disk("disk")
    processes = [subprocess.Popen(["sleep", "60"]) for _ in range(30)]
    slow, listed = {str(process.pid) for process in processes}, glob.glob

    def slowly(pattern: str) -> list[str]:
        time.sleep(0.2 if pattern.split("/")[2] in slow else 0)
        return listed(pattern)

    monkeypatch.setattr(glob, "glob", slowly)
    try:
        with pytest.raises(Refused, match="cannot be looked at; end it"):
            writers(folder_of(device), patience_s=0.5)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_a_mount_s_source_is_no_path_in_this_directory(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's link called `tmpfs`, where the campaign was started, had our device be mounted."""
    _, device = bench.disk("disk")
    (bench.folder / "tmpfs").symlink_to(device)
    monkeypatch.chdir(bench.folder)
    assert any(fields[fields.index("-") + 2] == "tmpfs" for fields in mounts())
    assert number_at(str(bench.folder / "tmpfs")) and number_at("tmpfs") is None


def test_another_loop_over_the_same_file_in_a_container(bench: Bench) -> None:
    """Its path is one of the container, where it was mounted; here it was free, and formatted."""
    file, device = bench.disk("disk")
    run("mkfs.ext4", "-q", device)
    place = bench.folder / "place"
    place.mkdir()
    script = f"""
mount -t tmpfs container {place}; touch {place}/file; mount --bind {file} {place}/file
loop=$(losetup --find --show {place}/file); mkdir {place}/mnt; mount -o ro $loop {place}/mnt
echo $loop; exec sleep 60
"""
    command = ["unshare", "--mount", "sh", "-euc", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as container:
        try:
            assert container.stdout is not None
            twin = container.stdout.readline().strip()
            refused_untouched(bench, file, device, f"is {twin} as well, which is ")
        finally:
            container.kill()
            container.wait()
            run("losetup", "--detach", twin)


@pytest.mark.parametrize("whose", ["file", "mode"])
def test_a_loop_over_another_user_s_file(bench: Bench, whose: str) -> None:
    """He could read, change or cut short what an OSD writes meanwhile."""
    file, device = bench.disk("disk")
    look = destroy.look(bench.tmp_dir, device, "osd_devices")
    assert bench.good(look).startswith("ok")
    if whose == "file":
        os.chown(file, 65534, 65534)
    else:
        file.chmod(0o666)
    assert f"is a loop over {file}, which " in bench.good(look).splitlines()[0]


def test_a_mount_that_only_another_namespace_sees(bench: Bench) -> None:
    file, device = bench.disk("disk")
    run("mkfs.ext4", "-q", device)
    script = f"mount -o ro {device} /mnt && echo up && read x"
    with subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as container:
        assert container.stdout is not None and container.stdout.readline() == b"up\n"
        owner = f"sh (process {container.pid})"
        refused_untouched(bench, file, device, f"is mounted in the mount namespace of {owner}")
        container.communicate(b"\n")


#: As fusermount3 mounts for any user, who chooses what the mount is said to be of.
_FUSE = """\
import ctypes, os, sys
opened = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={opened},rootmode=40000,user_id=65534,group_id=65534".encode()
source, place = map(os.fsencode, sys.argv[1:])
if ctypes.CDLL(None).mount(source, place, b"fuse.x", 6, options) == 0:
    print("up", flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="the kernel has no FUSE here")
def test_a_mount_of_a_user_s_that_is_said_to_be_of_the_device(bench: Bench) -> None:
    """Who mounted so kept a campaign from its drive, and its drive from being emptied."""
    _, device = bench.disk("disk")
    place = bench.folder / "mnt"
    place.mkdir()
    bench.begin(device, wipe=True)
    bench.good(destroy.claim(bench.tmp_dir, [device]))
    words = [sys.executable, "-c", _FUSE, device, str(place)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as his:
        assert his.stdout is not None and his.stdout.readline() == b"up\n"
        try:
            assert run("lsblk", "-nro", "MOUNTPOINT", device) == str(place)
            look = bench.good(destroy.look(bench.tmp_dir, device, "osd_devices"))
            assert look.splitlines()[0] == "ok"
            bench.good(destroy.empty_all(bench.tmp_dir))
        finally:
            run("umount", "--lazy", str(place))
            his.communicate(b"")


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

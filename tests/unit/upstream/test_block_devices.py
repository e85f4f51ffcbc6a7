"""Upstream overwrites `block_devices` without a question: here the hosts are asked first."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

import pytest
from pydantic import ValidationError

from cbt_crypto.benchmarks.upstream import Kvmrbdfio, OnDevices, Rawfio
from cbt_crypto.engine.upstream.cell import NativeBenchmark
from cbt_crypto.errors import HostError, RunError
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.devices import destroy, rbd_images
from cbt_crypto.hosts.devices.identity_on_host import TAG
from cbt_crypto.hosts.site import Site
from cbt_crypto.run.cell import measure
from tests.unit.safety.conftest import Bench, bench, run

__all__ = ["bench"]
pytestmark = pytest.mark.unit


def scenario(device: str, kind: type[OnDevices] = Rawfio, **options: Any) -> OnDevices:
    given = {"configuration": "A", "time": 1, "block_devices": device, **options}
    return kind.model_validate(given)


def judged(bench: Bench, of: OnDevices) -> Optional[str]:
    """What the check says."""
    site = Site(bench.tmp_dir, "/c", "c0", ("c0",), ())
    (need,) = of.requirements(site)
    return need.judge(bench.good(f"(\n{need.script}\n) 2>&1 || :"))


def test_a_free_device_is_lent_and_emptied(bench: Bench) -> None:
    """rawfio leaves what nothing recognises: it is the campaign's own, and the next cell's too."""
    disk, device = bench.disk("disk")
    of = scenario(device)
    assert judged(bench, of) is None
    bench.begin(device)
    for _ in range(2):
        bench.good(of.guard(bench.tmp_dir))
        with open(device, "r+b") as opened:
            opened.write(os.urandom(8 << 20))
        bench.good(of.after(bench.tmp_dir))
        assert disk.read_bytes().startswith(TAG)
    assert judged(bench, of) is None


@pytest.mark.parametrize(
    ("file", "text", "is_ours"),
    [("pool_ns", "", True), ("current_snap", "-", True), ("pool_ns", "theirs", False),
     ("current_snap", "before", False)],
)  # fmt: skip
def test_an_image_of_a_namespace_and_a_snapshot_are_not_unmapped(
    tmp_path: Path, file: str, text: str, is_ours: bool
) -> None:
    """They have the name of our image, and /sys tells them apart in files of their own."""
    shown = tmp_path / "sys/bus/rbd/devices/0"
    shown.mkdir(parents=True)
    of = {"cluster_fsid": "FS", "pool": "rbd", "name": "img", file: text}
    for name, value in of.items():
        (shown / name).write_text(f"{value}\n")
    called = shell.calling(rbd_images.__file__, "prove rbd0 FS rbd img")
    script = f"set -eu\nSYS={tmp_path}/sys PREFIX=p\n{called}"
    done = subprocess.run(["sh", "-c", script], check=False)
    assert (done.returncode == 0) is is_ours


@pytest.mark.parametrize("place", [0, 3 << 20, 63 << 20])
def test_data_without_a_signature_is_refused(bench: Bench, place: int) -> None:
    disk, device = bench.disk("disk")
    with disk.open("r+b") as file:
        file.seek(place)
        file.write(b"a database" * 10000)
    before = disk.read_bytes()
    of = scenario(device)
    assert f"{device} carries data (data without a name" in str(judged(bench, of))
    bench.begin(device)
    assert "carries data" in bench.refused(of.guard(bench.tmp_dir))
    bench.good(of.after(bench.tmp_dir))
    assert disk.read_bytes() == before
    assert judged(bench, scenario(device, wipe=True)) is None


def test_what_wipefs_cannot_read_is_refused(
    bench: Bench, programs: Callable[[str, str], Path]
) -> None:
    _, device = bench.disk("disk")
    programs("wipefs", "echo 'no permission' >&2; exit 1")
    assert "cannot be read (no permission)" in str(judged(bench, scenario(device)))


def test_a_device_that_somebody_writes_to_is_refused(bench: Bench) -> None:
    """As a virtual machine's: O_EXCL alone does not see it."""
    _, device = bench.disk("disk")
    with open(device, "r+b") as opened:
        user = subprocess.Popen(["sleep", "30"], stdin=opened)
    try:
        said = judged(bench, scenario(device, wipe=True))
    finally:
        user.kill()
        user.wait()
    assert f"{device} is held open by sleep" in str(said)


def test_the_sentence_names_the_key_that_helps(bench: Bench) -> None:
    disk, device = bench.disk("disk")
    run("mkfs.ext4", "-q", str(disk))
    assert judged(bench, scenario(device)) == (
        f"{device} carries data (ext4); name another device, or say wipe: true beside "
        "block_devices to have it overwritten"
    )


@contextlib.contextmanager
def mounted_by_cbt(device: str, name: str) -> Iterator[Path]:
    place = Path(f"/srv/rbdfio-cbt-crypto-test-{name}")
    place.mkdir(parents=True)
    run("mount", device, str(place))
    try:
        yield place
    finally:
        subprocess.run(["umount", "-q", str(place)], check=False)
        if place.exists():
            place.rmdir()


@pytest.mark.parametrize("ending", ["cell", "campaign"])
def test_what_kvmrbdfio_mounted_by_another_name_is_unmounted(bench: Bench, ending: str) -> None:
    """As below /dev/disk/by-id: the kernel lists the device by its own name."""
    disk, device = bench.disk("disk")
    link = bench.folder / "by-id"
    link.symlink_to(device)
    of = scenario("/dev/x", Kvmrbdfio).model_copy(update={"block_devices": str(link)})
    bench.begin(str(link))
    bench.good(of.guard(bench.tmp_dir))
    run("mkfs.ext4", "-q", "-F", device)
    with mounted_by_cbt(device, link.name) as place:
        # Whoever takes the cluster down knows of no scenario.
        text = of.after(bench.tmp_dir) if ending == "cell" else destroy.empty_all(bench.tmp_dir)
        bench.good(text)
        assert not place.exists()
        assert disk.read_bytes().startswith(TAG)


def test_a_mount_of_a_device_that_was_not_lent_stays(bench: Bench) -> None:
    disk, device = bench.disk("disk")
    run("mkfs.ext4", "-q", str(disk))
    bench.begin(device)
    with mounted_by_cbt(device, Path(device).name) as place:
        bench.good(scenario(device, Kvmrbdfio).after(bench.tmp_dir))
        assert place.is_mount()


def test_a_busy_mount_is_said_and_nothing_is_emptied(bench: Bench) -> None:
    _, device = bench.disk("disk")
    of = scenario(device, Kvmrbdfio)
    bench.begin(device)
    bench.good(of.guard(bench.tmp_dir))
    run("mkfs.ext4", "-q", "-F", device)
    with mounted_by_cbt(device, Path(device).name) as place:
        user = subprocess.Popen(["sleep", "30"], cwd=place)
        try:
            assert "busy" in bench.refused(of.after(bench.tmp_dir))
            assert place.is_mount()
        finally:
            user.kill()
            user.wait()
        bench.good(of.after(bench.tmp_dir))
        assert not place.exists()


@pytest.mark.parametrize(
    "paths",
    [
        "/dev/shm/x",
        "/dev/sd*",
        "/dev/sdb /etc/x",
        "/dev/../etc/x",
        "/dev/sdb,",
        "/dev/a;b",
        "/dev/",
    ],
)
def test_what_is_no_path_of_one_device(paths: str) -> None:
    with pytest.raises(ValidationError, match="takes paths of devices below /dev/"):
        scenario(paths)


def test_paths_of_devices() -> None:
    paths = "/dev/vdb, /dev/disk/by-id/nvme-eui.00_1:2+3=4@5-part1"
    assert len(scenario(paths).devices) == 2


def test_a_busy_mount_keeps_no_other_one(
    programs: Callable[[str, str], Path], tmp_path: Path
) -> None:
    programs("tac", "echo '/dev/rbd0 /t/mnt/busy x'; echo '/dev/rbd1 /t/mnt/free x'")
    programs("umount", f'[ "$1" != /t/mnt/busy ] && echo "$1" >> {tmp_path}/log')
    programs("rbd", f'echo "$@" >> {tmp_path}/log')
    text = f"set -eu\nSUDO=\n{rbd_images.unmount_below('/t/mnt')}"
    done = subprocess.run(["sh", "-c", text], check=False)
    assert done.returncode != 0
    assert (tmp_path / "log").read_text() == "/t/mnt/free\ndevice unmap /dev/rbd1\n"


class Failing:
    """A benchmark whose initialize fails, and whose cleanup says that a mount is busy."""

    def __init__(self, error: BaseException) -> None:
        self.error, self.cleaned = error, 0

    def initialize(self) -> None:
        raise self.error

    def cleanup(self) -> None:
        self.cleaned += 1
        raise HostError("c0", "free", "target is busy", "")


def test_a_failed_initialize_is_cleaned_up_and_what_stays_is_said(tmp_path: Path) -> None:
    failing: Any = Failing(RunError("no mkfs"))
    nothing: Any = None
    with pytest.raises(RunError, match=r"no mkfs; .*target is busy"):
        measure.attempt(nothing, failing, nothing, tmp_path, healthy=True)
    assert failing.cleaned == 1
    ended: Any = Failing(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        measure.attempt(nothing, ended, nothing, tmp_path, healthy=True)


def test_a_client_that_cannot_be_freed_fails_and_its_directories_still_go() -> None:
    gone = []

    def refuse(*_: Any) -> None:
        raise HostError("c0", "free", "target is busy", "")

    native: Any = NativeBenchmark.__new__(NativeBenchmark)
    native.scenario = scenario("/dev/x")
    native.site = SimpleNamespace(tmp_dir="/t", clients=("c0",))
    native.remote = SimpleNamespace(run=refuse)
    native.run_dir = "/t/run"
    native._common = SimpleNamespace(clean_remote_dir=gone.append)
    with pytest.raises(HostError, match="target is busy"):
        native.cleanup()
    assert gone == ["/t/run"]

"""Two virtual machines: that they are what a campaign needs, and that nothing stays of them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from real_labs import running_lab, start_lab

from cbt_crypto.errors import RunError
from cbt_crypto.hosts import marked_processes
from cbt_crypto.lab import access, lifecycle, vm
from cbt_crypto.lab.shape import Kind, Lab, Shape, lab_dir

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]

NAME = f"vm-test-{os.getpid()}"
SHAPE = Shape(kind=Kind.VM, nodes=2, disks=2, disk_size=2**30, memory=2**30, cpus=1)


@pytest.fixture(scope="module")
def two() -> Iterator[Lab]:
    with running_lab(NAME, SHAPE) as started:
        yield started


def on(lab: Lab, index: int, script: str) -> str:
    return access.run(lab, lab.nodes[index], script).strip()


def test_every_node_reaches_every_other_by_name(two: Lab) -> None:
    for index in (0, 1):
        names = on(two, index, "pdsh -S -w node0,node1 hostname")
        assert sorted(names.splitlines()) == ["node0: node0", "node1: node1"]


def test_clocks_are_kept_together(two: Lab) -> None:
    on(two, 1, "chronyc waitsync 60 0.05 0 1 > /dev/null")
    assert on(two, 1, "chronyc tracking").splitlines()[0].endswith("(node0)")


def test_a_guest_knows_whether_its_processor_is_emulated(two: Lab) -> None:
    virtualization = {"tcg": "qemu", "kvm": "kvm"}[two.accelerator]
    assert on(two, 0, "systemd-detect-virt") == virtualization


def test_disks_are_found_by_partition_and_by_serial_number(two: Lab) -> None:
    shown = on(two, 1, "lsblk --noheadings --list --bytes --output SERIAL,TYPE,SIZE | sort")
    assert [line.split() for line in shown.splitlines() if "osd-device" in line] == [
        ["osd-device-0", "disk", str(2**30)],
        ["osd-device-1", "disk", str(2**30)],
    ]
    on(two, 1, "for n in 0 1; do test -b /dev/disk/by-partlabel/osd-device-$n-data; done")


def test_what_is_written_to_a_disk_is_in_its_file_here(two: Lab) -> None:
    disk = two.node_dir(two.nodes[1]) / "disks" / "osd-device-1"
    assert disk.stat().st_blocks * 512 < 2**26
    on(two, 1, "echo a-pattern-of-this-test | dd of=/dev/disk/by-partlabel/osd-device-1-data "
               "conv=fsync status=none")  # fmt: skip
    with disk.open("rb") as file:
        assert b"a-pattern-of-this-test" in file.read(4 * 2**20)


def test_dm_crypt_is_real_and_keeps_its_flags(two: Lab) -> None:
    table = on(
        two, 0,
        """
        device=/dev/disk/by-partlabel/osd-device-0-data
        head -c 64 /dev/urandom > /dev/shm/key
        cryptsetup luksFormat -q --type luks2 --sector-size 4096 --pbkdf pbkdf2 \
            --pbkdf-force-iterations 1000 --key-file /dev/shm/key $device
        cryptsetup open --perf-no_read_workqueue --perf-no_write_workqueue \
            --key-file /dev/shm/key $device proved
        dmsetup table proved
        cryptsetup close proved
        rm /dev/shm/key
        """,
    )  # fmt: skip
    assert " crypt aes-xts-plain64 " in table
    assert table.endswith(" 3 no_read_workqueue no_write_workqueue sector_size:4096")


def test_nothing_stays_when_it_is_down(two: Lab) -> None:
    assert marked_processes.of_lab(two.directory)
    lifecycle.down(NAME)
    assert marked_processes.of_lab(two.directory) == []
    assert not two.directory.exists()
    for node in two.nodes:
        with socket.socket() as connection:
            assert connection.connect_ex((node.ssh_host, node.ssh_port)) != 0


def test_what_a_killed_start_leaves_is_cleared() -> None:
    name = f"{NAME}-killed"
    program = "from cbt_crypto.cli import cbt_crypto; cbt_crypto()"
    command = [sys.executable, "-c", program, "lab", "up", "--name", name, "--memory", "512M"]
    starting = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not marked_processes.of_lab(lab_dir(name)):
        assert starting.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    starting.kill()
    starting.wait()
    assert marked_processes.of_lab(lab_dir(name))
    assert lifecycle.down(name) is True
    assert marked_processes.of_lab(lab_dir(name)) == []
    assert not lab_dir(name).exists()


def test_a_port_that_is_taken_meanwhile_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"{NAME}-port"
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        monkeypatch.setattr(vm, "free_tcp_ports", lambda count: [port] * count)
        with pytest.raises(RunError, match=rf"node0 ended while it started: .*127\.0\.0\.1:{port}"):
            start_lab(name, SHAPE.model_copy(update={"nodes": 1}))
    assert marked_processes.of_lab(lab_dir(name)) == []
    lifecycle.down(name)

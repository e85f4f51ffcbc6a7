"""Two virtual machines: that they are what a campaign needs."""

from __future__ import annotations

import stat

import psutil
import pytest

from cbt_crypto.hosts import marked_processes
from cbt_crypto.lab import access
from cbt_crypto.lab.shape import Lab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]


def on(lab: Lab, index: int, script: str) -> str:
    return access.run(lab, lab.nodes[index], script).strip()


def test_every_node_reaches_every_other_by_name(two: Lab) -> None:
    for index in (0, 1):
        names = on(two, index, "pdsh -S -w node0,node1 hostname")
        assert sorted(names.splitlines()) == ["node0: node0", "node1: node1"]


def test_nobody_else_is_on_their_network(two: Lab) -> None:
    """Frames pass sockets without a name; loopback leads to each node's sshd."""
    processes = [psutil.Process(pid) for pid in marked_processes.of_lab(two.directory)]
    reached = [end.laddr for process in processes for end in process.net_connections("inet")]
    assert {tuple(address) for address in reached} == {
        (node.ssh_host, node.ssh_port) for node in two.nodes
    }
    assert stat.S_IMODE(two.directory.stat().st_mode) == 0o700


def test_clocks_are_kept_together(two: Lab) -> None:
    on(two, 1, "chronyc waitsync 60 0.05 0 1 > /dev/null")
    assert on(two, 1, "chronyc tracking").splitlines()[0].endswith("(node0)")


def test_a_guest_knows_whether_its_processor_is_emulated(two: Lab) -> None:
    virtualization = {"tcg": "qemu", "kvm": "kvm"}[two.accelerator]
    assert on(two, 0, "systemd-detect-virt") == virtualization


def test_disks_are_found_by_partition_and_by_serial_number(two: Lab) -> None:
    shown = on(two, 1, "lsblk --noheadings --list --bytes --output SERIAL,TYPE,SIZE | sort")
    assert [line.split() for line in shown.splitlines() if "osd-device" in line] == [
        [f"osd-device-{number}", "disk", str(two.shape.disk_size)] for number in range(3)
    ]
    on(two, 1, "for n in 0 1 2; do test -b /dev/disk/by-partlabel/osd-device-$n-data; done")


def test_what_is_written_to_a_disk_is_in_its_file_here(two: Lab) -> None:
    disk = two.node_dir(two.nodes[1]) / "disks" / "osd-device-1"
    assert disk.stat().st_blocks * 512 < two.shape.disk_size
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

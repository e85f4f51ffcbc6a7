"""Devices that LVM, MD, multipath, bcache or a loop uses: no campaign takes one, or what is on it.

By the kernel and tools of a virtual machine. Even with `wipe: true`, as that is for one device.
What is mounted is read-only: ext4 would go on writing what mkfs leaves to it.
"""

from __future__ import annotations

import base64
import json
import re
import struct
import uuid
from collections.abc import Iterator, Mapping, Sequence

import pytest

from cbt_crypto.hosts.devices import destroy, lvm_and_md
from cbt_crypto.lab import access
from cbt_crypto.lab.shape import Lab
from cbt_crypto.run import devices

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]

DIR = "/var/lib/stacked"
ON_OTHERS = "is on other devices, as a volume or an array is; name the device below it"


def bcache_superblock() -> bytes:
    """What bcache-tools, which the image lacks, write 4 KiB into a backing device."""
    magic = bytes.fromhex("c68573f64e1a45ca8265f57f48ba6d81")
    head = struct.pack("<QQ16s16s16s32s", 8, 1, magic, uuid.uuid4().bytes, bytes(16), b"")
    rest = struct.pack("<2Q3Q40xQHHHHIHH", *[0] * 5, 0, 1, 0, 0, 0, 0, 0, 0)
    crc = (1 << 64) - 1
    for byte in head + rest:
        crc ^= byte << 56
        for _ in range(8):
            crc = (crc << 1) ^ (0x42F0E1EBA9EA3693 if crc >> 63 else 0)
            crc &= (1 << 64) - 1
    return struct.pack("<Q", crc ^ ((1 << 64) - 1)) + head + rest


@pytest.fixture(scope="module")
def loops(two: Lab) -> Iterator[list[str]]:
    """Two loop devices over files of the first machine."""
    made = "modprobe loop; mkdir -p /root/stacked; cd /root/stacked; for n in 0 1\n"
    made += "do truncate -s 24M $n; losetup --find --show $n; done"
    found = on(two, made).split()
    yield found
    on(two, f"losetup --detach {' '.join(found)}; rm -r /root/stacked {DIR}")


def on(two: Lab, script: str) -> str:
    return access.run(two, two.head, f"SUDO=\n{script}").strip()


def asked(two: Lab, paths: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Device -> what the check says of it, and a claim that may wipe it; none may be touched."""
    digest = f"cat {' '.join(paths)} | md5sum"
    identities = json.loads(on(two, destroy.identify(DIR, paths)))
    notes = {
        path: {"identity": known, "uuid": str(uuid.uuid4()), "wipe": True}
        for path, known in identities.items()
    }
    lines = [devices.recording(DIR, {"": notes})[""], f"before=$({digest})"]
    for path in paths:
        lines.append(f"echo '@{path}'\n({destroy.look(DIR, path, 'osd_devices')}) | head -n 1")
        lines.append(f"({destroy.claim(DIR, [path])}) 2>&1 && echo CLAIMED || :")
    lines.append(f'echo @; [ "$before" = "$({digest})" ] && echo untouched')
    *parts, last = on(two, "\n".join(lines)).split("@")[1:]
    assert last.strip() == "untouched"
    told = {}
    for part in parts:
        path, look, *claim = part.splitlines()
        told[path] = (look, "\n".join(claim))
    return told


def refused(told: Mapping[str, tuple[str, str]], pattern: str, *paths: str) -> None:
    for path in paths:
        look, claim = told[path]
        assert re.match(pattern, look), (path, look)
        assert re.match(f"{re.escape(path)} {pattern}", claim) and "CLAIMED" not in claim, claim


def without_wipe(two: Lab, path: str, content: str) -> None:
    """What is not in use is known by what is on it."""
    said = on(two, destroy.look(DIR, path, "osd_devices")).splitlines()[0]
    assert said.startswith("signature ") and content in said, said


def test_lvm(two: Lab, loops: list[str]) -> None:
    on(two, f"vgcreate -q stacked {' '.join(loops)}; lvcreate -q -y -L 32M -n striped -i 2 stacked")
    volume = on(two, "readlink -f /dev/stacked/striped")
    try:
        told = asked(two, [*loops, volume, "/dev/stacked/striped"])
        refused(told, r"is in use by dm-\d+", *loops)
        refused(told, ON_OTHERS, volume, "/dev/stacked/striped")
        on(two, "vgchange -q -an stacked")
        without_wipe(two, loops[1], "LVM2_member")
    finally:
        on(two, f"vgremove -q -f -y stacked; wipefs -qa {' '.join(loops)}")


def test_a_group_of_ours_whose_note_is_lost(two: Lab, loops: list[str]) -> None:
    """LVM makes it known again when a host starts: no cleanup could empty the device then."""
    device, group = loops[0], "cbt-crypto-lost"
    identities = json.loads(on(two, destroy.identify(DIR, [device])))
    notes = {device: {"identity": identities[device], "uuid": str(uuid.uuid4()), "wipe": True}}
    made = lvm_and_md.Group(group, device, (lvm_and_md.LogicalVolume("osd.0-db", "8M"),))
    steps = [
        f"mkdir -p -m 700 {DIR}; touch {DIR}/.cbt-crypto",
        devices.recording(DIR, {"": notes})[""],
        destroy.claim(DIR, [device]),
        lvm_and_md.make_volumes([made], f"{DIR}/volumes"),
        f"rm {DIR}/volumes; [ -e /dev/{group}/osd.0-db ]",
        destroy.empty(DIR, [device]),
        f"! vgs {group} 2> /dev/null && ! blkid -p {device}",
    ]
    on(two, "set -eu\n" + "\n".join(f"(\n{step}\n)" for step in steps))


@pytest.mark.parametrize("metadata", ["0.90", "1.2"])
def test_md(two: Lab, loops: list[str], metadata: str) -> None:
    """Metadata 0.90 is at the end of the members, whose beginning is that of the array."""
    both = " ".join(loops)
    on(two, f"mdadm --create /dev/md77 --run --quiet --assume-clean --level=1 --raid-devices=2 "
            f"--metadata={metadata} {both} 2>&1; echo ,8M | sfdisk -q /dev/md77; "
            "udevadm settle")  # fmt: skip
    try:
        told = asked(two, [*loops, "/dev/md77", "/dev/md77p1"])
        refused(told, "is in use by md77", *loops)
        refused(told, ON_OTHERS, "/dev/md77", "/dev/md77p1")
        on(two, "mdadm --stop --quiet /dev/md77")
        without_wipe(two, loops[0], "linux_raid_member")
    finally:
        on(two, f"mdadm --stop --quiet /dev/md77 || :; mdadm --zero-superblock {both}; "
                f"wipefs -qa {both}")  # fmt: skip


def test_bcache(two: Lab, loops: list[str]) -> None:
    block = base64.b64encode(bcache_superblock()).decode()
    on(two, f"modprobe bcache; echo {block} | base64 -d | "
            f"dd of={loops[0]} bs=4096 seek=1 conv=notrunc,fsync status=none; "
            f"echo {loops[0]} > /sys/fs/bcache/register; udevadm settle")  # fmt: skip
    try:
        told = asked(two, [loops[0], "/dev/bcache0"])
        refused(told, "is in use by bcache0", loops[0])
        refused(told, ON_OTHERS, "/dev/bcache0")
    finally:
        on(two, "echo 1 > /sys/block/bcache0/bcache/stop; for n in $(seq 50); "
                "do [ -e /sys/block/bcache0 ] || break; sleep 0.2; done")  # fmt: skip
    without_wipe(two, loops[0], "bcache")
    on(two, f"wipefs -qa {loops[0]}")


def test_multipath(two: Lab) -> None:
    """Two paths to one drive, first with device-mapper's multipath on both, then without it."""
    on(two, "modprobe -a dm-multipath dm-round-robin; modprobe scsi_debug dev_size_mb=24 "
            "add_host=2 vpd_use_hostno=0; udevadm settle")  # fmt: skip
    try:
        found = on(two, "grep -l scsi_debug /sys/block/sd*/device/model | cut -d / -f 4").split()
        one, other = (f"/dev/{name}" for name in found)
        table = f"0 $(blockdev --getsz {one}) multipath 0 0 1 1 round-robin 0 2 1 {one} 1 {other} 1"
        on(two, f'dmsetup create mpathx --uuid mpath-36 --table "{table}"; udevadm settle')
        told = asked(two, [one, other, "/dev/mapper/mpathx"])
        refused(told, r"is in use by dm-\d+", one, other)
        refused(told, ON_OTHERS, "/dev/mapper/mpathx")
        on(two, f"dmsetup remove --retry mpathx; mkfs.ext4 -q {one}; mount -o ro {one} /mnt")
        known = json.loads(on(two, destroy.identify(DIR, [one, other])))
        assert known[one]["wwn"] == known[other]["wwn"]
        try:
            told = asked(two, [other])
            refused(told, f"is {one} as well, which is mounted", other)
        finally:
            on(two, "umount /mnt")
    finally:
        on(two, "dmsetup remove --retry mpathx 2> /dev/null || :; modprobe -r scsi_debug")


def test_a_loop_over_what_is_mounted(two: Lab, loops: list[str]) -> None:
    on(two, f"mkfs.ext4 -q {loops[0]}; mount -o ro {loops[0]} /mnt")
    over = on(two, f"losetup --find --show {loops[0]}")
    try:
        refused(asked(two, [over]), ON_OTHERS, over)
    finally:
        on(two, f"losetup --detach {over}; umount /mnt; wipefs -qa {loops[0]}")

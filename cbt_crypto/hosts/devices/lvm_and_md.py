"""Logical volumes and MD arrays that a campaign makes on drives, and removes by a note."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from cbt_crypto.hosts import shell
from cbt_crypto.hosts.devices import destroy
from cbt_crypto.hosts.requirement import Requirement
from cbt_crypto.hosts.site import Drive

#: Prints ok where volumes can be made.
REQUIREMENT = shell.call(__file__, "can_make_volumes")


@dataclass(frozen=True)
class LogicalVolume:
    """A volume; without a `size`, as `truncate` takes it, it gets an equal share of its group."""

    name: str
    size: Optional[str] = None


@dataclass(frozen=True)
class Group:
    """The volumes on one device."""

    name: str
    device: str
    volumes: tuple[LogicalVolume, ...]


def group_name(directory: str, host: str, device: str) -> str:
    """A name that no other campaign gives; hosts of a lab may share a kernel."""
    text = f"{directory}@{host}:{device}"
    return f"cbt-crypto-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def is_ours(device: str) -> bool:
    """Whether a device is a volume of a campaign's, by its name."""
    return device.startswith("/dev/cbt-crypto-")


def path(group: str, volume: str) -> str:
    """The device of a volume."""
    return f"/dev/{group}/{volume}"


def make_volumes(groups: Sequence[Group], notes: str) -> str:
    """Shell text that makes groups with their volumes, noted in the file `notes`."""
    lines = []
    for group in groups:
        lines.append(f"group {group.name} {shlex.quote(group.device)}")
        lines += _volumes(group)
    return _as_root("\n".join(lines), notes)


def _volumes(group: Group) -> list[str]:
    return [
        f"by_size {group.name} {volume.name} {volume.size}"
        if volume.size
        else f"share {group.name} {volume.name} {len(group.volumes) - before}"
        for before, volume in enumerate(group.volumes)
    ]


def remove_volumes(notes: str) -> str:
    """Shell text that removes every group that the file `notes` names; safe to repeat."""
    return _as_root("remove_noted", notes)


def _as_root(text: str, notes: str) -> str:
    # The notes on groups stand beside those on devices.
    noted = f"NOTED_GROUPS={shlex.quote(notes)}"
    return destroy.proved(os.path.dirname(notes), [noted, shell.calling(__file__, text)])


def make_array(drive: Drive, members: Sequence[str], tmp_dir: str) -> str:
    """Shell text that makes the drive's array of `members`."""
    words = (str(drive.array), str(drive.chunk_kib), *members)
    return destroy.proved(tmp_dir, [shlex.join(("make_array", *words))])


def stop(drive: Drive, tmp_dir: str) -> str:
    """Shell text after which there is neither array nor superblock. Safe to repeat."""
    if not drive.array:
        return ""
    return destroy.proved(tmp_dir, [shlex.join(("stop_array", drive.array, *drive.devices))])


def requirement(drive: Drive) -> Requirement:
    """mdadm, and a kernel with RAID-0."""
    return Requirement("MD RAID-0", (drive.host,), shell.call(__file__, "can_make_arrays"))

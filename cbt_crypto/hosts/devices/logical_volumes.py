"""LVM's logical volumes on a device that several OSDs share: made by size, removed by a note.

Each group of volumes is noted in a file of the campaign before it is made, so that a killed run
can be cleared. What stands in no note is never touched.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from cbt_crypto.hosts.devices import destroy

#: Prints ok where volumes can be made.
REQUIREMENT = """
PATH=$PATH:/usr/sbin:/sbin
$SUDO modprobe -q dm-mod 2>/dev/null || :
if ! command -v vgcreate > /dev/null; then echo "LVM's commands are missing; install lvm2"
elif ! $SUDO dmsetup targets 2>/dev/null | grep -q '^linear '; then
    echo "its kernel, $(uname -r), has no device-mapper; take another, or a lab of virtual machines"
else echo ok; fi
""".strip()

_MAKE = """
group() {
    echo "$1 $2" >> "$NOTED_GROUPS"
    make_group "$1" "$2"
}
by_size() { lvcreate -q -y -W y -n "$2" -L "$3" "$1" > /dev/null; }
share() { lvcreate -q -y -W y -n "$2" -l $(( $(free "$1") / $3 )) "$1" > /dev/null; }
free() { vgs --noheadings -o vg_free_count "$1"; }
"""

_REMOVE = """
[ -e "$NOTED_GROUPS" ] || exit 0
while read -r group device; do
    remove_group "$group" "$device" < /dev/null
done < "$NOTED_GROUPS"
rm -f "$NOTED_GROUPS"
"""


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


def make(groups: Sequence[Group], notes: str) -> str:
    """Shell text that makes groups with their volumes, noted in the file `notes`."""
    lines = [_MAKE]
    for group in groups:
        lines.append(f"group {group.name} {shlex.quote(group.device)}")
        lines += _volumes(group)
    return _as_root("\n".join(lines), notes)


def _volumes(group: Group) -> list[str]:
    left = len(group.volumes)
    lines = []
    for volume in group.volumes:
        how = f"by_size {group.name} {volume.name} {volume.size}" if volume.size else (
            f"share {group.name} {volume.name} {left}"
        )  # fmt: skip
        lines.append(how)
        left -= 1
    return lines


def remove(notes: str) -> str:
    """Shell text that removes every group that the file `notes` names; safe to repeat."""
    return _as_root(_REMOVE, notes)


def _as_root(text: str, notes: str) -> str:
    # The notes on groups stand beside those on devices.
    return destroy.groups(os.path.dirname(notes), f"NOTED_GROUPS={shlex.quote(notes)}\n{text}")

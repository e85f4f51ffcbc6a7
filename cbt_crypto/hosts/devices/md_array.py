"""MD RAID-0 arrays, made for a measurement and removed after it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from cbt_crypto.hosts.devices import destroy
from cbt_crypto.hosts.requirement import Requirement
from cbt_crypto.hosts.site import Drive

_CHECK = """
PATH=$PATH:/usr/sbin:/sbin
command -v mdadm > /dev/null || { echo 'mdadm is missing; install mdadm'; exit 0; }
$SUDO modprobe -q raid0 2> /dev/null || :
if [ -e /proc/mdstat ] && grep -q raid0 /proc/mdstat; then echo ok
else echo "its kernel, $(uname -r), has no MD RAID-0; take another kernel, or a lab's machine"; fi
"""


def make(drive: Drive, members: Sequence[str], tmp_dir: str) -> str:
    """Shell text that makes the drive's array of `members`."""
    words = (str(drive.array), str(drive.chunk_kib), *members)
    return destroy.array(tmp_dir, f"make_array {' '.join(map(shlex.quote, words))}")


def stop(drive: Drive, tmp_dir: str) -> str:
    """Shell text after which there is neither array nor superblock. Safe to repeat."""
    if not drive.array:
        return ""
    words = map(shlex.quote, (drive.array, *drive.devices))
    return destroy.array(tmp_dir, f"stop_array {' '.join(words)}")


def requirement(drive: Drive) -> Requirement:
    """mdadm, and a kernel with RAID-0."""
    return Requirement("MD RAID-0", (drive.host,), _CHECK.strip())

"""MD RAID-0 arrays, made for a measurement and removed after it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from cbt_crypto.hosts.requirement import Requirement
from cbt_crypto.hosts.site import Drive

# The link may come a moment after mdadm returns: udev makes it where it runs.
_MAKE = """
PATH=$PATH:/usr/sbin:/sbin
$SUDO modprobe -q raid0 2> /dev/null || :
$SUDO mdadm --create "$array" --level=0 --raid-devices=$# --chunk="$chunk" --metadata=1.2 \\
    --run --quiet "$@" 2>&1 | grep -v 'array .* started' || :
n=0; while [ ! -b "$array" ] && [ $n -lt 50 ]; do sleep 0.1; n=$((n + 1)); done
[ -b "$array" ] || { echo "mdadm made no $array" >&2; exit 1; }
"""

# A stopped array leaves superblocks on its members, where these are not mappings that are gone.
_STOP = """
PATH=$PATH:/usr/sbin:/sbin
if [ -e "$array" ]; then $SUDO mdadm --stop --quiet "$(readlink -f "$array")"; fi
$SUDO rm -f "$array"
for member; do
    [ ! -b "$member" ] || $SUDO mdadm --zero-superblock --quiet "$member" 2> /dev/null || :
done
"""

_CHECK = """
PATH=$PATH:/usr/sbin:/sbin
command -v mdadm > /dev/null || { echo 'mdadm is missing; install mdadm'; exit 0; }
$SUDO modprobe -q raid0 2> /dev/null || :
if [ -e /proc/mdstat ] && grep -q raid0 /proc/mdstat; then echo ok
else echo "its kernel, $(uname -r), has no MD RAID-0; take another kernel, or a lab's machine"; fi
"""


def make(drive: Drive, members: Sequence[str]) -> str:
    """Shell text that makes the drive's array of `members`."""
    return f"{_call(drive, members)}chunk={drive.chunk_kib}\n{_MAKE.strip()}"


def stop(drive: Drive) -> str:
    """Shell text after which there is neither array nor superblock. Safe to repeat."""
    return _call(drive, drive.devices) + _STOP.strip() if drive.array else ""


def requirement(drive: Drive) -> Requirement:
    """mdadm, and a kernel with RAID-0."""
    return Requirement("MD RAID-0", (drive.host,), _CHECK.strip())


def _call(drive: Drive, members: Sequence[str]) -> str:
    words = " ".join(map(shlex.quote, members))
    return f"set -- {words}\narray={shlex.quote(drive.array or '')}\n"

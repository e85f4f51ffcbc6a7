"""Keeps people's data: a device is written to only when it is unused and carries nothing of theirs.

Whatever cannot be found out counts against the device.
"""

from __future__ import annotations

import fnmatch
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Optional, Union

from cbt_crypto.hosts.requirement import Requirement
from cbt_crypto.hosts.site import Site

_FUNCTION = r"""
look_at() {
    [ -b "$1" ] || { echo 'is not a block device there; mend '"$3"; return; }
    real=$(readlink -f "$1"); holders=/sys/class/block/$(basename "$real")/holders
    mounted=$(lsblk -nro MOUNTPOINT "$real" 2>/dev/null) ||
        { echo 'cannot be looked at with lsblk; install util-linux'; return; }
    [ -z "$(echo "$mounted" | tr -d '\n')" ] ||
        { echo 'is mounted, or a part of it is; name another device'; return; }
    for place in / /boot /boot/efi /usr /var; do
        source=$(findmnt -nvo SOURCE -T $place 2>/dev/null) || continue
        ! lsblk -snro PATH "$source" 2>/dev/null | grep -qxF -e "$real" ||
            { echo 'holds the system; name another device'; return; }
    done
    found=$($SUDO wipefs -n -O TYPE,USAGE,LABEL -p "$real" 2>&1) ||
        { echo "cannot be read ($found); use a root user, or give yours sudo"; return; }
    found=$(echo "$found" | sed '/^#/d')
    if [ -e "$2" ] && grep -qxF -e "$1" "$2"; then
        # A killed run of ours noted it before writing to it, and may have left a mapping on it.
        found=$(echo "$found" | grep ',filesystem,' | grep -v ',cbt-crypto$')
    else
        [ -z "$(ls "$holders" 2>/dev/null)" ] ||
            { echo 'is in use by' $(ls "$holders") '; name another device'; return; }
        # The kernel gives nobody the only use of a device that is in use in any other way.
        $SUDO python3 -I -c "$only_use" "$real" 2>/dev/null ||
            { echo 'is in use; name another device'; return; }
        [ "$(lsblk -nro NAME "$real" | wc -l)" = 1 ] || found="partitions
$found"
        label=$($SUDO head -c 22 "$real" | tr -d '\000')
        [ "$label" != 'bluestore block device' ] || found="bluestore
$found"
    fi
    [ -z "$found" ] && echo ok || echo signature $(echo "$found" | cut -d, -f1)
}
only_use='import os, sys; os.open(sys.argv[1], os.O_RDONLY | os.O_EXCL)'
"""


@dataclass(frozen=True)
class DeviceGuard(Requirement):
    """One device of one host. `script` prints ok, `signature` and what it found, or a sentence."""

    device: str = ""
    wipe: bool = False

    def judge(self, output: str) -> Optional[str]:
        """None for a free device; and for one with signatures that may be wiped."""
        first = output.strip().partition("\n")[0]
        if first == "ok":
            return None
        if not first.startswith("signature "):
            return f"{self.device} {first or 'cannot be looked at'}"
        if self.wipe:
            return None
        found = first.removeprefix("signature ")
        return (
            f"{self.device} carries data ({found}); name another device, or say wipe: true, "
            f"or wipe: [{self.device}], in the cluster section to have it overwritten"
        )


def device_guards(site: Site, wipe: Union[bool, Sequence[str]]) -> list[Requirement]:
    """A requirement for each block device that the campaign names.

    `wipe`: whether devices that carry data may be overwritten, or patterns of those that may.
    """
    pairs = [
        (osd.host, device)
        for osd in site.osds
        for device in (None if osd.is_file else osd.disk or osd.device, osd.db_device)
        if device
    ]
    site = replace(site, wipe=wipe if isinstance(wipe, bool) else tuple(wipe))
    guards = [device_guard(site, host, device) for host, device in dict.fromkeys(pairs)]
    drives = {(drive.host, device) for drive in site.drives for device in drive.devices}
    return [
        *guards,
        *(device_guard(site, host, device, "drives") for host, device in sorted(drives - {*pairs})),
    ]


def device_guard(site: Site, host: str, device: str, key: str = "osd_devices") -> DeviceGuard:
    """The requirement for one device, which `key` of the file names."""
    noted = shlex.quote(f"{site.tmp_dir}/devices")
    script = f"{_FUNCTION}look_at {shlex.quote(device)} {noted} {key}"
    wipe = _may_wipe(site.wipe, device)
    return DeviceGuard(f"device {device}", (host,), script, device=device, wipe=wipe)


def _may_wipe(wipe: Union[bool, Sequence[str]], device: str) -> bool:
    if isinstance(wipe, bool):
        return wipe
    return any(fnmatch.fnmatchcase(device, pattern) for pattern in wipe)

"""Keeps people's data: a device is written to only when it is unused and carries nothing of theirs.

Whatever cannot be found out counts against the device.
"""

from __future__ import annotations

import fnmatch
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Optional, Union

from cbt_crypto.hosts.devices import destroy
from cbt_crypto.hosts.requirement import Fact, Requirement
from cbt_crypto.hosts.site import Site

#: What the next boot may give to another drive.
_BY_ORDER = re.compile(
    r"/dev/(sd[a-z]+\d*|vd[a-z]+\d*|xvd[a-z]+\d*|hd[a-z]+\d*|nvme\d+n\d+(p\d+)?)"
)
#: Before the most bytes that a device discards at once; 0 where it cannot.
_DISC_MAX = "discards "


@dataclass(frozen=True)
class DeviceGuard(Fact):
    """One device of one host. `script` prints ok, `signature` and what it found, or a sentence."""

    device: str = ""
    wipe: bool = False
    #: Whether it is to be discarded before each deployment.
    discard: bool = False

    def shown(self, output: str) -> str:
        """Whether it will do."""
        return "no" if self.judge(output) else "ok"

    def advice(self, output: str) -> Optional[str]:
        """Names that the kernel gives by the order in which it finds drives are no names."""
        if not _BY_ORDER.fullmatch(self.device) or self.judge(output):
            return None
        stable = output.partition("\nstable ")[2].partition("\n")[0]
        if not stable:
            return None
        return f"{self.device} may be another drive after a reboot; name it {stable}, which stays"

    def judge(self, output: str) -> Optional[str]:
        """None for a free device; and for one with signatures that may be wiped."""
        first = output.strip().partition("\n")[0]
        if first == "ok":
            return self._undiscardable(output)
        if not first.startswith("signature "):
            return f"{self.device} {first or 'cannot be looked at'}"
        if self.wipe:
            return self._undiscardable(output)
        signature = first.removeprefix("signature ")
        return (
            f"{self.device} carries data ({signature}); name another device, or say wipe: true, "
            f"or wipe: [{self.device}], in the cluster section to have it overwritten"
        )

    def _undiscardable(self, output: str) -> Optional[str]:
        """Why it cannot be discarded where it is to be; None where it can."""
        most = output.partition("\n" + _DISC_MAX)[2].partition("\n")[0].strip()
        if not self.discard or (most.isdigit() and int(most)):
            return None
        return (
            f"{self.device} cannot discard (lsblk says DISC-MAX {most or 'nothing'}); leave "
            "discard out of the cluster section, or name another device"
        )


def device_guards(site: Site, wipe: Union[bool, Sequence[str]]) -> list[Requirement]:
    """A requirement for each block device that the campaign names.

    `wipe`: whether devices that carry data may be overwritten, or patterns of those that may.
    """
    pairs = [(osd.host, device) for osd in site.osds for device in osd.devices]
    site = replace(site, wipe=wipe if isinstance(wipe, bool) else tuple(wipe))
    guards = [device_guard(site, host, device) for host, device in dict.fromkeys(pairs)]
    drives = {(drive.host, device) for drive in site.drives for device in drive.devices}
    return [
        *guards,
        *(device_guard(site, host, device, "drives") for host, device in sorted(drives - {*pairs})),
    ]


def device_guard(site: Site, host: str, device: str, key: str = "osd_devices") -> DeviceGuard:
    """The requirement for one device, which `key` of the file names."""
    script = destroy.look(site.tmp_dir, device, key)
    if site.discard:
        most = f"$(lsblk -bdnro DISC-MAX {shlex.quote(device)} 2> /dev/null)"
        script += f'\necho "{_DISC_MAX}{most}"'
    wipe, discard = _may_wipe(site.wipe, device), site.discard
    return DeviceGuard(
        f"device {device}", (host,), script, "devices", device=device, wipe=wipe, discard=discard
    )


def _may_wipe(wipe: Union[bool, Sequence[str]], device: str) -> bool:
    if isinstance(wipe, bool):
        return wipe
    return any(fnmatch.fnmatchcase(device, pattern) for pattern in wipe)

"""Brings drives into a configuration without any Ceph, one at a time, and frees them again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Optional

from cbt_crypto.cluster_overlays.base import Transition
from cbt_crypto.cluster_overlays.stack import Stack, leftovers
from cbt_crypto.hosts.devices import md_array
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.shell import sequence
from cbt_crypto.hosts.site import Drive, HostScripts, Site


class DriveStage:
    """The drives of a campaign. At most one is in use, so different ones may share devices."""

    def __init__(
        self, remote: Remote, site: Site, drives: Sequence[Drive], known: Sequence[Stack]
    ) -> None:
        """`known` are all stacks that this campaign may have laid over a drive."""
        self._remote = remote
        self._site = replace(site, osds=())
        self._drives = tuple(drives)
        self._known = tuple(known)
        self._in_use: Optional[Drive] = None

    def deploy(self, name: str, stack: Stack) -> None:
        """Free the drive that is in use, and bring this one into a configuration."""
        self.free()
        drive = next(drive for drive in self._drives if drive.name == name)
        self._in_use = drive
        site = replace(self._site, clients=(drive.host,), drives=(drive,))
        self._run({drive.host: _claim(drive, self._site.tmp_dir)}, "note the devices")
        if drive.array and not drive.encrypts_members:
            self._run({drive.host: md_array.make(drive, drive.devices)}, "make the RAID-0")
        self._run(stack.before_osds(site), "prepare the drive")
        if drive.array and drive.encrypts_members:
            members = [stack.drive_device(drive, part) for part in drive.parts]
            self._run({drive.host: md_array.make(drive, members)}, "make the RAID-0")
        self._run(stack.after_osds(site), "finish the drive")

    def change(self, stack: Stack, how: Transition) -> None:
        """Go over to another configuration of the drive in use, whose data stay."""
        if self._in_use is not None and how is not Transition.NONE:
            site = replace(self._site, drives=(self._in_use,))
            self._run(stack.after_osds(site), "change the configuration")

    def check_health(self) -> None:
        """Nothing to wait for: what a cluster's method of this name does has no meaning here."""

    def free(self) -> None:
        """Undo what was done to the drive in use; nothing when there is none."""
        if self._in_use is not None:
            self._run(undo((self._in_use,), self._known, self._site), "free the drive")
            self._in_use = None

    def _run(self, scripts: HostScripts, what: str) -> None:
        self._remote.run(scripts, what, 300)


def undo(drives: Sequence[Drive], stacks: Sequence[Stack], site: Site) -> HostScripts:
    """Scripts after which nothing of ours is on the drives, whoever left it there.

    `stacks` are all that may have been laid over a drive. Safe to repeat.
    """
    overlays = leftovers(stacks, replace(site, osds=(), drives=tuple(drives)))
    scripts = {}
    for host in dict.fromkeys(drive.host for drive in drives):
        own = [drive for drive in drives if drive.host == host]
        texts = [_unmount(drive) for drive in own]
        # An array over members that are encrypted goes before their mappings, another after its.
        texts += [md_array.stop(drive) for drive in own if drive.encrypts_members]
        texts += [overlays[host]] if host in overlays else []
        texts += [md_array.stop(drive) for drive in own if not drive.encrypts_members]
        scripts[host] = sequence(texts, keep_going=True)
    return scripts


def _claim(drive: Drive, tmp_dir: str) -> str:
    """Note the devices as ours, so that a killed run can be cleared; make the drive's folder."""
    noted = shlex.quote(f"{tmp_dir}/devices")
    lines = [f"mkdir -p {shlex.quote(drive.mount_point)}"]
    lines += [f"echo {shlex.quote(device)} >> {noted}" for device in drive.devices]
    return "\n".join(lines)


def _unmount(drive: Drive) -> str:
    place = shlex.quote(drive.mount_point)
    return f"! mountpoint -q {place} || $SUDO umount {place}"

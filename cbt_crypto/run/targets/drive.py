"""Brings drives into a configuration without any Ceph, one at a time, and frees them again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Optional

from typing_extensions import override

from cbt_crypto.benchmarks.base import Scenario, Volume
from cbt_crypto.cluster_overlays import base
from cbt_crypto.cluster_overlays.base import Overlay, StorageFacts, Transition, Verdict
from cbt_crypto.cluster_overlays.stack import Stack, leftovers
from cbt_crypto.engine.contract import Cluster
from cbt_crypto.errors import HostError
from cbt_crypto.hosts.devices import destroy, lvm_and_md
from cbt_crypto.hosts.remote import Remote, kill_script
from cbt_crypto.hosts.shell import sequence
from cbt_crypto.hosts.site import Drive, HostOutputs, HostScripts, Site, name_of
from cbt_crypto.plan.file.cluster import ClusterSection, Variant, at
from cbt_crypto.plan.layout import cell_site, drives_of, site_of
from cbt_crypto.plan.steps import Deploy
from cbt_crypto.run.targets.base import Target


class DriveTarget:
    """The drives of a campaign. At most one is in use, so different ones may share devices."""

    can_be_rebuilt = True
    #: Each rebuild is one of its own.
    deployment: Optional[str] = None
    variant: Variant = ()
    conf_text = ""

    def __init__(
        self, remote: Remote, section: ClusterSection, stacks: Mapping[str, Stack], cluster: Target
    ) -> None:
        self._remote = remote
        self._section = section
        self._drives = drives_of(section)
        self._cluster = cluster
        #: The last is in use; somebody keeps those before it busy.
        self._prepared: list[Drive] = []
        self._is_cleared = False
        self.site: Site = site_of(section)
        self.begin(stacks)

    def begin(self, stacks: Mapping[str, Stack]) -> None:
        """Learn all stacks that this campaign may lay over a drive."""
        self._stacks = dict(stacks)
        self.stack = next(iter(self._stacks.values()))

    @property
    def cluster(self) -> Cluster:
        """None is deployed; its directories are where the drive's host has its files."""
        return self._cluster.cluster

    def transition(self, step: Deploy) -> Transition:
        """As the plan has it."""
        return step.how

    def change_to(self, step: Deploy, how: Transition) -> None:
        """Prepare the drive that the step names, or change the one in use, whose data stay."""
        stack = self._stacks[step.configuration]
        if how is Transition.REBUILD:
            if not self._is_cleared:
                self.cluster.shutdown()
                self.cluster.cleanup()
                self._is_cleared = True
            self._deploy(str(step.drive), stack)
        elif self._prepared and how is not Transition.NONE:
            site = replace(self.site, osds=(), drives=(self._prepared[-1],))
            self._run(stack.after_osds(site), "change the configuration")
        self.stack = stack

    def _deploy(self, name: str, stack: Stack) -> None:
        """Free the drive that was in use, and bring this one into a configuration."""
        drive = next(drive for drive in self._drives if drive.name == name)
        self._free_for(drive)
        self._prepared.append(drive)
        site = replace(self.site, osds=(), clients=(drive.host,), drives=(drive,))
        self._run({drive.host: _claim(drive, self.site)}, "claim the devices")
        if drive.array and not drive.encrypts_members:
            array = lvm_and_md.make_array(drive, drive.devices, site.tmp_dir)
            self._run({drive.host: array}, "make the RAID-0")
        self._run(stack.before_osds(site), "prepare the drive")
        if drive.array and drive.encrypts_members:
            parts = drive.parts.items()
            members = [stack.drive_device(drive, part, device) for part, device in parts]
            array = lvm_and_md.make_array(drive, members, site.tmp_dir)
            self._run({drive.host: array}, "make the RAID-0")
        self._run(stack.after_osds(site), "finish the drive")

    def _free_for(self, wanted: Drive) -> None:
        """Free all others. One that somebody keeps busy is in the way of what has its devices."""
        for drive in tuple(self._prepared):
            # What a cell that failed left is in the file system, and no other shall run beside it.
            self._run({drive.host: kill_script()}, "end what a cell left")
            undone = undo((drive,), tuple(self._stacks.values()), replace(self.site, osds=()))
            try:
                self._run(undone, "free the drive")
            except HostError:
                if drive.host == wanted.host and not {*drive.devices}.isdisjoint(wanted.devices):
                    raise
            else:
                self._prepared.remove(drive)

    def measure_on(self, scenario: Scenario) -> Site:
        """The scenario's drive and its host."""
        return cell_site(at(self._section), scenario, self.stack)

    def check_health(self) -> None:
        """Nothing to wait for: a drive has no health of a cluster's kind."""

    def end(self, made: Sequence[Volume], run: str) -> None:
        """Free the drives: what tears the cluster's directories down does it too."""
        self._cluster.end(made, run)

    def _run(self, scripts: HostScripts, what: str) -> None:
        self._remote.run(scripts, what, 300)


def undo(drives: Sequence[Drive], stacks: Sequence[Stack], site: Site) -> HostScripts:
    """Scripts after which nothing of ours is on the drives, under any of `stacks`. Repeatable."""
    overlays = leftovers(stacks, replace(site, osds=(), drives=tuple(drives)))
    scripts = {}
    for host in dict.fromkeys(drive.host for drive in drives):
        of_host = [drive for drive in drives if drive.host == host]
        places = [shlex.quote(drive.mount_point) for drive in of_host]
        texts = [f"! mountpoint -q {place} || $SUDO umount {place}" for place in places]
        # An array over members that are encrypted goes before their mappings, another after its.
        before = [lvm_and_md.stop(d, site.tmp_dir) for d in of_host if d.encrypts_members]
        after = [lvm_and_md.stop(d, site.tmp_dir) for d in of_host if not d.encrypts_members]
        texts += [*before, *([overlays[host]] if host in overlays else []), *after]
        devices = dict.fromkeys(device for drive in of_host for device in drive.devices)
        texts.append(destroy.empty(site.tmp_dir, devices))
        scripts[host] = sequence(texts, keep_going=True)
    return scripts


def _claim(drive: Drive, site: Site) -> str:
    """Claim the devices, so that a killed run can be cleared; make the drive's folder."""
    claim = destroy.claim(site.tmp_dir, drive.devices, site.discard)
    return f"mkdir -p {shlex.quote(drive.mount_point)}\n{claim}"


def script(drives: Sequence[Drive]) -> str:
    """Shell text that prints the facts of one host's drives, for `parse`."""
    parameters = {
        name_of(drive): {"devices": drive.parts, "path": drive.path, "note": drive.note}
        | ({"members": list(drive.devices)} if drive.array else {})
        for drive in drives
    }
    return base.storage_script(parameters)


class DriveProof(Overlay):
    """Not in the file: it is judged in every cell that works on a drive."""

    name: ClassVar[str] = "drive"

    @override
    def probe(self, site: Site) -> HostScripts:
        return {drive.host: script([drive]) for drive in site.drives}

    @override
    def judge(self, site: Site, before: HostOutputs, after: HostOutputs) -> Verdict:
        looks = [base.storage_of(site, outputs) for outputs in (before, after)]
        (drive,) = site.drives
        first, last = (look.get(name_of(drive)) for look in looks)
        fault = _made_of(drive, first) or _made_of(drive, last) or _used(last)
        seen, on = dict(last or {}), ", ".join(drive.devices)
        why = fault or f"{seen['note']['program']} had {drive.path} open, which is on {on}"
        return Verdict(fault is None, f"drive {drive.name} on {drive.host}: {why}", seen)


def _made_of(drive: Drive, facts: Optional[StorageFacts]) -> Optional[str]:
    """What contradicts that it is made of the devices that the file names."""
    if not facts:
        return "its host did not say what it is made of"
    if facts["path"] is None:
        return f"{drive.path} is not there"
    layers = facts["opened"][facts["path"]]
    numbers = {layer["device"] for layer in layers}
    missing = [part for part, number in facts["named"].items() if number not in numbers]
    if missing:
        return f"{drive.path} is not on {drive.parts[missing[0]]}"
    arrays = [layer["array"] for layer in layers if "array" in layer]
    wanted = f"raid0 of {len(drive.devices)}, chunks of {drive.chunk_kib} KiB"
    if drive.array is not None and arrays != [wanted]:
        return f"is {' on '.join(arrays) or 'no array'} and not {wanted}"
    absent = [number for number in facts.get("members", {}).values() if number not in numbers]
    return "lacks a member of its array" if absent else None


def _used(facts: Optional[StorageFacts]) -> Optional[str]:
    """What contradicts that the measuring process worked on it."""
    note = (facts or {}).get("note") or {}
    if not note:
        return "no process was seen that has it open"
    if note["devices"] != [(facts or {})["path"]]:
        return f"{note['program']} had {', '.join(note['devices'])} open"
    return None

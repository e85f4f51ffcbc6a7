"""What a drive under measurement is made of, and that the measuring process had it open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Optional

from typing_extensions import override

from cbt_crypto.cluster_overlays.base import Overlay, Verdict
from cbt_crypto.hosts.devices.storage import Facts, look, parse
from cbt_crypto.hosts.site import Drive, HostOutputs, HostScripts, Site


def script(drives: Sequence[Drive]) -> str:
    """Shell text that prints the facts of one host's drives, for `parse`."""
    parameters = {
        drive.name: {"devices": drive.parts, "path": drive.path, "note": drive.note}
        | ({"members": list(drive.devices)} if drive.array else {})
        for drive in drives
    }
    return look(parameters)


class DriveProof(Overlay):
    """Not in the file: it is judged in every cell that works on a drive."""

    name: ClassVar[str] = "drive"

    @override
    def probe(self, site: Site) -> HostScripts:
        return {drive.host: script([drive]) for drive in site.drives}

    @override
    def judge(self, site: Site, before: HostOutputs, after: HostOutputs) -> Verdict:
        looks = [parse(outputs.values()) for outputs in (before, after)]
        (drive,) = site.drives
        first, last = (look.get(drive.name) for look in looks)
        fault = _made_of(drive, first) or _made_of(drive, last) or _used(last)
        reason = f"drive {drive.name} on {drive.host}: {fault or _claim(drive, last)}"
        return Verdict(fault is None, reason, dict(last or {}))


def _made_of(drive: Drive, facts: Optional[Facts]) -> Optional[str]:
    """What contradicts that it is made of the devices that the file names."""
    if not facts:
        return "its host did not say what it is made of"
    if facts["path"] is None:
        return f"{drive.path} is not there"
    layers = facts["opened"][facts["path"]]
    numbers = {layer["device"] for layer in layers}
    missing = [part for part, number in facts["named"].items() if number not in numbers]
    if missing:
        return f"{drive.path} does not lie on {drive.parts[missing[0]]}"
    arrays = [layer["array"] for layer in layers if "array" in layer]
    wanted = f"raid0 of {len(drive.devices)}, chunks of {drive.chunk_kib} KiB"
    if drive.array is not None and arrays != [wanted]:
        return f"is {' on '.join(arrays) or 'no array'} and not {wanted}"
    absent = [number for number in facts.get("members", {}).values() if number not in numbers]
    return "lacks a member of its array" if absent else None


def _used(facts: Optional[Facts]) -> Optional[str]:
    """What contradicts that the measuring process worked on it."""
    note = (facts or {}).get("note") or {}
    if not note:
        return "nobody saw a process have it open"
    if note["devices"] != [(facts or {})["path"]]:
        return f"{note['program']} had {', '.join(note['devices'])} open"
    return None


def _claim(drive: Drive, facts: Optional[Facts]) -> str:
    note = (facts or {})["note"]
    return f"{note['program']} had {drive.path} open, which lies on {', '.join(drive.devices)}"

"""What OSDs really have open, and whether dm-crypt encrypts it as it should."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Optional, Union

from cbt_crypto.cluster_overlays import base
from cbt_crypto.cluster_overlays.base import Seen, StorageFacts, Watch
from cbt_crypto.cluster_overlays.luks import mapping as luks_mapping
from cbt_crypto.cluster_overlays.luks import opal as luks_opal
from cbt_crypto.cluster_overlays.luks.mapping import CryptTable, OpalTable, crypt_of
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.devices import storage_on_host
from cbt_crypto.hosts.site import Drive, HostOutputs, Osd, Site, name_of

#: A mapping as it should be.
Wanted = Union[CryptTable, OpalTable]


#: Stands between what `storage_on_host` printed and what drives say of their own encryption.
_OPAL = "@opal"


def script(site: Site, host: str, with_opal: bool = False) -> str:
    """Shell text that prints the facts of one host's OSDs and drives, with OPAL's on demand."""
    parameters = _asked(site, host)
    if not with_opal:
        return base.storage_script(parameters)
    parts = {name: of_carrier["devices"] for name, of_carrier in parameters.items()}
    of_drives = shell.python(luks_opal.source(), {"parts": parts})
    return f"{base.storage_script(parameters)}\n{shell.section(_OPAL, of_drives)}"


def _asked(site: Site, host: str) -> dict[str, dict[str, Any]]:
    asked: dict[str, dict[str, Any]] = {
        name_of(osd): {
            "pid_file": osd.pid_file,
            "devices": luks_mapping.devices_of(osd),
            "file": osd.device if osd.is_file else None,
        }
        for osd in site.osds_of(host)
    }
    asked |= {
        name_of(drive): {"devices": drive.parts, "path": drive.path, "note": drive.note}
        for drive in site.drives
        if drive.host == host
    }
    return asked


def watch(site: Site, host: str) -> Watch:
    """The tables of all mappings below one host's OSDs and drives."""
    return Watch(shell.program(storage_on_host), _asked(site, host))


def seen_fault(seen: Mapping[str, Sequence[Seen]]) -> Optional[str]:
    """The first mapping whose table was another one for a while, or which was suspended."""
    for host, looks in seen.items():
        for seen_once in looks:
            for name, mappings in seen_once.value.items():
                for mapping, now in mappings.items():
                    if now != looks[0].value.get(name, {}).get(mapping):
                        return f"{name} on {host}: {_changed(mapping, now)}"
    return None


def _changed(mapping: str, now: Mapping[str, Any]) -> str:
    """For a sentence. Only what was suspended can get another table, and is resumed with it."""
    times = now["resumed"]
    if not times:
        return f"{mapping} had another table for a part of the cell"
    often = "once" if times == 1 else f"{times} times"
    return f"{mapping} was changed, or suspended, during the cell ({often} or more)"


def parse(site: Site, outputs: HostOutputs) -> dict[str, StorageFacts]:
    """All OSDs' and drives' facts by their names, without hosts that printed something else."""
    facts: dict[str, StorageFacts] = {}
    for host, output in outputs.items():
        layers, _, drives = output.partition(_OPAL)
        of_host = base.storage_of(site, {host: layers})
        try:
            opal = json.loads(drives or "{}")
            of_host = {
                name: {**look, "opal": opal[name]} if opal else look
                for name, look in of_host.items()
            }
            facts.update(of_host)
        except (ValueError, TypeError, KeyError):
            continue
    return facts


def plain_fault(facts: StorageFacts) -> Optional[str]:
    """What contradicts that nothing below the OSD is encrypted."""
    for layers in facts["opened"].values():
        for layer in filter(luks_mapping.may_encrypt, layers):
            if layer["table"] is None:
                return f"it is on {layer['mapping']}, and dmsetup does not say what that is"
            return f"it is on {layer['mapping']}, which is encrypted"
    return None


def encrypted_fault(
    osd: Osd, facts: StorageFacts, wanted: Wanted, parts: Sequence[str] = ("data", "db")
) -> Optional[str]:
    """What contradicts that these parts of the OSD, and no others, are encrypted as wanted."""
    opened = dict(facts["opened"])
    for part, device in facts["named"].items():
        if part in parts:
            name = luks_mapping.mapping_of(osd, part, device).name
            fault = _mapping_fault(name, opened, wanted.on(device))
        else:
            fault = _plain_part_fault(part, opened.pop(device, None))
        if fault:
            return fault
    others = sorted(layers[0].get("mapping", device) for device, layers in opened.items())
    return f"it has {', '.join(others)} open as well" if others else None


def found_fault(
    facts: StorageFacts,
    wanted: CryptTable,
    claimed: Optional[Collection[str]],
    parts: Sequence[str],
) -> Optional[str]:
    """What contradicts encryption of another deployer's OSD, by the `claimed` options or all."""
    part_of = {device: part for part, device in facts["named"].items()}
    if "db" in parts and facts["named"].get("db", "") not in ("", *facts["opened"]):
        return "its DB device is none that it has open"
    for device, layers in facts["opened"].items():
        part = part_of.get(device, "data")
        if part not in parts:
            if fault := _plain_part_fault(part, layers):
                return fault
            continue
        for layer in _first_crypts(layers):
            table = crypt_of(layer)
            if table is None:
                part = f" on {layer.get('name')}" if any(map(crypt_of, layers)) else ""
                return f"it has {layers[0].get('name')} open, below which is no dm-crypt{part}"
            if difference := table.difference_from(wanted.on(table.device).over(layer), claimed):
                return f"its dm-crypt on {table.device} {difference}"
    return None


def _first_crypts(layers: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """On each way down from the first layer the one that encrypts all of it, else the lowest."""
    by_device, ways = {layer.get("device"): layer for layer in layers}, [layers[0]]
    while ways:
        layer = ways.pop()
        lines = (layer.get("table") or "").splitlines()
        lower = [by_device[on] for on in (layer.get("on") or "").split() if on in by_device]
        if lower and not (lines and all(line.split()[2:3] == ["crypt"] for line in lines)):
            ways += lower
        else:
            yield layer


def _mapping_fault(name: str, opened: dict[str, Any], wanted: Wanted) -> Optional[str]:
    for device, layers in opened.items():
        if layers[0].get("mapping") == name:
            del opened[device]
            fault = wanted.fault(layers[0])
            return f"{name} {fault}" if fault else None
    return f"it does not have {name} open"


def _plain_part_fault(part: str, layers: Optional[Sequence[Mapping[str, Any]]]) -> Optional[str]:
    if layers is None:
        return f"it does not have its {part} device open itself"
    encrypted = [layer["mapping"] for layer in layers if luks_mapping.may_encrypt(layer)]
    return f"its {part} device is on {encrypted[0]}, which is encrypted" if encrypted else None


def encrypted_drive_fault(drive: Drive, facts: StorageFacts, wanted: Wanted) -> Optional[str]:
    """What contradicts that all of the drive, above or below its array, is encrypted as wanted."""
    layers = [layer for below in facts["opened"].values() for layer in below]
    mappings = {layer["mapping"]: layer for layer in layers if "mapping" in layer}
    for part, device in facts["named"].items():
        name = luks_mapping.mapping_of_drive(drive, part, device).name
        if name not in mappings:
            return f"it is not on {name}"
        fault = wanted.on(device).fault(mappings[name])
        if fault:
            return f"{name} {fault}"
    return None

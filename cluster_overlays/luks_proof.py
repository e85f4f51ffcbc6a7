"""What OSDs really have open, and whether dm-crypt encrypts it as it should."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from cbt_crypto import on_host
from cbt_crypto.cluster_overlays import storage_on_host
from cbt_crypto.cluster_overlays.crypt_table import CryptTable, crypt_of, may_encrypt
from cbt_crypto.cluster_overlays.luks_mapping import devices_of, mapping_of
from cbt_crypto.site import HostOutputs, Osd

#: What `storage_on_host` found at one OSD.
Facts = Mapping[str, Any]


def script(osds: Sequence[Osd]) -> str:
    """Shell text that prints the facts of one host's OSDs."""
    asked = {
        f"osd.{osd.id}": {
            "pid_file": osd.pid_file,
            "devices": devices_of(osd),
            "file": osd.device if osd.is_file else None,
        }
        for osd in osds
    }
    return on_host.python(inspect.getsource(storage_on_host), asked)


def parse(outputs: HostOutputs) -> dict[str, Facts]:
    """The facts of all OSDs by their names, without those of hosts that printed something else."""
    facts: dict[str, Facts] = {}
    for output in outputs.values():
        try:
            facts.update(json.loads(output))
        except (ValueError, TypeError):
            continue
    return facts


def closed_fault(facts: Optional[Facts]) -> Optional[str]:
    """Why there is nothing to judge."""
    if not facts:
        return "its host did not say what it has open"
    if not facts["running"]:
        return "it is not running"
    return None if facts["opened"] else "it has no device open"


def plain_fault(facts: Facts) -> Optional[str]:
    """What contradicts that nothing below the OSD is encrypted."""
    for layers in facts["opened"].values():
        for layer in filter(may_encrypt, layers):
            if layer["table"] is None:
                return f"it lies on {layer['mapping']}, and dmsetup does not say what that is"
            return f"it lies on {layer['mapping']}, which is encrypted"
    return None


def encrypted_fault(osd: Osd, facts: Facts, wanted: CryptTable) -> Optional[str]:
    """What contradicts that the OSD is on its mappings, and these encrypt as wanted."""
    tops = {layers[0].get("mapping", device): layers for device, layers in facts["opened"].items()}
    for part, device in facts["named"].items():
        name = mapping_of(osd, part, device).name
        if name not in tops:
            return f"it does not have {name} open"
        found = crypt_of(tops.pop(name)[0])
        difference = found.difference_from(wanted.on(device)) if found else "is not dm-crypt"
        if difference:
            return f"{name} {difference}"
    return f"it has {', '.join(sorted(tops))} open as well" if tops else None

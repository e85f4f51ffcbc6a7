"""LUKS on self-encrypting drives (OPAL): what it takes of a drive, and what proves it.

Written from cryptsetup's manual and linux/sed-opal.h; never run on such a drive.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Optional

from typing_extensions import override

from cbt_crypto.cluster_overlays.luks import mapping as luks_mapping
from cbt_crypto.cluster_overlays.luks import opal_on_host
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.keys_on_host import KEY_DIRECTORIES
from cbt_crypto.hosts.requirement import Judged

#: How an overlay may use a drive's own encryption: under dm-crypt's, or in place of it.
HwOpal = Literal["with_dm_crypt", "only"]
#: Option of the file -> what cryptsetup calls it, and the segment that it writes into the header.
FORMATTING: Mapping[str, str] = {"with_dm_crypt": "--hw-opal", "only": "--hw-opal-only"}
SEGMENTS: Mapping[str, str] = {"with_dm_crypt": "hw-opal-crypt", "only": "hw-opal"}

# OPAL_FL_*: supported and locking supported; enabled; locked or hidden behind a shadow MBR.
_SUPPORTED, _ENABLED, _IN_USE = 0x03, 0x04, 0x04 | 0x08 | 0x10


@dataclass(frozen=True)
class OpalDrive(Judged):
    """One device that is to encrypt by itself."""

    device: str = ""

    @override
    def judge(self, output: str) -> Optional[str]:
        facts = _parsed(output)
        if not facts or "error" in facts:
            last_words = facts.get("error") or (output.strip().splitlines() or ["no answer"])[-1]
            return f"{self.device} cannot be asked about OPAL ({last_words}); name the drive itself"
        if facts["config"] is False:
            kernel = facts["kernel"]
            return (
                f"its kernel, {kernel}, has no CONFIG_BLK_SED_OPAL; take one that has, for hw_opal"
            )
        if facts["flags"] & _SUPPORTED != _SUPPORTED:
            return (
                f"{self.device} is not a self-encrypting drive (OPAL); not on this machine: leave "
                "hw_opal out"
            )
        if facts["partition"]:
            return (
                f"{self.device} is a partition, and tearing hw_opal down resets the whole drive; "
                "name the drive"
            )
        if facts["namespaces"]:
            others = ", ".join(facts["namespaces"])
            return (
                f"{self.device} is on one drive with {others}, and tearing hw_opal down resets the "
                "whole drive; name a drive with one namespace"
            )
        if facts["flags"] & _IN_USE and not facts["ours"]:
            return (
                f"{self.device} has its OPAL locking enabled by somebody; name another, or erase "
                f"it all with cryptsetup erase --hw-opal-factory-reset {self.device} and the PSID "
                "that is printed on its label"
            )
        return None

    @override
    def advice(self, output: str) -> Optional[str]:
        if self.judge(output):
            return None
        return (
            f"{self.device}: if its OPAL admin key is lost, as by a power cut before the campaign "
            "tears it down, only the PSID that is printed on its label resets the drive, which "
            "erases it all; have it at hand"
        )


def requirement(host: str, mapping: luks_mapping.CryptMapping) -> OpalDrive:
    """The requirement that a mapping's device is a drive with OPAL that nobody has locked."""
    keys = [f"{directory}/{mapping.name}.opal" for directory in KEY_DIRECTORIES]
    script = shell.python(source(), {"drive": mapping.device, "keys": keys})
    return OpalDrive(f"OPAL of {mapping.device}", (host,), script, device=mapping.device)


def source() -> str:
    """The program that talks to drives."""
    return shell.program(opal_on_host)


def drive_fault(facts: Mapping[str, Any], parts: Sequence[str], hw_opal: HwOpal) -> Optional[str]:
    """What contradicts that these parts are encrypted by the drives themselves."""
    for part in parts:
        answer = facts.get("opal", {}).get(part)
        if not answer or "error" in answer:
            return f"the drive of its {part} did not say whether it encrypts"
        if answer["flags"] & (_SUPPORTED | _ENABLED) != _SUPPORTED | _ENABLED:
            return f"OPAL locking is not enabled on the drive of its {part}"
        if answer["segments"] != [SEGMENTS[hw_opal]]:
            segments = ", ".join(answer["segments"]) or "none"
            return f"the header of its {part} has segments {segments} and not {SEGMENTS[hw_opal]}"
    return None


def _parsed(output: str) -> Mapping[str, Any]:
    try:
        facts = json.loads(output)
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}

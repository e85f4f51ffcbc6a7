"""What a drive is, read from the device itself: model and firmware. No serial number is kept."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Any

from cbt_crypto.hosts import shell
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.site import Drive, HostScripts

_BEGIN = "@device"
#: A partition's model is that of its disk. NVMe and SCSI name the firmware's file differently.
_FUNCTION = r"""
describe() {
    real=$(readlink -f "$1" || echo "$1"); block=/sys/class/block/$(basename "$real")
    [ ! -e "$block/partition" ] || block=$(readlink -f "$block/..")
    echo "@device $1"
    for name in model firmware_rev rev; do
        [ ! -r "$block/device/$name" ] || echo "$name $(cat "$block/device/$name")"
    done
    echo "rotational $(cat "$block/queue/rotational" 2> /dev/null || :)"
    echo "size_bytes $(lsblk -bdnro SIZE "$real" 2> /dev/null || :)"
}
"""


def scripts(drives: Iterable[Drive]) -> HostScripts:
    """Shell text for each host that describes its drives' devices."""
    devices: dict[str, list[str]] = {}
    for drive in drives:
        devices.setdefault(drive.host, []).extend(drive.devices)
    return {
        host: _FUNCTION
        + "\n".join(f"describe {shlex.quote(d)}" for d in dict.fromkeys(devices_of_host))
        for host, devices_of_host in devices.items()
    }


def parse(output: str) -> dict[str, dict[str, Any]]:
    """Device -> model, firmware, whether it is rotational, size in bytes; None where not known."""
    by_device = {}
    for line, text in shell.sections(output, _BEGIN):
        device, lines = line.removeprefix(_BEGIN).strip(), text.splitlines()
        facts = {key: value.strip() for key, _, value in (line.partition(" ") for line in lines)}
        size = facts.get("size_bytes", "")
        by_device[device] = {
            "model": facts.get("model") or None,
            "firmware": facts.get("firmware_rev") or facts.get("rev") or None,
            "rotational": {"0": False, "1": True}.get(facts.get("rotational", "")),
            "size_bytes": int(size) if size.isdigit() else None,
        }
    return by_device


def collect(remote: Remote, drives: Iterable[Drive]) -> dict[str, Any]:
    """The `drives` of environment.json: what the file says of each, and what its devices say."""
    drives = tuple(drives)
    outputs = remote.run(scripts(drives), "describe the drives", 60)
    facts = {host: parse(output) for host, output in outputs.items()}
    return {
        drive.name: {
            "host": drive.host,
            "plp": drive.plp,
            "devices": {d: facts.get(drive.host, {}).get(d, {}) for d in drive.devices},
        }
        for drive in drives
    }

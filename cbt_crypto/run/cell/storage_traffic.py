"""What a cell's reads and writes were of: bytes at every OSD's devices, and hits of its cache.

Read before the clients start and when they have ended, so it is of their ramp too.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Optional

from cbt_crypto.hosts import admin_socket, shell
from cbt_crypto.hosts.admin_socket import Question
from cbt_crypto.hosts.devices import traffic_on_host
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.site import HostOutputs, HostScripts, Site

_SOCKETS, _DEVICES = "@cbt-crypto-sockets", "@cbt-crypto-devices"
#: Counters of `perf dump`; those of the buffers begin with `bluestore_` in 16.2, no longer in 18.2.
_COUNTERS = {
    "buffer_hit_bytes": ("bluestore/buffer_hit_bytes", "bluestore/bluestore_buffer_hit_bytes"),
    "buffer_miss_bytes": ("bluestore/buffer_miss_bytes", "bluestore/bluestore_buffer_miss_bytes"),
    "onode_hits": ("bluestore/onode_hits", "bluestore/bluestore_onode_hits"),
    "onode_misses": ("bluestore/onode_misses", "bluestore/bluestore_onode_misses"),
    "client_read_bytes": ("osd/op_out_bytes",),
    "client_written_bytes": ("osd/op_in_bytes",),
}

#: OSD -> what it had counted since it started.
Reading = Mapping[str, Mapping[str, Any]]


class Counter:
    """Reads before a cell and after it, whoever runs the cell's clients."""

    def __init__(self, site: Site) -> None:
        """Touches nothing."""
        # Also at OSDs that idle meanwhile.
        self._site = replace(site, osds=(*site.osds, *site.idle))
        self._began = self._ended = 0.0
        #: What had passed before the cell and after it.
        self.readings: Sequence[Reading] = ()

    def scripts(self) -> HostScripts:
        """Scripts of the next reading, of which `note` takes what they print."""
        self._ended = time.monotonic()
        return scripts(self._site)

    def note(self, printed: HostOutputs) -> None:
        """A reading was taken."""
        self._began = self._began or time.monotonic()
        self.readings = (*self.readings, parsed(self._site, printed))

    @property
    def seconds(self) -> float:
        """From the first reading until the second is asked for."""
        return self._ended - self._began

    def moved(self) -> dict[str, dict[str, Any]]:
        """What passed each OSD, or drive, between the two readings."""
        before, after = self.readings
        return between(before, after)


def scripts(site: Site) -> HostScripts:
    """Scripts that print what every OSD, or drive, has counted by now; for `parsed`."""
    return {host: _script(site, host) for host in site.storage_hosts}


def read(remote: Remote, site: Site) -> Reading:
    """The same, in a call of its own. Raises HostError."""
    asked = scripts(site)
    return parsed(site, remote.run(asked, "read what passed the drives", 120)) if asked else {}


def _script(site: Site, host: str) -> str:
    osds = site.osds_of(host)
    keep = tuple(path for paths in _COUNTERS.values() for path in paths)
    questions = [
        Question(f"osd.{osd.id}", osd.admin_socket, {"prefix": "perf dump"}, keep) for osd in osds
    ]
    carriers: dict[str, object] = {f"osd.{osd.id}": osd.pid_file for osd in osds}
    for drive in site.drives:
        if drive.host == host:
            carriers[f"drive {drive.name}"] = drive.devices
    devices = shell.python(shell.program(traffic_on_host), carriers)
    asked = shell.section(_SOCKETS, admin_socket.script(questions)) if osds else ""
    return asked + shell.section(_DEVICES, devices)


def parsed(site: Site, outputs: HostOutputs) -> dict[str, dict[str, Any]]:
    """By OSD, or drive, what both parts of `scripts` printed; without OSDs that lack one part."""
    by_carrier: dict[str, dict[str, Any]] = {}
    for host, output in outputs.items():
        parts = dict(shell.sections(output, _SOCKETS, _DEVICES))
        answers = admin_socket.parse({host: parts.get(_SOCKETS, "")}).values
        devices: Mapping[str, Any] = {}
        with contextlib.suppress(ValueError):
            devices = json.loads(parts.get(_DEVICES, ""))
        for osd in site.osds_of(host):
            name = f"osd.{osd.id}"
            told = devices.get(name, {})
            if name in answers and "error" not in told and told:
                by_carrier[name] = {"host": host, "counters": _counters(answers[name]), **told}
        for drive in site.drives:
            told = devices.get(f"drive {drive.name}", {})
            if drive.host == host and told and "error" not in told:
                by_carrier[f"drive {drive.name}"] = {"host": host, "counters": {}, **told}
    return by_carrier


def _counters(answer: Mapping[str, Any]) -> dict[str, int]:
    counters = {}
    for name, paths in _COUNTERS.items():
        value = next((answer[path] for path in paths if path in answer), None)
        if isinstance(value, int):
            counters[name] = value
    return counters


def between(before: Reading, after: Reading) -> dict[str, dict[str, Any]]:
    """What passed each OSD from one reading to the next, as cell.json has it.

    Without OSDs that only one reading has, or whose counters went back as the OSD was restarted.
    """
    passed = {}
    for name, last in after.items():
        first = before.get(name)
        moved = None if first is None else _difference(first, last)
        if moved is not None:
            passed[name] = {"host": last["host"], **moved}
    return passed


def _difference(first: Mapping[str, Any], last: Mapping[str, Any]) -> Optional[dict[str, Any]]:
    counters = {
        name: value - first["counters"].get(name, 0) for name, value in last["counters"].items()
    }
    if any(value < 0 for value in counters.values()):
        return None
    before = {layer["device"]: layer for layers in first["devices"] for layer in layers}
    devices = [
        [_moved(before[layer["device"]], layer) for layer in layers if layer["device"] in before]
        for layers in last["devices"]
    ]
    process = None
    if first["process"] and last["process"]:
        process = _moved(first["process"], last["process"])
    moved = {"counters": counters, "devices": devices, "process": process}
    if "cpu_ms" in first and "cpu_ms" in last:
        moved["cpu_ms"] = last["cpu_ms"] - first["cpu_ms"]
    return moved


def _moved(first: Mapping[str, Any], last: Mapping[str, Any]) -> dict[str, Any]:
    """The same with what was moved as differences; names and sizes are kept."""
    return {
        key: value - first[key] if key in ("read_bytes", "written_bytes") else value
        for key, value in last.items()
    }

"""What all OSDs of a run read and wrote together, and how much of it came from their memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from cbt_crypto.archive.documents import CellDocument, OsdStorage


@dataclass(frozen=True)
class StorageUse:
    """Bytes while the clients ran, their ramp included, all OSDs together.

    `hit` and `missed` are of reads, by BlueStore's buffers. `drive_read` and `drive_written` passed
    what OSDs have open, or their files; None where a host does not tell.
    """

    hit: int
    missed: int
    client_read: int
    client_written: int
    drive_read: Optional[int]
    drive_written: Optional[int]

    @property
    def from_memory_percent(self) -> Optional[float]:
        """The share of what was read that BlueStore had in its memory; None without reads."""
        served = self.hit + self.missed
        return 100 * self.hit / served if served else None


_COUNTED = ("buffer_hit_bytes", "buffer_miss_bytes", "client_read_bytes", "client_written_bytes")


def storage_use(cell: CellDocument) -> Optional[StorageUse]:
    """None where an OSD did not tell, or nobody asked."""
    osds = list(cell.storage.values())
    if not osds or any(name not in osd.counters for osd in osds for name in _COUNTED):
        return None
    if {osd.host for osd in osds} != set(cell.osd_hosts):
        return None
    hit, missed, read, written = (sum(osd.counters[n] for osd in osds) for n in _COUNTED)
    drives = _of_drives(cell.storage) or (None, None)
    return StorageUse(hit, missed, read, written, *drives)


def _of_drives(osds: Mapping[str, OsdStorage]) -> Optional[tuple[int, int]]:
    """Bytes read and written: at each device that is open, once; of OSDs on files by process."""
    found: dict[object, tuple[int, int]] = {}
    for name, osd in osds.items():
        tops = [layers[0] for layers in osd.devices if layers]
        for top in tops:
            found[osd.host, top.device] = (top.read_bytes, top.written_bytes)
        if not tops:
            if osd.process is None:
                return None
            found[name] = (osd.process.read_bytes, osd.process.written_bytes)
    return sum(r for r, _ in found.values()), sum(w for _, w in found.values())

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


@dataclass(frozen=True)
class IdleUse:
    """What the OSDs of other groups took on the same hosts, all together, while one was measured.

    `cpu_percent` is of one CPU, `own_cpu_percent` that of the measured OSDs; bytes are those that
    passed drives, or files.
    """

    osds: int
    cpu_percent: float
    own_cpu_percent: float
    drive_bytes_per_s: float
    own_drive_bytes_per_s: float


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


def idle_use(cell: CellDocument) -> Optional[IdleUse]:
    """None where no group idled, or an OSD did not tell."""
    seconds = next((osd.seconds for osd in cell.idle.values()), None)
    sides = [(_cpu_ms(side), _of_drives(side)) for side in (cell.idle, cell.storage)]
    (idle_ms, idle_bytes), (own_ms, own_bytes) = sides
    if not seconds or idle_ms is None or own_ms is None or not idle_bytes or not own_bytes:
        return None
    cpu, own_cpu = (ms / 10 / seconds for ms in (idle_ms, own_ms))
    return IdleUse(
        len(cell.idle), cpu, own_cpu, sum(idle_bytes) / seconds, sum(own_bytes) / seconds
    )


def _cpu_ms(osds: Mapping[str, OsdStorage]) -> Optional[int]:
    told = [osd.cpu_ms for osd in osds.values()]
    known = [ms for ms in told if ms is not None]
    return sum(known) if len(known) == len(told) else None


def times_overwritten(cell: CellDocument) -> Optional[float]:
    """How often all drives together had been written over before the cell; None where unknown."""
    drives = cell.overwritten.values()
    size = sum(drive.size_bytes for drive in drives)
    return sum(drive.written_bytes for drive in drives) / size if size else None


def _of_drives(osds: Mapping[str, OsdStorage]) -> Optional[tuple[int, int]]:
    """Bytes read and written: at each device that is open, once; of OSDs on files by process."""
    moved: dict[object, tuple[int, int]] = {}
    for name, osd in osds.items():
        tops = [layers[0] for layers in osd.devices if layers]
        for top in tops:
            moved[osd.host, top.device] = (top.read_bytes, top.written_bytes)
        if not tops:
            if osd.process is None:
                return None
            moved[name] = (osd.process.read_bytes, osd.process.written_bytes)
    return sum(r for r, _ in moved.values()), sum(w for _, w in moved.values())

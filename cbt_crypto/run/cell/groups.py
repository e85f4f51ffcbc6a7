"""Proof that a group of OSDs was measured by itself, where others stand beside it on one cluster.

Its pools must lie on its own OSDs and no others, by what the monitors say, and clients must have
moved nothing through the OSDs that idle, by what those count. What these took of processors and
drives is kept: that it is little is an assumption of the layout, which each cell tests.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Optional

from cbt_crypto.engine.contract import CellOutcome
from cbt_crypto.hosts.site import Site
from cbt_crypto.units import counted

#: Of the verdict in proof.json.
NAME = "group"
#: Bytes of clients that an idle OSD may move: what has to do with images, and no load.
BACKGROUND_BYTES = 1 << 20


def moved(site: Site, by_osd: Mapping[str, Mapping[str, Any]], seconds: float) -> CellOutcome:
    """What passed the OSDs, as cell.json has it: of those that were measured, and those that idled.

    `seconds` is the time between the two readings.
    """
    idle = {f"osd.{osd.id}" for osd in site.idle}
    outcome: CellOutcome = {
        "storage": {name: about for name, about in by_osd.items() if name not in idle}
    }
    if site.group:
        outcome["group"] = site.group
        outcome["slices"] = site.slices
        outcome["idle"] = {
            name: {**about, "seconds": round(seconds, 3)}
            for name, about in by_osd.items()
            if name in idle
        }
    return outcome


def judged(
    proof: Mapping[str, Any],
    site: Site,
    placed: Mapping[str, Collection[int]],
    outcome: CellOutcome,
) -> dict[str, Any]:
    """The contents of proof.json with the verdict on the group; as they were where there is none.

    `placed`: pool -> the OSDs that its placement groups are on.
    """
    if not site.group:
        return dict(proof)
    own_pools = {name: sorted(osds) for name, osds in placed.items() if _is_own(site, name)}
    idle = outcome.get("idle", {})
    client_bytes = {name: _client_bytes(about) for name, about in idle.items()}
    fault = _misplaced(site, own_pools) or _busy(site, client_bytes)
    own_osds = ", ".join(f"osd.{osd.id}" for osd in site.osds)
    total = sum(size or 0 for size in client_bytes.values())
    idle_osds = counted(len(site.idle), "idle OSD")
    claim = f"its pools lie on {own_osds} alone, and {idle_osds} moved {total} bytes of clients"
    verdict = {
        "overlay": NAME,
        "present": True,
        "options": {"name": site.group},
        "proved": fault is None,
        "reason": f"{site.group}: {fault or claim}",
        "evidence": {"pools": own_pools, "client_bytes_of_idle_osds": client_bytes},
    }
    return {
        **proof,
        "proved": bool(proof["proved"]) and fault is None,
        "overlays": [*proof["overlays"], verdict],
    }


def _is_own(site: Site, pool: str) -> bool:
    return pool.endswith(f".{site.group}")


def _misplaced(site: Site, pools: Mapping[str, Collection[int]]) -> Optional[str]:
    """What contradicts that its pools are on its own OSDs."""
    if not pools:
        return "nobody said where its pools lie"
    own_osds = {osd.id for osd in site.osds}
    for name, osds in pools.items():
        strange = sorted(set(osds) - own_osds)
        if strange or not osds:
            where = ", ".join(f"osd.{osd}" for osd in strange) or "no OSD"
            return f"the pool {name} lies on {where}, which is not the group's"
    return None


def _busy(site: Site, client_bytes: Mapping[str, Optional[int]]) -> Optional[str]:
    """What contradicts that the others idled."""
    for osd in site.idle:
        name = f"osd.{osd.id}"
        size = client_bytes.get(name)
        if size is None:
            return f"{name}, which was to idle, did not say what it moved"
        if size > BACKGROUND_BYTES:
            return f"clients moved {size} bytes through {name}, which was to idle"
    return None


def _client_bytes(about: Mapping[str, Any]) -> Optional[int]:
    counters = about.get("counters", {})
    sizes = [counters.get(key) for key in ("client_read_bytes", "client_written_bytes")]
    return None if None in sizes else sum(sizes)

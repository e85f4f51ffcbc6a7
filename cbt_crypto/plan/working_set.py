"""Whether what clients read is larger than the OSDs' memory, so that drives are measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Optional

from cbt_crypto.plan.cells import Cell
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.file.cluster import ClusterSection, PoolProfile, Variant, at
from cbt_crypto.plan.layout import site_of
from cbt_crypto.plan.side_by_side import memory_target
from cbt_crypto.units import counted, size_text


def copies(cluster: ClusterSection, pool: Optional[PoolProfile]) -> float:
    """Bytes on OSDs for each byte of a volume in a pool."""
    code = cluster.erasure_profiles.get((pool and pool.erasure_profile) or "")
    if code is not None:
        return (code.erasure_k + code.erasure_m) / code.erasure_k
    return 1 if pool is None else pool.replication


def memory_warnings(campaign: Campaign, cells: Iterable[Cell]) -> Iterator[str]:
    """A sentence for each scenario whose reads the memory of OSDs we deploy can serve."""
    warned: dict[str, None] = {}
    asked: set[tuple[str, int, Variant]] = set()
    for cell in cells:
        # The cells of all rounds, and of all configurations, have this in common.
        key = cell.scenario.name, int(cell.parameters.get("vol_size", 0)), cell.variant
        if key in asked or not _reads(cell):
            continue
        sentence = _warning(campaign, cell)
        asked.add(key)
        if sentence:
            warned[sentence] = None
    yield from warned


def _reads(cell: Cell) -> bool:
    mode = str(cell.parameters.get("mode", ""))
    return cell.scenario.needs_cluster and ("read" in mode or mode in ("rw", "randrw"))


def _warning(campaign: Campaign, cell: Cell) -> Optional[str]:
    cluster = at(campaign.cluster, cell.variant)
    site = site_of(cluster)
    osds = len(site.osds) // max(1, len(campaign.groups))
    volumes = cell.scenario.volumes(site)
    if not osds or not volumes:
        return None
    pool = cluster.pool_profiles.get(volumes[0].data_pool or volumes[0].pool)
    of_each = copies(cluster, pool)
    size = sum(volume.size_mb for volume in volumes) << 20
    memory = int(memory_target(cluster) * osds / of_each)
    if size > memory:
        return None
    larger = (memory >> 20) // len(volumes) + 1
    held = f"{counted(osds, 'OSD')} with osd_memory_target {size_text(memory_target(cluster))}"
    return (
        f"{cell.scenario.name}: its {counted(len(volumes), 'volume')} of {size_text(size)} "
        f"{'fits' if len(volumes) == 1 else 'together fit'} into the memory of {held} and "
        f"{of_each:g} {'copy' if of_each == 1 else 'copies'}: reads measure memory and not "
        f"drives; set vol_size to {larger} or more to measure drives"
    )

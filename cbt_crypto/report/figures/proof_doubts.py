"""What a cell's proof tells of besides: sentences on cells whose configuration is in force."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Optional

from cbt_crypto.archive.documents import OverlayProof, Proof

#: An OSD that serves so much more than the mean of all is what the cluster waits for, in percent.
IMBALANCE_PERCENT = 25.0
#: From this share of one CPU on a thread can do no more.
BUSY_THREAD_PERCENT = 95.0
#: Operations in a cell from which on chance does not explain it.
_ENOUGH_OPS = 1000
#: Direction -> the flag with which dm-crypt needs no worker for it.
_WITHOUT_WORKERS = {"read": "no_read_workqueue", "write": "no_write_workqueue"}


def doubts(proof: Optional[Proof], direction: str) -> Iterator[str]:
    """What is doubtful about a cell in one direction, by what was seen for its proof."""
    by_overlay = {overlay.overlay: overlay for overlay in proof.overlays} if proof else {}
    yield from _unconfined(by_overlay.get("cpuset"), by_overlay.get("luks"), direction)
    yield from _imbalance(by_overlay.get("osds"))
    yield from _encrypted_below(by_overlay.get("network"))
    yield from _busy_threads(proof.clients if proof else {})


def _unconfined(
    cpuset: Optional[OverlayProof], luks: Optional[OverlayProof], direction: str
) -> Iterator[str]:
    """OSDs have their cores, and dm-crypt works for them on all others too."""
    flag = _WITHOUT_WORKERS.get(direction)
    if not (cpuset and cpuset.present and cpuset.options.get("osd_cores") and flag):
        return
    if luks and luks.present and any(flag not in table.split() for table in _tables(luks)):
        yield (
            "kcryptd not confined: dm-crypt's workers may use every CPU, also those that the "
            "OSDs may not"
        )


def _tables(luks: OverlayProof) -> Iterator[str]:
    """The lines of dm-crypt in the evidence of `luks`."""
    for facts in _mapping(luks.evidence).values():
        for layers in _mapping(_mapping(facts).get("opened")).values():
            for layer in layers if isinstance(layers, list) else ():
                for line in str(_mapping(layer).get("table") or "").splitlines():
                    if line.split()[2:3] == ["crypt"]:
                        yield line


def _busy_threads(clients: Mapping[str, Any]) -> Iterator[str]:
    """Clients that could not have done more, whatever the cluster can."""
    for host, about in clients.items():
        percent = _mapping(about).get("cpu_percent")
        if isinstance(percent, (int, float)) and percent >= BUSY_THREAD_PERCENT:
            thread = _mapping(about).get("thread")
            yield (
                f"client {host} was held up by one busy thread: its {thread} used "
                f"{percent:.0f} % of a CPU"
            )


def _encrypted_below(network: Optional[OverlayProof]) -> Iterator[str]:
    """The site's own WireGuard, IPsec or MACsec: what Ceph sends in plain is not."""
    paths = _mapping(network.evidence).get("encrypted_paths") if network else None
    if isinstance(paths, list) and paths:
        more = f" (and {len(paths) - 1} more paths)" if len(paths) > 1 else ""
        yield f"{paths[0]}{more}: what Ceph sends is encrypted below it already"


def _imbalance(osds: Optional[OverlayProof]) -> Iterator[str]:
    """The OSD that served most, if that is far more than the mean; else that of most groups.

    Groups that are spread unevenly do no harm to a load that happens to be even, such as that of a
    few objects; another volume, or the next deployment, meets them all the same.
    """
    evidence = _mapping(osds.evidence) if osds else {}
    ops, primaries, groups = (_numbers(evidence, key) for key in ("ops", "primary_pgs", "pgs"))
    of_ops = _most(ops) if sum(ops.values()) >= _ENOUGH_OPS else None
    if of_ops and of_ops[1] > IMBALANCE_PERCENT:
        name, more = of_ops
        why = ""
        total = sum(primaries.values())
        if len(primaries) == len(ops) and total > 0:
            share = 100 * (primaries[name] * len(primaries) / total - 1)
            why = f"; of placement groups it is primary of {abs(share):.0f} % {_word(share)}"
        yield f"{name} served {more:.0f} % more operations than the mean of {len(ops)} OSDs{why}"
        return
    for what, counts in (("is primary of", primaries), ("has", groups)):
        most = _most(counts)
        if most and most[1] > IMBALANCE_PERCENT:
            yield (
                f"{most[0]} {what} {most[1]:.0f} % more placement groups than the mean of "
                f"{len(counts)} OSDs: balance them, or make more"
            )
            return


def _most(counts: Mapping[str, float]) -> Optional[tuple[str, float]]:
    """The OSD with most, and by how many percent it is above the mean; None where none compares."""
    if len(counts) < 2 or not sum(counts.values()):
        return None
    name = max(counts, key=lambda one: counts[one])
    return name, 100 * (counts[name] * len(counts) / sum(counts.values()) - 1)


def _word(share: float) -> str:
    return "less" if share < 0 else "more"


def _numbers(evidence: Mapping[str, Any], key: str) -> dict[str, float]:
    values = {name: _mapping(about).get(key) for name, about in evidence.items()}
    return {
        name: float(value)
        for name, value in values.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}

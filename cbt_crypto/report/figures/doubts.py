"""What makes a cell doubtful though it was measured: sentences beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Optional

import numpy as np

from cbt_crypto.report.figures import proof_doubts, steadiness
from cbt_crypto.report.figures.rate import records_of, total_rate
from cbt_crypto.results.cell.node import BUSY_STATES, IdleUse, NodeUse
from cbt_crypto.results.cell.record import Record
from cbt_crypto.results.cell.run import Run
from cbt_crypto.units import counted

#: Largest difference of a client or volume from the mean of all, in percent.
UNEVEN_PERCENT = 15.0
#: A second with less than this share of the median IOPS is one without IO.
IDLE_SHARE = 0.01
#: From this share of the window on, processes that measured apart are worth a sentence.
APART_SHARE = 0.1
#: More of what clients read than this must come from OSDs, in percent.
UNSERVED_PERCENT = 5.0
#: Idle OSDs that stand beside the measured ones may take this share of what those take.
BESIDE_SHARE = 0.1
#: Rows may differ by so much in what came from memory, in points of percent.
MEMORY_POINTS = 10.0
#: Rows may differ by so many whole overwrites of their drives.
OVERWRITES = 0.25
#: A rate is kept when it is no further from what was asked for, in percent.
RATE_PERCENT = 2.0
#: From these shares on a node is saturated, or throttled by its hypervisor, in percent.
BUSY_PERCENT, STEAL_PERCENT, NETWORK_PERCENT = 95.0, 5.0, 90.0


def warnings(run: Run, direction: str) -> Iterator[str]:
    """What is doubtful about one run in one direction."""
    records = records_of(run, direction)
    yield from _uneven(records, "client", lambda record: record.host)
    yield from _uneven(records, "volume", lambda record: f"{record.volume} on {record.host}")
    yield from _apart(run)
    yield from _rate(run)
    yield from _idle(run, direction)
    yield from _moved(run, direction)
    yield from _unsteady(run)
    yield from _unserved(run, direction)
    yield from _beside(run.idle)
    yield from _nodes(run.nodes)
    yield from proof_doubts.doubts(run.proof, direction)


def _uneven(records: list[Record], what: str, key: Callable[[Record], str]) -> Iterator[str]:
    """The client or volume that is furthest from the mean of all, if that is far."""
    iops: dict[str, float] = {}
    for record in records:
        iops[key(record)] = iops.get(key(record), 0.0) + record.iops
    mean = sum(iops.values()) / max(len(iops), 1)
    if len(iops) < 2 or mean <= 0:
        return
    name = max(iops, key=lambda one: abs(iops[one] - mean))
    off = 100 * (iops[name] / mean - 1)
    if abs(off) > UNEVEN_PERCENT:
        more = "more" if off > 0 else "less"
        yield f"{what} {name} did {abs(off):.0f} % {more} than the mean of {len(iops)} {what}s"


def _apart(run: Run) -> Iterator[str]:
    """Whether the processes measured so far apart that much of their time is in no figure."""
    if not run.in_window or run.window is None:
        return
    if run.apart_s > APART_SHARE * run.window.seconds:
        apart = f"a client process measured for {run.apart_s:.1f} s without all the others"
        yield f"{apart}; every figure is of the {run.window.seconds:.0f} s in which all ran"


def _rate(run: Run) -> Iterator[str]:
    """Whether the load was as high as it was to be; reads and writes are told it together."""
    if run.rate_iops is None:
        return
    done = total_rate(run, "iops")
    off = 100 * (done / run.rate_iops - 1)
    if abs(off) > RATE_PERCENT:
        kept = f"the rate was to be {run.rate_iops:,.0f} IOPS and was {done:,.0f}"
        yield f"{kept} ({off:+.1f} %): this is not equal load"


def _idle(run: Run, direction: str) -> Iterator[str]:
    series = run.series.get(direction)
    if series is None or not len(series.iops):
        return
    idle = int(np.count_nonzero(series.iops <= IDLE_SHARE * np.median(series.iops)))
    if idle:
        yield f"{idle} of {len(series.iops)} seconds had no IO"


def _moved(run: Run, direction: str) -> Iterator[str]:
    series = run.series.get(direction)
    if series is not None:
        yield from steadiness.sentences(series.iops)


def _unsteady(run: Run) -> Iterator[str]:
    """Whether the rounds before it never were alike."""
    rounds = run.steady_state
    if rounds is None or rounds.reached:
        return
    last = ""
    if rounds.range_percent is not None and rounds.slope_percent is not None:
        last = (
            f": the last five differ by {rounds.range_percent:.0f} % of their mean, with a slope "
            f"of {rounds.slope_percent:.0f} %"
        )
    yield f"steady state not reached in {len(rounds.iops)} rounds of {rounds.round_s:g} s{last}"


def _unserved(run: Run, direction: str) -> Iterator[str]:
    """Whether clients read more than OSDs found anything for."""
    asked = sum(record.bytes for record in records_of(run, direction))
    if direction != "read" or run.storage is None or not asked:
        return
    served = run.storage.hit + run.storage.missed
    lacking = 100 * (1 - served / asked)
    if lacking > UNSERVED_PERCENT:
        yield (
            f"{lacking:.0f} % of what clients read came from no OSD's store: it was never written,"
            " or came from a client's own cache"
        )


def _beside(idle: Optional[IdleUse]) -> Iterator[str]:
    """Whether OSDs that were to idle beside the measured ones took a part of their host."""
    if idle is None:
        return
    for what, own, other in (
        ("processor time", idle.own_cpu_percent, idle.cpu_percent),
        ("drive traffic", idle.own_drive_bytes_per_s, idle.drive_bytes_per_s),
    ):
        if own and other > BESIDE_SHARE * own:
            share = 100 * other / own
            yield (
                f"{counted(idle.osds, 'idle OSD')} of other groups took {share:.0f} % of the "
                f"{what} of the measured ones"
            )


def unlike_in_memory(own: Optional[float], base: Optional[float]) -> Iterator[str]:
    """Whether a row read more or less from memory than the baseline; both in percent of reads."""
    if own is None or base is None or abs(own - base) <= MEMORY_POINTS:
        return
    yield (
        f"{own:.0f} % of reads came from OSDs' memory, of the baseline's {base:.0f} %: this"
        " compares caches too"
    )


def unlike_in_age(own: Optional[float], base: Optional[float]) -> Iterator[str]:
    """Whether a row's drives were more, or less, written over than the baseline's before it."""
    if own is None or base is None or abs(own - base) <= OVERWRITES:
        return
    yield (
        f"its drives had been written over {own:.1f} times since their deployment, the baseline's "
        f"{base:.1f} times: this compares drives of different age too"
    )


def _nodes(nodes: Sequence[NodeUse]) -> Iterator[str]:
    """Sentences that name the nodes only, so that cells with the same ones share them."""
    busy = [node.host for node in nodes if node.percent(BUSY_STATES) > BUSY_PERCENT]
    if busy:
        yield f"processors saturated (over {BUSY_PERCENT:g} % busy): {', '.join(busy)}"
    stolen = [node.host for node in nodes if node.percent(("steal",)) > STEAL_PERCENT]
    if stolen:
        share = f"over {STEAL_PERCENT:g} % of the time"
        yield f"processors throttled by their hypervisor ({share}): {', '.join(stolen)}"
    full = [node.host for node in nodes if (node.network_percent or 0.0) > NETWORK_PERCENT]
    if full:
        yield f"network saturated (over {NETWORK_PERCENT:g} % of its speed): {', '.join(full)}"

"""What makes a cell doubtful though it was measured: sentences beside it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np

from cbt_crypto.archive.documents import Baseline, OverlayProof, PlanDocument, Proof
from cbt_crypto.archive.folder import CLUSTER_DIMENSIONS
from cbt_crypto.report.figures.metric import FROM_MEMORY
from cbt_crypto.report.figures.of_runs import other_clients_iops, records_of, total_rate
from cbt_crypto.report.model import Report, ReportCell, Table
from cbt_crypto.report.wording import mapping
from cbt_crypto.results.cell.node import BUSY_STATES, IdleUse, NodeUse
from cbt_crypto.results.cell.record import Floats, Record
from cbt_crypto.results.cell.run import Run, dimensions_of
from cbt_crypto.units import counted, grouped

#: Percent above the mean of all OSDs from which on the cluster waits for one.
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
    yield from _remote(by_overlay.get("cpuset"))
    yield from _imbalance(by_overlay.get("osds"))
    yield from _encrypted_below(by_overlay.get("network"))
    yield from _busy_threads(proof.clients if proof else {})


def _unconfined(
    cpuset: Optional[OverlayProof], luks: Optional[OverlayProof], direction: str
) -> Iterator[str]:
    flag = _WITHOUT_WORKERS.get(direction)
    if not (cpuset and cpuset.present and cpuset.options.get("osd_cores") and flag):
        return
    if luks and luks.present and any(flag not in table.split() for table in _tables(luks)):
        yield (
            "kcryptd not confined: dm-crypt's workers may use every CPU, also those that the "
            "OSDs may not"
        )


def _remote(cpuset: Optional[OverlayProof]) -> Iterator[str]:
    """Whether OSDs had CPUs of other NUMA nodes alone than that of their drives."""
    told = mapping(cpuset.evidence) if cpuset else {}
    remote = {osd: mapping(mapping(about).get("remote_drives")) for osd, about in told.items()}
    far = [(osd, *next(iter(drives.items()))) for osd, drives in remote.items() if drives]
    for osd, drive, node in far[:1]:
        more = f" (and {counted(len(far) - 1, 'more OSD')})" if len(far) > 1 else ""
        yield f"{osd}{more} had no CPU of NUMA node {node}, where its drive {drive} is"


def _tables(luks: OverlayProof) -> Iterator[str]:
    for facts in mapping(luks.evidence).values():
        for layers in mapping(mapping(facts).get("opened")).values():
            for layer in layers if isinstance(layers, list) else ():
                for line in str(mapping(layer).get("table") or "").splitlines():
                    if line.split()[2:3] == ["crypt"]:
                        yield line


def _busy_threads(clients: Mapping[str, Any]) -> Iterator[str]:
    for host, about in clients.items():
        percent = mapping(about).get("cpu_percent")
        if isinstance(percent, (int, float)) and BUSY_THREAD_PERCENT <= percent < 2**63:
            thread = mapping(about).get("thread")
            yield (
                f"client {host} was held up by one busy thread: its {thread} used "
                f"{percent:.0f} % of a CPU"
            )


def _encrypted_below(network: Optional[OverlayProof]) -> Iterator[str]:
    """The site's own WireGuard, IPsec or MACsec: what Ceph sends in plain is not."""
    paths = mapping(network.evidence).get("encrypted_paths") if network else None
    if isinstance(paths, list) and paths:
        more = f" (and {len(paths) - 1} more paths)" if len(paths) > 1 else ""
        yield f"{paths[0]}{more}: the network already encrypts what Ceph sends"


def _imbalance(osds: Optional[OverlayProof]) -> Iterator[str]:
    """The OSD that served most, far beyond the mean; else that of most groups, as loads differ."""
    evidence = mapping(osds.evidence) if osds else {}
    ops, primaries, groups = (_numbers(evidence, key) for key in ("ops", "primary_pgs", "pgs"))
    of_ops = _most(ops) if sum(ops.values()) >= _ENOUGH_OPS else None
    if of_ops and of_ops[1] > IMBALANCE_PERCENT:
        name, more = of_ops
        why = ""
        total = sum(primaries.values())
        if primaries.keys() == ops.keys() and total > 0:
            share = 100 * (primaries[name] * len(primaries) / total - 1)
            word = "fewer" if share < 0 else "more"
            why = f"; it is primary of {abs(share):.0f} % {word} placement groups"
        yield f"{name} served {more:.0f} % more operations than the mean of {len(ops)} OSDs{why}"
        return
    for what, counts in (("is primary of", primaries), ("has", groups)):
        most = _most(counts)
        if most and most[1] > IMBALANCE_PERCENT:
            yield (
                f"{most[0]} {what} {most[1]:.0f} % more placement groups than the mean of "
                f"{len(counts)} OSDs: balance them, or raise pg_num"
            )
            return


def _most(counts: Mapping[str, float]) -> Optional[tuple[str, float]]:
    if len(counts) < 2 or not sum(counts.values()):
        return None
    name = max(counts, key=lambda one: counts[one])
    return name, 100 * (counts[name] * len(counts) / sum(counts.values()) - 1)


def _numbers(evidence: Mapping[str, Any], key: str) -> dict[str, float]:
    values = {name: mapping(about).get(key) for name, about in evidence.items()}
    return {
        name: float(value)
        for name, value in values.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 2**63
    }


#: Of fewer seconds nothing is said.
FEWEST_SECONDS = 30
#: A change of less than this share of the throughput is no matter.
LEAST_CHANGE = 0.05
#: What Shao and Zhang's statistic exceeds by chance once in 1000 times (their table 1, q = 1).
SHIFT_CRITICAL = 121.9
#: A shift is looked for no nearer to an end than this share of the window.
_MARGIN = 0.1
#: Chance of such a trend where there is none.
_TREND_LEVEL = 0.002
_BLOCKS, _LEAST_BLOCK_S = 12, 4


@dataclass(frozen=True)
class Change:
    """From one level to another: `share` of the first; `after_s` is None for a trend."""

    share: float
    after_s: Optional[int]
    #: Sum of squares that a model with this change leaves.
    unexplained: float


def steadiness_sentences(iops: Floats) -> Iterator[str]:
    """What is to be said of a run's throughput, second by second of its window."""
    change = change_of(iops)
    if change is None:
        return
    word = "rose" if change.share > 0 else "fell"
    changed = f"throughput {word} by {abs(100 * change.share):.0f} %"
    if change.after_s is None:
        yield f"{changed} over the {len(iops)} s that were measured: its mean is no steady level"
    else:
        yield f"{changed} after {change.after_s} of {len(iops)} s: its mean mixes two levels"


def change_of(iops: Floats) -> Optional[Change]:
    """The trend or shift that is in a series; of both what explains more."""
    if len(iops) < FEWEST_SECONDS or np.ptp(iops) == 0:
        return None
    changes = [change for change in (_shift(iops), _trend(iops)) if change is not None]
    large = [change for change in changes if abs(change.share) > LEAST_CHANGE]
    return min(large, key=lambda one: one.unexplained, default=None)


def _shift(iops: Floats) -> Optional[Change]:
    statistic, place = largest_shift(iops)
    before, after = iops[:place], iops[place:]
    if statistic <= SHIFT_CRITICAL or before.mean() <= 0:
        return None
    unexplained = len(before) * before.var() + len(after) * after.var()
    return Change(float(after.mean() / before.mean() - 1), place, float(unexplained))


def largest_shift(series: Floats) -> tuple[float, int]:
    """Shao and Zhang's statistic, and the number of values before the place of the largest."""
    length = len(series)
    ends = np.arange(1, length)
    forward = np.cumsum(series - series.mean())
    backward = np.cumsum((series - series.mean())[::-1])
    spread = _spread(forward)[:-1] + _spread(backward)[:-1][::-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = length * forward[:-1] ** 2 / spread
    margin = int(np.ceil(_MARGIN * length))
    allowed = (ends >= margin) & (ends <= length - margin)
    # without any spread on both sides the two levels are all that there is
    ratio = np.where(spread > 0, ratio, np.where(forward[:-1] == 0, 0.0, np.inf))
    place = int(np.argmax(np.where(allowed, ratio, 0.0)))
    return float(ratio[place]), int(ends[place])


def _spread(sums: Floats) -> Floats:
    """For each number of values k, the sum over t <= k of (S_t - t/k S_k) squared."""
    count = np.arange(1, len(sums) + 1)
    squares, crossed = np.cumsum(sums**2), np.cumsum(count * sums)
    spread: Floats = squares - 2 * sums / count * crossed
    spread += (sums / count) ** 2 * np.cumsum(count**2)
    # what is left of differences of large numbers is no spread
    return np.where(spread > 1e-9 * squares, spread, 0.0)


def _trend(iops: Floats) -> Optional[Change]:
    """A line through the medians of slopes (Theil, Sen), if Kendall's test shows a trend."""
    number = min(_BLOCKS, len(iops) // _LEAST_BLOCK_S)
    block = len(iops) // number
    means = iops[len(iops) - number * block :].reshape(number, block).mean(axis=1)
    at = np.arange(number)
    low, high = np.triu_indices(number, 1)
    rises = means[high] - means[low]
    slope = float(np.median(rises / (high - low)))
    intercept = float(np.median(means) - slope * np.median(at))
    first, last = intercept - slope / 2, intercept + slope * (number - 0.5)
    if first <= 0 or abs(last / first - 1) <= LEAST_CHANGE:
        return None
    if chance_of_order(int((rises > 0).sum()), int((rises < 0).sum()), number) > _TREND_LEVEL:
        return None
    line = np.polynomial.Polynomial.fit(np.arange(len(iops)), iops, 1)
    unexplained = float(np.sum((iops - line(np.arange(len(iops)))) ** 2))
    return Change(float(last / first - 1), None, unexplained)


def chance_of_order(rises: int, falls: int, number: int) -> float:
    """Kendall's two-sided chance of `rises` or fewer among `number` values; ties count half."""
    ways = [1]
    for place in range(1, number):
        # One more value has 0 to `place` of the others on its wrong side.
        longer = [0] * (len(ways) + place)
        for inversions, count in enumerate(ways):
            for more in range(place + 1):
                longer[inversions + more] += count
        ways = longer
    pairs = number * (number - 1) // 2
    fewest = math.floor(min(rises, falls) + (pairs - rises - falls) / 2)
    return min(1.0, 2 * sum(ways[: fewest + 1]) / math.factorial(number))


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
#: Clients that are not the campaign's may have this share of all IOPS, in percent.
OTHERS_PERCENT = 2.0
#: Points of percent by which rows may differ in what came from memory.
MEMORY_POINTS = 10.0
#: From this share of reads on memory is measured, in percent.
MOSTLY_PERCENT = 50.0
#: Whole overwrites of their drives by which rows may differ.
OVERWRITES = 0.25
#: A rate is kept when it is no further from what was asked for, in percent.
RATE_PERCENT = 2.0
#: From these shares on a node is saturated, or throttled by its hypervisor, in percent.
BUSY_PERCENT, STEAL_PERCENT, NETWORK_PERCENT = 95.0, 5.0, 90.0


def warnings(run: Run, direction: str, told: str = "") -> Iterator[str]:
    """What is doubtful about one run in one direction, but that host `told` is full."""
    records = records_of(run, direction)
    yield from _uneven(records, "client", lambda record: record.host)
    yield from _uneven(records, "volume", lambda record: f"{record.volume} on {record.host}")
    yield from _apart(run)
    yield from _rate(run)
    yield from _idle(run, direction)
    if (series := run.series.get(direction)) is not None:
        yield from steadiness_sentences(series.iops)
    yield from _unsteady(run)
    yield from _unserved(run, direction)
    yield from _beside(run.idle)
    yield from _others(run)
    yield from _nodes(run.nodes, told)
    yield from doubts(run.proof, direction)


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
        apart = f"a client process measured for {run.apart_s:.1f} s while others did not"
        yield f"{apart}; every figure covers the {run.window.seconds:.0f} s in which all ran"


def _rate(run: Run) -> Iterator[str]:
    """Whether the workload was as high as it was to be; reads and writes are told it together."""
    if run.rate_iops is None:
        return
    done = total_rate(run, "iops")
    off = 100 * (done / run.rate_iops - 1)
    if abs(off) > RATE_PERCENT:
        kept = f"the rate should be {run.rate_iops:,.0f} IOPS and was {done:,.0f}"
        yield f"{kept} ({off:+.1f} %): rates are not equal"


def _idle(run: Run, direction: str) -> Iterator[str]:
    series = run.series.get(direction)
    if series is None or not len(series.iops):
        return
    idle = int(np.count_nonzero(series.iops <= IDLE_SHARE * np.median(series.iops)))
    if idle:
        yield f"{idle} of {len(series.iops)} seconds had no IO"


def _unsteady(run: Run) -> Iterator[str]:
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
            f"{lacking:.0f} % of what clients read was never written, or came from a client's own "
            "cache: no OSD's store had it"
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


def _others(run: Run) -> Iterator[str]:
    """Whether a cluster that others use worked for them, or for itself, meanwhile."""
    others, iops = run.others, other_clients_iops(run)
    if others is None or iops is None:
        return
    share = 100 * iops / (iops + total_rate(run, "iops") or 1)
    if share > OTHERS_PERCENT:
        yield f"other clients did about {iops:,.0f} IOPS meanwhile, {share:.0f} % of all"
    if others.scrubbing:
        yield f"{counted(others.scrubbing, 'placement group')} were scrubbed meanwhile"
    if others.recovering or others.recovery_ops:
        yield (
            f"the cluster recovered meanwhile: {counted(others.recovery_ops, 'operation')}, and up "
            f"to {counted(others.recovering, 'placement group')} at once"
        )


def from_memory(own: Optional[float], base: Optional[float]) -> Iterator[str]:
    """Whether a row read from memory, or more or less so than the baseline; both in percent."""
    if own is None:
        return
    if base is not None and abs(own - base) > MEMORY_POINTS:
        yield (
            f"{own:.0f} % of reads came from OSDs' memory ({base:.0f} % in the baseline): the "
            "percentage compares caches, too"
        )
    elif own >= MOSTLY_PERCENT:
        yield f"{own:.0f} % of reads came from OSDs' memory: this measures memory more than drives"


def memory_sentences(tables: Iterable[Table]) -> Iterator[str]:
    """One on all rows together that read mostly from memory, for the head of a report."""
    cells = [cell for table in tables for cell in table.cells if FROM_MEMORY in cell.figures]
    mostly = [cell.figures[FROM_MEMORY] for cell in cells]
    mostly = [percent for percent in mostly if percent >= MOSTLY_PERCENT]
    if mostly:
        ends = " to ".join(dict.fromkeys(f"{end:.0f}" for end in (min(mostly), max(mostly))))
        rows = f"{len(mostly)} of {counted(len(cells), 'row')} of reads"
        larger = "larger volumes, or a smaller osd_memory_target, measure drives"
        yield f"{rows} took {ends} % from OSDs' memory and not from drives; {larger}"


def unlike_in_cpus(runs: Sequence[Run], base: Sequence[Run]) -> Iterator[str]:
    """Whether Ceph kept an OSD on one NUMA node in some runs of a row, or of the baseline, only.

    Where a configuration confines OSDs, the difference is meant.
    """
    nodes: dict[str, dict[str, None]] = {}
    for run in (*base, *runs):
        for osd, node in _nodes_of_osds(run.proof):
            nodes.setdefault(osd, {})[node] = None
    moved = {osd: tuple(of_osd) for osd, of_osd in nodes.items() if len(of_osd) > 1}
    for osd, of_osd in list(moved.items())[:1]:
        more = f" (and {counted(len(moved) - 1, 'more OSD')})" if len(moved) > 1 else ""
        yield (
            f"Ceph ran {osd}{more} on {of_osd[0]} in one cell and on {of_osd[1]} in another: this "
            "compares NUMA nodes too"
        )


def _nodes_of_osds(proof: Optional[Proof]) -> Iterator[tuple[str, str]]:
    for overlay in proof.overlays if proof else ():
        is_meant = overlay.present and overlay.options.get("osd_cores")
        if overlay.overlay == "cpuset" and not is_meant:
            for osd, about in mapping(overlay.evidence).items():
                if osd.startswith("osd."):
                    node = mapping(about).get("numa_node")
                    yield osd, "all CPUs" if node is None else f"NUMA node {node}"


def unlike_in_rate(runs: Sequence[Run], base: Sequence[Run]) -> Iterator[str]:
    """Whether a row was loaded otherwise than the baseline, whose maximum was measured again."""
    rates = [sorted({run.rate_iops for run in side if run.rate_iops}) for side in (runs, base)]
    both = sorted(rates[0] + rates[1])
    if all(rates) and both[-1] > (1 + RATE_PERCENT / 100) * both[0]:
        own, other = (" and ".join(f"{rate:,.0f}" for rate in side) for side in rates)
        yield f"its rate was {own} IOPS, the baseline's {other}: this compares unequal loads"


def unlike_in_age(own: Optional[float], base: Optional[float]) -> Iterator[str]:
    """Whether a row's drives were more, or less, written over than the baseline's before it."""
    if own is None or base is None or abs(own - base) <= OVERWRITES:
        return
    yield (
        f"its drives had been written over {own:.1f} times since their deployment, the baseline's "
        f"{base:.1f} times: this compares drives of different age too"
    )


def _nodes(nodes: Sequence[NodeUse], told: str) -> Iterator[str]:
    busy = [node.host for node in nodes if node.percent(BUSY_STATES) > BUSY_PERCENT]
    if busy and busy != [told]:
        share = f"over {BUSY_PERCENT:g} % busy on average"
        yield f"processors saturated ({share}): {', '.join(busy)}"
    stolen = [node.host for node in nodes if node.percent(("steal",)) > STEAL_PERCENT]
    if stolen:
        share = f"over {STEAL_PERCENT:g} % of the time"
        yield f"processors throttled by their hypervisor ({share}): {', '.join(stolen)}"
    full = [node.host for node in nodes if (node.network_percent or 0.0) > NETWORK_PERCENT]
    if full:
        yield f"network saturated (over {NETWORK_PERCENT:g} % of its speed): {', '.join(full)}"


#: The name under which a campaign measures its baseline a second time.
CONTROL = "control"


def is_control(report: Report, cell: ReportCell) -> bool:
    """Whether a row is the baseline that the campaign measured a second time."""
    return cell.name == CONTROL and _repeats(report.configurations, report.baseline)


def control_of(plan: PlanDocument, baseline: Baseline) -> Optional[str]:
    """The name of the control, where the baseline that it repeats is the one compared with."""
    compared_with = plan.own_baseline == baseline
    measured = any(dimensions_of(cell).get(baseline.dimension) == CONTROL for cell in plan.cells)
    repeats = compared_with and _repeats(plan.configurations, baseline)
    return CONTROL if measured and repeats else None


def _repeats(configurations: Mapping[str, Any], baseline: Baseline) -> bool:
    """Whether `control` is the campaign's: with `control: false` a file may call a row so."""
    if baseline.dimension in CLUSTER_DIMENSIONS:
        return True  # none of a file may have this name
    its_own = configurations.get(str(baseline.value))
    is_configuration = baseline.dimension == "configuration"
    return bool(is_configuration and configurations.get(CONTROL, its_own) == its_own)


@dataclass(frozen=True)
class Note:
    """One sentence. `where` names the cells that it is of: `LUKS, random reads`.

    `key` is what is between its numbers: those that differ in nothing else are one note.
    """

    number: int
    text: str
    where: str
    key: tuple[str, ...]


#: A number or an OSD; a number that is part of a name or an address tells which one it is.
_NUMBER = re.compile(r"osd\.\d+|(?<![\w.:/-])[+-]?\d[\d,]*(?:\.\d+)?(?![\w:/-]|\.\d)")


def notes_of(table: Table) -> list[Note]:
    """Why cells failed and what is doubtful about others, in the order of the cells."""
    texts: dict[tuple[str, ...], list[str]] = {}
    where: dict[tuple[str, ...], dict[str, dict[str, None]]] = {}
    for section, cell in table.rows:
        for text in cell_sentences(cell):
            key = tuple(_NUMBER.split(text))
            texts.setdefault(key, []).append(text)
            where.setdefault(key, {}).setdefault(section.label, {})[cell.name] = None
    return [
        Note(n, _merged(alike), _where({m: list(names) for m, names in where[key].items()}), key)
        for n, (key, alike) in enumerate(texts.items(), 1)
    ]


def _merged(alike: Sequence[str]) -> str:
    """Sentences that differ in numbers alone as one: `38 to 75 % more`."""
    columns = zip(*(_NUMBER.findall(text) for text in alike))
    spans = iter([_span(list(dict.fromkeys(column))) for column in columns])
    return _NUMBER.sub(lambda _: next(spans), alike[0])


def _span(values: Sequence[str]) -> str:
    if not any(value.startswith("osd.") for value in values):
        values = sorted(values, key=lambda value: float(value.replace(",", "")))
        if len(values) > 2:
            return f"{values[0]} to {values[-1]}"
    if len(values) > 4:
        return f"one of {counted(len(values), 'OSD')}"
    *others, last = values
    return f"{', '.join(others)} or {last}" if others else last


def cell_sentences(cell: ReportCell) -> tuple[str, ...]:
    """All that is to be said of one cell."""
    return (*([cell.reason] if cell.reason else []), *cell.warnings)


def numbers(cell: ReportCell, notes: Sequence[Note]) -> list[int]:
    """Which of its table's notes are of this cell."""
    keys = {tuple(_NUMBER.split(text)) for text in cell_sentences(cell)}
    return [note.number for note in notes if note.key in keys]


def _where(modes: Mapping[str, Sequence[str]]) -> str:
    """Cells by mode; modes with the same cells together."""
    same = grouped(
        # A name that would read as several is quoted.
        (tuple(f'"{name}"' if "," in name else name for name in names), mode)
        for mode, names in modes.items()
    )
    return "; ".join(f"{', '.join(names)}, {' and '.join(m)}" for names, m in same.items())

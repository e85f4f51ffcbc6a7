"""Why a figure changed: what changed most beside it for each IO, and what was at its limit.

Every rule is a row of a table, with its source. A cause has been seen only at a limit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Optional

import numpy as np

from cbt_crypto.report.figures.of_runs import mean_latency, per, records_of, total_rate
from cbt_crypto.report.figures.repeats import StandardError, differing
from cbt_crypto.report.model import ReportCell, Table
from cbt_crypto.report.wording import Grid, number
from cbt_crypto.results.cell.cycles import is_alike
from cbt_crypto.results.cell.recorded import SLOW, HostRecord
from cbt_crypto.results.cell.run import Run
from cbt_crypto.units import counted, grouped

#: From this share of a core on, in the median second, a thread can do no more.
FULL_THREAD = 0.9
#: From these shares on all CPUs, one CPU, a link and a device can do no more.
FULL_CPUS, FULL_CPU, FULL_LINK, FULL_DEVICE = 0.95, 0.95, 0.9, 0.95
#: Cores from which on processes that are neither Ceph's nor a client's disturb.
OTHERS_CORES = 0.5
#: A full CPU holds up Ceph and clients where their threads wait for one (schedstat's run delay) for
#: these shares of the time that they run, and that IOs are under way. Work of a lower priority
#: fills CPUs as well, and while a device is slow, nobody minds a short wait.
WAITED, WAITED_OF_IO = 0.25, 0.03
#: An OSD that waits for a throttle for this share of the time is held up by it.
THROTTLED = 0.2
#: Sentences under one percentage.
_MOST = 3
#: What changed by less than this share of what an IO took in all is not worth a sentence.
_WORTH = 0.05
#: The same, where nothing was repeated, so that nothing says what is chance.
_WORTH_ONCE = 0.25
_LEVEL = 0.05
NOT_EXPLAINED = "Not explained: nothing that was recorded changed enough."


@dataclass(frozen=True)
class Limit:
    """What could do no more in a run."""

    kind: str
    sentence: str
    #: Whose processors, where it is these.
    host: str = ""


#: Limits of Ceph and its drives; a percentage at any other is not theirs.
OF_STORAGE = ("one thread of the OSDs", "a device", "a throttle")


def limit_of(run: Run) -> Optional[Limit]:
    """What was at its limit first; None where nothing was, or nobody recorded."""
    return next(_limits(run), None)


def _limits(run: Run) -> Iterator[Limit]:
    """In the order in which one hides the others: a full client asks no more of the rest."""
    #: Whether threads wait for CPUs -> what full CPUs are no limit then.
    no_limits = {True: (), None: (_others, _one_cpu), False: (_others, _one_cpu, _all_cpus)}
    without = no_limits[_is_held_up(run)]
    for test in (_client_thread, _link, _others, _osd_thread, _all_cpus, _one_cpu, _device):
        for host in run.recorded.hosts if test not in without else ():
            yield from test(host)
    yield from _throttle(run)


def _is_held_up(run: Run) -> Optional[bool]:
    """Whether threads of Ceph and clients wait for CPUs; None where nobody counted."""
    uses = [use for host in run.recorded.hosts for use in host.threads.values()]
    waits = sum(use.waits or 0.0 for use in uses)
    ran = sum(use.user + use.sys for use in uses if use.waits is not None)
    under_way = sum(record.iops * record.clat_ns_mean / 1e9 for record in run.records)
    return waits >= max(WAITED * ran, WAITED_OF_IO * under_way) if ran else None


def _client_thread(host: HostRecord) -> Iterator[Limit]:
    """One fio job is one thread, and librbd's messenger has three: fio(1), ms_async_op_threads."""
    use = host.threads.get("client")
    if host.has_clients and use is not None and use.busiest >= FULL_THREAD:
        text = f"a client's thread ({use.name} on {host.host}, {100 * use.busiest:.0f} % of a core)"
        yield Limit("a client's thread", text)


def _others(host: HostRecord) -> Iterator[Limit]:
    """What proc(5) counts for processes that are neither Ceph's nor this campaign's clients."""
    use = host.threads.get("other")
    if use is None or max(host.top_cpu, host.busy) < FULL_CPU:
        return
    cores = use.user + use.sys
    if cores >= OTHERS_CORES:
        # Those that ended between two samples have no name.
        busiest = f", most of all {use.name}" if use.name else ""
        text = f"other processes on {host.host} ({cores:.1f} cores{busiest})"
        yield Limit("other processes", text)


def _link(host: HostRecord) -> Iterator[Limit]:
    """Bytes in the busier direction by the speed that /sys/class/net/*/speed gives."""
    for name, share in sorted(host.links.items()):
        if share >= FULL_LINK:
            yield Limit("a network link", f"a link ({name} on {host.host}, {100 * share:.0f} %)")


#: Classes of which one thread serves an OSD or a mapping, and what waits for it: Ceph's
#: BlueStore::_kv_sync_thread, dm-crypt's dmcrypt_write (see no_write_workqueue in its admin guide).
_SINGLE = {
    "dmcrypt_write": "writes wait for one thread of dm-crypt",
    "bstore_kv_sync": "writes wait for BlueStore's one commit thread",
    "bstore_kv_final": "writes wait for BlueStore's one finishing thread",
    "msgr-worker": "a connection has one thread",
    "tp_osd_tp": "a shard's operations wait for its threads",
}


def _osd_thread(host: HostRecord) -> Iterator[Limit]:
    for kind, why in _SINGLE.items():
        use = host.threads.get(kind)
        if host.has_osds and use is not None and use.busiest >= FULL_THREAD:
            text = f"one thread ({kind} on {host.host}, {100 * use.busiest:.0f} % of a core: {why})"
            yield Limit("one thread of the OSDs", text)


def _all_cpus(host: HostRecord) -> Iterator[Limit]:
    """Busy is all that /proc/stat counts but idle, iowait and steal."""
    if host.busy >= FULL_CPUS:
        text = f"all CPUs of {host.host} ({100 * host.busy:.0f} % busy in the median second)"
        yield Limit("all CPUs of a host", text, host.host)


def _one_cpu(host: HostRecord) -> Iterator[Limit]:
    if host.top_cpu >= FULL_CPU:
        text = f"one CPU of {host.host}, while all together were {100 * host.busy:.0f} % busy"
        yield Limit("one CPU", text, host.host)


def _device(host: HostRecord) -> Iterator[Limit]:
    """io_ticks (iostats): when any request waited; and a queue, as drives work on many at once."""
    for name, disk in sorted(host.disks.items(), key=lambda item: -item[1].busy):
        if host.has_osds and disk.busy >= FULL_DEVICE and disk.queue >= 1:
            about = f"busy {100 * min(disk.busy, 1):.0f} % of the time, {disk.queue:.1f} requests"
            yield Limit("a device", f"a device ({name} on {host.host}, {about})")


def _throttle(run: Run) -> Iterator[Limit]:
    """Ceph's own throttles count how long somebody waited: `perf dump`, throttle-*/wait."""
    seconds = run.window.seconds if run.window else 0.0
    for path, waited_s in sorted(run.osd_perf.items(), key=lambda item: -item[1]):
        name, _, rest = path.partition("/")
        share = waited_s / seconds if seconds else 0.0
        if name.startswith("throttle-") and rest == "wait/sum" and share >= THROTTLED:
            about = f"operations waited {share:.1f} s per second in all"
            yield Limit("a throttle", f"a throttle of Ceph ({name[9:]}, {about})")


def limit_of_row(runs: Sequence[Run]) -> Optional[Limit]:
    """What limited most of a row's runs."""
    found = [limit_of(run) for run in runs if run.failure is None and run.recorded.hosts]
    kinds = Counter(limit.kind for limit in found if limit is not None)
    kind, times = kinds.most_common(1)[0] if kinds else ("", 0)
    if 2 * times <= len(found):
        return None
    return next(limit for limit in found if limit is not None and limit.kind == kind)


#: A cycle is a row's when so large a share of its runs have it.
_MOST_RUNS = 2 / 3


def cycles_of_row(runs: Sequence[Run], direction: str) -> Iterator[str]:
    """A sentence where the latency of most of a row's runs comes back in the same cycle."""
    whole = [run for run in runs if run.failure is None and direction in run.series]
    cycles = [one for run in whole for one in run.recorded.cycles if one.direction == direction]
    if not cycles:
        return
    period = float(np.median([cycle.period_s for cycle in cycles]))
    same = [cycle for cycle in cycles if is_alike(cycle.period_s, period)]
    if len(same) < _MOST_RUNS * len(whole):
        return
    kinds = Counter(kind for cycle in same for kind in cycle.shared)
    shared = [_CLASSES.get(kind, kind) for kind, n in kinds.items() if 2 * n > len(same)]
    beside = f", and so does the work of {', '.join(shared)}" if shared else ""
    cells = f"in {len(same)} of {len(whole)} cells"
    yield f"latency rises and falls every {period:.3g} s ({cells}){beside}"


def slow_of_row(runs: Sequence[Run]) -> Iterator[str]:
    """A sentence where OSDs told of slow operations in a row's windows."""
    slow = [[mark for mark in run.recorded.marks if mark.what == SLOW] for run in runs]
    marks = [mark for of_run in slow for mark in of_run]
    if marks:
        longest = max(marks, key=lambda mark: mark.end_s - mark.start_s)
        yield (
            f"{counted(len(marks), SLOW)} of a second or longer in {sum(map(bool, slow))} of "
            f"{counted(len(runs), 'cell')}; the longest took "
            f"{longest.end_s - longest.start_s:.3g} s on {longest.host}"
        )


@dataclass(frozen=True)
class Rule:
    """Something that may explain a change: `of` gives it for each IO of a run, in `unit`.

    `basis` says what it is a part of: all CPU time of an IO, its latency, or nothing (counts).
    """

    key: str
    label: str
    unit: str
    basis: str
    of: Callable[[Run], Optional[float]]


def _all_hosts(run: Run) -> tuple[HostRecord, ...]:
    """None where one of them has no recording: all of an IO's work is on all of them."""
    hosts = run.recorded.hosts
    return hosts if {host.host for host in hosts} >= {*run.hosts} else ()


def _cpu(kind: str) -> Callable[[Run], Optional[float]]:
    """User and system time of a class on all hosts where it counts; None without recordings."""
    where = "has_clients" if kind == "client" else "has_osds"

    def of(run: Run) -> Optional[float]:
        hosts = [host for host in _all_hosts(run) if getattr(host, where)]
        uses = [host.threads[kind] for host in hosts if kind in host.threads]
        cores = sum(use.user + use.sys for use in uses)
        return per(1e6 * cores, total_rate(run, "iops")) if hosts else None

    return of


def _of_hosts(value: Callable[[HostRecord], float]) -> Callable[[Run], Optional[float]]:
    def of(run: Run) -> Optional[float]:
        hosts = [host for host in _all_hosts(run) if host.has_osds]
        return per(sum(map(value, hosts)), total_rate(run, "iops")) if hosts else None

    return of


def _mean(*paths: str) -> Callable[[Run], Optional[float]]:
    """The mean in us of a time that OSDs count; its name differs between releases."""

    def of(run: Run) -> Optional[float]:
        for path in paths:
            count = run.osd_perf.get(f"{path}/avgcount")
            if count:
                return 1e6 * run.osd_perf.get(f"{path}/sum", 0.0) / count
        return None

    return of


def _counted(*paths: str) -> Callable[[Run], Optional[float]]:
    """What OSDs counted for each operation of clients that they served."""

    def of(run: Run) -> Optional[float]:
        ops = run.osd_perf.get("osd/op")
        return sum(run.osd_perf.get(path, 0.0) for path in paths) / ops if ops else None

    return of


#: Class of threads -> what it is called. Classes are Ceph's own names (src/common/Thread,
#: `ceph-osd` under `top -H`) and the kernel's.
_CLASSES = {
    "tp_osd_tp": "the OSDs' workers (tp_osd_tp)",
    "msgr-worker": "messenger threads (msgr-worker)",
    "bstore_kv_sync": "bstore_kv_sync",
    "bstore_kv_final": "bstore_kv_final",
    "rocksdb:low": "RocksDB's compaction",
    "rocksdb:high": "RocksDB's flushes",
    "ceph-rest": "Ceph's other threads",
    "kcryptd": "kcryptd",
    "dmcrypt_write": "dmcrypt_write",
    "kworker": "other kernel workers",
    "client": "client processes",
}
#: Counters are described by `ceph daemon osd.N perf schema`.
RULES = (
    *(Rule(f"cpu:{kind}", label, "µs", "cpu", _cpu(kind)) for kind, label in _CLASSES.items()),
    Rule("switches", "context switches of OSD hosts", "", "count",
         _of_hosts(lambda host: host.switches_per_s)),
    Rule("sent", "bytes sent by OSD hosts", "B", "count",
         _of_hosts(lambda host: host.sent_bytes_per_s)),
    Rule("flushes", "flushes of OSD hosts' devices", "", "count",
         _of_hosts(lambda host: max((d.flushes_per_s for d in host.disks.values()), default=0.0))),
    Rule("deferred", "deferred writes", "", "count",
         _counted("bluestore/deferred_write_ops", "bluestore/issued_deferred_writes")),
    Rule("kv_flush", "BlueStore's flushes", "µs", "latency", _mean("bluestore/kv_flush_lat")),
    Rule("kv_commit", "commits to RocksDB", "µs", "latency", _mean("bluestore/kv_commit_lat")),
    Rule("read", "BlueStore's reads", "µs", "latency", _mean("bluestore/read_lat")),
    Rule("subop", "replicas' part of a write (subop_w)", "µs", "latency",
         _mean("osd/subop_w_latency")),
)  # fmt: skip


@dataclass(frozen=True)
class Moved:
    """By how much a rule's value differs from the baseline's, for each IO.

    `low` and `high` bound the 95 % interval; None where nothing was repeated. `share` is the
    difference as a share of what it is a part of.
    """

    rule: Rule
    difference: float
    share: float
    low: Optional[float] = None
    high: Optional[float] = None
    p: Optional[float] = None
    #: Whether it is shown beside all that was looked at.
    is_sure: bool = True


def why(
    runs: Sequence[Run], base: Sequence[Run], direction: str, beside: int = 0
) -> tuple[str, ...]:
    """At most three sentences on how a row's IOs differ from the baseline's.

    Empty where one of both has no recording. Of a row whose throughput is not shown to differ, one
    of `beside` rows, only processors' time that is sure beside all that was looked at of them.
    """
    runs, base = ([run for run in side if run.failure is None] for side in (runs, base))
    if not base or not any(run.recorded.hosts or run.osd_perf for run in runs):
        return ()
    moved = changes(runs, base, direction)
    if beside:
        level = _LEVEL / len(RULES) / beside
        sure = (one for one in moved if one.p is not None and one.p <= level)
        return tuple(_sentence(one, runs) for one in sure if one.rule.basis == "cpu")[:_MOST]
    return tuple(_sentence(one, runs) for one in moved[:_MOST]) or (NOT_EXPLAINED,)


def changes(runs: Sequence[Run], base: Sequence[Run], direction: str) -> list[Moved]:
    """What moved by more than chance, family-wise, and by enough; what moved most comes first.

    Where the first are not processors' time, what moved most of that, by itself, is among them.
    """
    found = [_moved(rule, runs, base, direction) for rule in RULES]
    known = [one for one in found if one is not None]
    p_values = {one.rule.key: one.p for one in known if one.p is not None}
    # Everything that was looked at is judged together.
    differs = differing(p_values, level=_LEVEL)
    shown = [one for one in known if differs.get(one.rule.key) and abs(one.share) >= _WORTH]
    shown += [one for one in known if one.p is None and abs(one.share) >= _WORTH_ONCE]
    shown.sort(key=lambda one: -abs(one.share))
    cpu = [one for one in known if one.rule.basis == "cpu" and abs(one.share) >= _WORTH]
    alone = [one for one in cpu if one.p is not None and one.p <= _LEVEL]
    if not alone or any(one.rule.basis == "cpu" for one in shown[:_MOST]):
        return shown
    most = max(alone, key=lambda one: abs(one.share))
    return [*shown[: _MOST - 1], replace(most, is_sure=most in shown)]


def _moved(rule: Rule, runs: Sequence[Run], base: Sequence[Run], direction: str) -> Optional[Moved]:
    by_unit = [_units(rule, side) for side in (runs, base)]
    sides = [list(values.values()) for values in by_unit]
    if not all(sides):
        return None
    means = [float(np.mean(side)) for side in sides]
    difference = means[0] - means[1]
    whole = _whole(rule, base, direction)
    if not whole or not difference:
        return None
    share = difference / whole
    if min(map(len, sides)) < 2:
        return Moved(rule, difference, share)
    if by_unit[0].keys() == by_unit[1].keys():
        # Both were measured on each of these clusters, or in each of these rounds.
        pairs = [value - by_unit[1][unit] for unit, value in by_unit[0].items()]
        error, degrees = math.sqrt(float(np.var(pairs, ddof=1)) / len(pairs)), len(pairs) - 1.0
    else:
        # Welch (1947): nothing says that both vary alike.
        parts = [float(np.var(side, ddof=1)) / len(side) for side in sides]
        error = math.sqrt(sum(parts))
        weights = sum(p**2 / (len(s) - 1) for p, s in zip(parts, sides))
        degrees = sum(parts) ** 2 / weights if weights else 1.0
    test = StandardError(error, degrees)
    half = test.half
    return Moved(rule, difference, share, difference - half, difference + half, test.p(difference))


def _units(rule: Rule, runs: Sequence[Run]) -> dict[object, float]:
    """A value for each deployment; for each turn or round where there was one deployment only."""
    is_repeated = len({run.deployment for run in runs}) > 1
    values = grouped(
        (run.deployment if is_repeated else run.planned.iteration, value)
        for run in runs
        if (value := rule.of(run)) is not None
    )
    return {unit: float(np.mean(of_unit)) for unit, of_unit in values.items()}


def _whole(rule: Rule, base: Sequence[Run], direction: str) -> Optional[float]:
    """What the baseline's IOs took in all; of a count twice itself, as it is no time."""
    if rule.basis == "cpu":
        totals = [sum(_cpu(kind)(run) or 0.0 for kind in _CLASSES) for run in base]
    elif rule.basis == "latency":
        totals = [
            record.clat_ns_mean / 1000 for run in base for record in records_of(run, direction)
        ]
    else:
        totals = [2 * value for run in base if (value := rule.of(run)) is not None]
    return float(np.mean(totals)) if totals else None


def _sentence(moved: Moved, runs: Sequence[Run]) -> str:
    rule = moved.rule
    unit = f" {rule.unit}" if rule.unit else ""
    what = f"CPU of {rule.label}" if rule.basis == "cpu" else rule.label
    verb = "took" if rule.basis == "latency" else "per IO"
    text = f"{what[:1].upper()}{what[1:]} {verb} {_signed(moved.difference)}{unit}"
    if moved.low is None or moved.high is None:
        text += " (measured once)"
    else:
        unsure = "" if moved.is_sure else "; not significant over all comparisons"
        text += f" ({_signed(moved.low)} to {_signed(moved.high)}{unsure})"
    return f"{text}{_busiest(rule, runs)}."


def _busiest(rule: Rule, runs: Sequence[Run]) -> str:
    """What the busiest thread of a class took, if one was busy for long enough to be one."""
    kind = rule.key[4:]
    shares = [
        host.threads[kind].busiest
        for run in runs
        for host in run.recorded.hosts
        if rule.basis == "cpu" and kind in host.threads
    ]
    share = 100 * np.median(shares or [0])
    return f"; its busiest thread took {share:.0f} % of a core" if share >= 1 else ""


def _signed(value: float) -> str:
    digits = max(0, 1 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:+,.{min(digits, 4)}f}"


#: The parts of an IO's mean latency, as `perf schema` describes the OSDs' counters: op_w_latency
#: is all that the OSD took, op_w_process_latency that without its queue, and
#: op_w_prepare_latency that without the wait for the commits of this OSD and its replicas, or, of
#: a read, for the shards of others. It ends after the write was sent to the replicas
#: (PrimaryLogPG::do_op), whose part so overlaps it, and after a reply that waits for nobody.
#: Direction -> the last part, and what happens during the others.
_STAGES: Mapping[str, tuple[str, Mapping[str, tuple[str, ...]]]] = {
    "write": ("commits and replicas", {
        "meanwhile: replicas": ("osd/subop_w_latency",),
        "meanwhile: BlueStore": ("bluestore/txc_commit_lat", "bluestore/commit_lat"),
        "meanwhile: flushes": ("bluestore/kv_flush_lat",),
    }),
    "read": ("other OSDs' shards", {"meanwhile: BlueStore": ("bluestore/read_lat",)}),
}  # fmt: skip


def stages_of(runs: Iterable[Run], direction: str) -> dict[str, float]:
    """Part -> us, of the mean IO; empty where counters or one operation an IO are lacking."""
    measured = [run for run in runs if run.failure is None and run.osd_perf]
    client_ns = mean_latency(measured, direction)
    if direction not in _STAGES or client_ns is None:
        return {}
    counters = {key: sum(run.osd_perf.get(key, 0.0) for run in measured)
                for key in measured[0].osd_perf}  # fmt: skip
    all_runs = replace(measured[0], osd_perf=counters)
    whole, process, prepare = (_mean(f"osd/op_{direction[0]}_{name}latency")(all_runs)
                               for name in ("", "process_", "prepare_"))  # fmt: skip
    client = client_ns / 1000
    if whole is None or process is None or prepare is None or client < whole:
        return {}
    stages = {
        "client and network": client - whole,
        "OSD queue": whole - process,
        "OSD work": min(prepare, process),
    }
    last, meanwhile = _STAGES[direction]
    if prepare < process:
        stages[last] = process - prepare
    means = ((label, _mean(*paths)(all_runs)) for label, paths in meanwhile.items())
    known = {label: mean for label, mean in means if mean is not None}
    return {"mean latency": client, **stages, **known}


def limits_of_rows(kinds: Sequence[str]) -> Iterator[str]:
    """Sentences for the head of a report; `kinds` has one for each row, empty where none is."""
    counted = Counter(kind for kind in kinds if kind and kind not in OF_STORAGE)
    for kind, count in counted.most_common():
        rows = f"{count} of {len(kinds)} rows"
        yield f"Limited by {kind} in {rows}: those measure that limit, not just storage."


#: Stands above what `explained` says.
CORRELATION = "What changed together with the throughput, for each IO; not proof of a cause"


def explained(table: Table) -> Iterator[tuple[str, str]]:
    """Of each row with a verdict: what it is, and its sentences."""
    for section, cell in table.rows:
        if cell.why:
            yield f"{section.label}, {cell.name}", " ".join(cell.why)


_MEANWHILE = ("Meanwhile: means over all OSDs' operations, of what happens during work and "
              "commits; one may exceed the part beside it.")  # fmt: skip


def grids(table: Table) -> Iterator[Grid]:
    """Where IOs spent their latency, and processors their time, where that was recorded."""
    for direction in _STAGES:
        spent = f"Where a {direction}'s mean latency was spent, in ms"
        yield from _grid(table, spent, _MEANWHILE, partial(_spent, direction))
    idle = "Idle states of OSD hosts, in % of all CPUs' time, and mean frequency"
    yield from _grid(table, idle, "Over all that was recorded, ramp included.", _idle)


def _grid(
    table: Table, title: str, note: str, of: Callable[[ReportCell], Mapping[str, float]]
) -> Iterator[Grid]:
    """A row for each that has values, and a column for each of their names."""
    found = {
        f"{section.label}, {cell.name}": values
        for section, cell in table.rows
        if (values := of(cell))
    }
    names = list(dict.fromkeys(name for values in found.values() for name in values))
    rows = [
        [row, *(number(values[n]) if n in values else "" for n in names)]
        for row, values in found.items()
    ]
    if rows:
        yield Grid(title, ["", *names], [("", rows)], (note,))


def _spent(direction: str, cell: ReportCell) -> dict[str, float]:
    is_of = cell.direction == direction
    return {name: us / 1000 for name, us in cell.stages.items()} if is_of else {}


def _idle(cell: ReportCell) -> dict[str, float]:
    """The mean over runs and OSD hosts."""
    hosts = [host for run in cell.runs for host in run.recorded.hosts if host.has_osds]
    parts = grouped((state, 100 * share) for host in hosts for state, share in host.idle.items())
    parts |= grouped(("GHz", host.ghz) for host in hosts if host.ghz is not None)
    return {name: float(np.mean(values)) for name, values in parts.items()}

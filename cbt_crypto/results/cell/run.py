"""One measurement of one cell: its records, series, CPU and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Optional, Union

import numpy as np

from cbt_crypto.archive import documents
from cbt_crypto.archive.documents import CellDocument, PlannedCell, Proof, Scalar, SteadyState
from cbt_crypto.archive.files import Malformed, Problem
from cbt_crypto.archive.folder import Folder
from cbt_crypto.results.cell import hardware_counters
from cbt_crypto.results.cell.client import (
    Client,
    ClientUse,
    Place,
    client_samples,
    clients_used,
    cores_per_second,
    read_client,
)
from cbt_crypto.results.cell.in_window import (
    Cut,
    InWindow,
    SecondBins,
    Series,
    cut,
    directions_of,
    in_window,
    other_seconds,
    second_bins,
    series_of,
)
from cbt_crypto.results.cell.node import (
    BUSY_STATES,
    IdleUse,
    NodeSamples,
    NodesUse,
    NodeUse,
    OtherWork,
    StorageUse,
    idle_use,
    other_work,
    percent_per_second,
    storage_use,
    times_overwritten,
)
from cbt_crypto.results.cell.record import Floats, Record
from cbt_crypto.results.cell.recorded import Recorded, recorded
from cbt_crypto.results.cell.window import Window, common, start_skew_s
from cbt_crypto.results.cell.within_run import Seconds, Within, within_run
from cbt_crypto.results.readers.collectl import NodeSeries, read_collectl
from cbt_crypto.results.readers.histogram import Histogram, merge

#: Processor time in all states as a share of what there was; emulated ones keep time less well.
_PLAUSIBLE = (0.8, 1.25)
#: How far the time of perf's total may be from the window, as a share of it.
_OTHER_TIME = 0.02


@dataclass(frozen=True)
class Run:
    """One measurement; `failure` says why it has no figures, `is_missing` that it never ran.

    `nodes` were sampled; `osd_nodes` only if all OSD hosts were, and `cpu_percent`, `perf` and
    `osd_energy` are theirs. `histograms`, `series` and `within` are by direction.
    """

    planned: PlannedCell
    dimensions: Mapping[str, Scalar]
    failure: Optional[str] = None
    is_missing: bool = False
    started: Optional[float] = None
    deployment: Optional[str] = None
    #: The archive, where several stand for one configuration each.
    campaign: str = ""
    #: The group of OSDs, and the number of the deployment, where others stood beside it.
    beside: Optional[tuple[str, int]] = None
    #: What those took meanwhile; None where none stood there, or they did not tell.
    idle: Optional[IdleUse] = None
    #: What a cluster that others use did meanwhile; None of any other, or where it is not known.
    others: Optional[OtherWork] = None
    warmup_s: float = 0.0
    #: What the logs say of the window, by direction, where fio's totals are of other seconds.
    in_window: Mapping[str, InWindow] = field(default_factory=dict)
    #: Of which memory and drives the reads and writes were; None where nothing tells.
    storage: Optional[StorageUse] = None
    #: How often its drives had been written over since their deployment.
    overwritten: Optional[float] = None
    #: What its load did in rounds before it was measured; None where the file wanted none.
    steady_state: Optional[SteadyState] = None
    #: The OSD that was taken out meanwhile, or the scrub; None where there was neither.
    disturbance: Union[documents.Recovery, documents.Scrub, None] = None
    #: For how long a process measured without all the others.
    apart_s: float = 0.0
    #: What the processes together were told not to exceed.
    rate_iops: Optional[float] = None
    hosts: tuple[str, ...] = ()
    records: tuple[Record, ...] = ()
    histograms: Mapping[str, Histogram] = field(default_factory=dict)
    #: Percent -> ns by direction, where one process alone told percentiles and no bins.
    percentiles_ns: Mapping[str, Mapping[float, float]] = field(default_factory=dict)
    series: Mapping[str, Series] = field(default_factory=dict)
    within: Mapping[str, Within] = field(default_factory=dict)
    window: Optional[Window] = None
    start_skew_s: float = 0.0
    nodes: tuple[NodeUse, ...] = ()
    osd_nodes: Optional[NodesUse] = None
    cpu_percent: Mapping[str, Floats] = field(default_factory=dict)
    #: What the client processes took on each host; empty where that was not sampled on all.
    clients: tuple[ClientUse, ...] = ()
    perf: tuple[hardware_counters.PerfUse, ...] = ()
    #: What OSDs and dm-crypt ran on all OSD hosts; None where that was not sampled.
    stacks: Optional[hardware_counters.StackSamples] = None
    osd_energy: tuple[hardware_counters.EnergyUse, ...] = ()
    #: What explains the figures, by host; empty in archives of before.
    recorded: Recorded = field(default_factory=Recorded)
    #: Counter of `perf dump` -> what all OSDs together counted, ramp included.
    osd_perf: Mapping[str, float] = field(default_factory=dict)
    proof: Optional[Proof] = None
    problems: tuple[Problem, ...] = ()

    @property
    def identity(self) -> tuple[object, ...]:
        """What a copy of its archive has, too, and no other run."""
        values = ((record.direction, record.iops, record.clat_ns_mean) for record in self.records)
        # Of 16 digits where a newer version went on with the archive, which had 8.
        where, _, digits = self.planned.path.rpartition("-")
        return (where, digits[:8], self.started, *values)


def dimensions_of(planned: PlannedCell) -> dict[str, Scalar]:
    """Scenario, configuration and every parameter that is a plain value."""
    plain = {
        key: value
        for key, value in planned.parameters.items()
        if value is None or isinstance(value, (bool, int, float, str))
    }
    return {"scenario": planned.scenario, "configuration": planned.configuration, **plain}


def read_run(folder: Folder, planned: PlannedCell) -> Run:
    """Read the cell at `planned.path`. Never raises for what the files hold: see `Run.failure`."""
    run = Run(planned, dimensions_of(planned))
    try:
        cell_folder = folder.cell(planned.path)
        cell = cell_folder.document("cell.json", CellDocument)
        if cell is None:
            return replace(run, failure="it has not been run", is_missing=True)
        run = replace(run, started=cell.started, hosts=(*cell.osd_hosts, *cell.clients))
        run = replace(run, deployment=cell.deployment, rate_iops=cell.rate_iops)
        run = replace(run, storage=storage_use(cell), idle=idle_use(cell))
        run = replace(run, disturbance=cell.recovery or cell.scrub)
        run = replace(run, others=other_work(cell))
        run = replace(run, beside=None if cell.group is None else (cell.group, cell.slices))
        run = replace(run, overwritten=times_overwritten(cell), steady_state=cell.steady_state)
        run = replace(run, osd_perf=cell.osd_perf)
        proof = cell_folder.document("proof.json", Proof)
        unlike = _contradiction(planned, cell, proof)
        # What is another cell's, or says both, proves nothing.
        run = replace(run, proof=None if unlike else proof)
        failure = unlike or _refusal(cell, proof)
        if failure is not None:
            return replace(run, failure=failure)
        return _measured(run, cell_folder, cell)
    except Malformed as error:
        return replace(run, failure=str(error))


def read_unproved_run(folder: Folder, planned: PlannedCell, cell: CellDocument) -> Run:
    """Read the run in `folder` of an archive without proofs; `cell` replaces cell.json."""
    run = Run(planned, dimensions_of(planned), hosts=(*cell.osd_hosts, *cell.clients))
    try:
        return _measured(run, folder, cell)
    except Malformed as error:
        return replace(run, failure=str(error))


def _contradiction(
    planned: PlannedCell, cell: CellDocument, proof: Optional[Proof]
) -> Optional[str]:
    """Where the documents of a cell differ, as after a merge by hand or on a damaged disk."""
    for key in ("iteration", "scenario", "configuration", "id"):
        said, wanted = str(getattr(cell, key)), str(getattr(planned, key))
        # Archives of version 0.1 have the first 8 digits of the id.
        if said != wanted and not (key == "id" and said and wanted.startswith(said)):
            return f"cell.json says {key} {said} and plan.json {wanted}; copy the archive again"
    files = [process.json_file for process in cell.processes]
    if len(set(files)) < len(files):
        return "cell.json names the same output for two processes; copy the archive again"
    if proof is not None and proof.configuration != cell.configuration:
        return f"proof.json is of {proof.configuration}, not {cell.configuration}; measure it again"
    if proof is not None and proof.proved and not all(one.proved for one in proof.overlays):
        return "proof.json says proved, and of an overlay that it is not; measure it again"
    return None


def _refusal(cell: CellDocument, proof: Optional[Proof]) -> Optional[str]:
    if cell.state != "finished":
        return cell.reason or f"cell.json has state {cell.state!r} and gives no reason"
    for process in cell.processes:
        if process.exit_status != 0:
            ending = f"exited with status {process.exit_status}"
            if process.exit_status is None:
                ending = "left no exit status"
            return f"{process.host}: the fio process of volume {process.volume} {ending}"
    if not cell.processes:
        return "cell.json names no client process"
    if any(process.kind == documents.KEPT for process in cell.processes):
        return f"the output of {cell.scenario} is kept beside cell.json, and not read"
    if proof is None:
        return "proof.json is missing, and nothing unproved is published"
    if not proof.holds:
        reasons = [f"{o.overlay}: {o.reason}" for o in proof.overlays if not o.proved]
        return f"the configuration is not proved: {'; '.join(reasons)}"
    return None


def _measured(run: Run, folder: Folder, cell: CellDocument) -> Run:
    place = Place(run.planned.path, run.planned.iteration, run.dimensions)
    clients = [
        read_client(folder, process, place, cell.clock_offset_s.get(process.host, 0.0))
        for process in cell.processes
    ]
    problems = [problem for client in clients for problem in client.problems]
    problems += [Problem("", fault) for fault in (cell.caches.faults if cell.caches else ())]
    windows = [client.window for client in clients if client.window is not None]
    run = replace(
        run,
        records=tuple(record for client in clients for record in client.records),
        histograms=_histograms(clients),
        percentiles_ns=clients[0].percentiles_ns if len(clients) == 1 else {},
    )
    if len(windows) < len(clients):
        problems.append(Problem("", "fio says neither when it ran nor for how long"))
        return replace(run, problems=tuple(problems))
    window = common(windows)
    if window.seconds <= 0:
        raise Malformed("the client processes never ran at the same time")
    chosen = cut(clients, windows, window, cell)
    if chosen.doubt:
        problems.append(Problem("", chosen.doubt))
    run = replace(
        run,
        window=chosen.window,
        warmup_s=chosen.warmup_s,
        apart_s=chosen.apart_s,
        start_skew_s=start_skew_s(windows),
    )
    bins = second_bins(folder, clients, chosen.window, problems)
    run = _of_clients(run, clients, bins, chosen, problems)
    return replace(_of_nodes(run, folder, cell, bins, problems), problems=tuple(problems))


def _of_clients(
    run: Run,
    clients: Sequence[Client],
    bins: Mapping[str, SecondBins],
    chosen: Cut,
    problems: list[Problem],
) -> Run:
    """`run` with what all clients did in its window."""
    series = series_of(clients, chosen.window, bins)
    totals = {direction: counted.total for direction, counted in bins.items()}
    if not chosen.from_logs:
        return replace(run, series=series, histograms={**totals, **run.histograms})
    logged = in_window(clients, series, bins)
    sentences = other_seconds(directions_of(clients), logged)
    problems.extend(Problem("", sentence) for sentence in sentences)
    # fio's own bins are of all that it measured; those of the logs are of the window
    merged = {**run.histograms, **totals}
    return replace(run, series=series, in_window=logged, histograms=merged)


def _of_nodes(
    run: Run,
    folder: Folder,
    cell: CellDocument,
    bins: Mapping[str, SecondBins],
    problems: list[Problem],
) -> Run:
    """`run` with what its nodes took in its window, and how sure it is of its figures."""
    assert run.window is not None
    window = run.window
    nodes = _nodes(folder, cell, problems)
    osds = [node for node in nodes if node.host in cell.osd_hosts]
    used = _uses(nodes, window, problems)
    cpu_percent = percent_per_second(osds, window)
    threads = sum(node.series.threads for node in osds)
    perf = tuple(_perf(folder, cell, window, problems))
    counted = hardware_counters.energy_of_osds(folder, cell, problems)
    osd_energy = hardware_counters.energy_used(counted, cell, window, problems)
    watts = hardware_counters.watts_per_second(counted, window) if osd_energy else None
    sampled = client_samples(folder, cell, problems)
    clients = clients_used(sampled, window, problems)
    hosts = {record.host for record in run.records}
    client_cores = cores_per_second(sampled if clients else (), nodes, hosts, window)
    return replace(
        run,
        within=_within(run.series, bins, cpu_percent, threads, watts, client_cores),
        nodes=used,
        osd_nodes=NodesUse.of_hosts(used, cell.osd_hosts),
        cpu_percent=cpu_percent,
        clients=clients,
        perf=perf,
        stacks=hardware_counters.stacks_of_osds(folder, cell, window, problems),
        osd_energy=osd_energy,
        recorded=recorded(folder, cell, window, run.series, problems),
    )


def _within(
    series: Mapping[str, Series],
    bins: Mapping[str, SecondBins],
    cpu_percent: Mapping[str, Floats],
    threads: int,
    watts: Optional[Floats],
    client_cores: Mapping[str, Mapping[str, Floats]],
) -> dict[str, Within]:
    """How sure the run is of its figures, by direction; empty without series."""
    io_total = np.sum([of_direction.iops for of_direction in series.values()], axis=0)
    busy = None
    if cpu_percent:
        busy = np.sum([cpu_percent[state] for state in BUSY_STATES], axis=0) * threads / 100
    by_direction = {}
    for direction, of_direction in series.items():
        counted = bins.get(direction)
        seconds = Seconds(
            iops=of_direction.iops,
            clat_ns_mean=of_direction.clat_ns_mean,
            io_total=io_total,
            cpu_percent=cpu_percent,
            busy_cores=busy,
            watts=watts,
            client_cores=client_cores,
            counts=None if counted is None else counted.counts,
            latencies_ns=None if counted is None else counted.latencies_ns,
        )
        within = within_run(seconds)
        if within is not None:
            by_direction[direction] = within
    return by_direction


def _histograms(clients: Sequence[Client]) -> dict[str, Histogram]:
    merged = {}
    for direction in directions_of(clients):
        active = [c for c in clients if any(r.direction == direction for r in c.records)]
        parts = [c.histograms[direction] for c in active if direction in c.histograms]
        if len(parts) == len(active):
            merged[direction] = merge(parts)
    return merged


def _nodes(folder: Folder, cell: CellDocument, problems: list[Problem]) -> list[NodeSamples]:
    nodes = []
    for host in dict.fromkeys((*cell.osd_hosts, *cell.clients)):
        directory = _samples_of(host, folder, cell)
        if directory is None:
            continue
        try:
            series = _samples(folder.below(directory), host in cell.osd_hosts)
        except Malformed as error:
            problems.append(Problem("", str(error)))
            continue
        nodes.append(NodeSamples(host, series, cell.clock_offset_s.get(host, 0.0)))
    return nodes


def _samples_of(host: str, folder: Folder, cell: CellDocument) -> Optional[str]:
    """Where a host's samples are, or must be; None for a client without any."""
    name = f"collectl.{host}"
    for sampled in (name, f"sampler.{host}"):
        if sampled in folder.names:
            return sampled
    for process in cell.processes:
        directory = process.json_file.rpartition("/")[0]
        if directory and process.host == host and "collectl" in folder.below(directory).names:
            return f"{directory}/collectl"
    return name if host in cell.osd_hosts else None


def _samples(folder: Folder, with_processes: bool) -> NodeSeries:
    names = [name for name in folder.names if name.endswith((".raw", ".raw.gz"))]
    if not names:
        raise Malformed(f"{folder.shown} holds no raw file of samples")
    if len(names) > 1:
        raise Malformed(f"{folder.shown} holds {len(names)} raw files where there can be one")
    try:
        return read_collectl(folder.path(names[0]), with_processes)
    except Malformed as error:
        raise Malformed(f"{folder.label(names[0])} {error}") from None


def _uses(
    nodes: Sequence[NodeSamples], window: Window, problems: list[Problem]
) -> tuple[NodeUse, ...]:
    uses = []
    what = "what was sampled"
    for use in (u for n in nodes for u in window.whole(n.host, n.use(window), what, problems)):
        if _PLAUSIBLE[0] < use.accounted < _PLAUSIBLE[1]:
            uses.append(use)
        else:
            sentence = "its counters do not add up to its processors' time"
            problems.append(Problem("", f"{use.host}: {sentence}; its CPU figures are missing"))
    return tuple(uses)


def _perf(
    folder: Folder, cell: CellDocument, window: Window, problems: list[Problem]
) -> Iterator[hardware_counters.PerfUse]:
    for host in cell.osd_hosts:
        try:
            perf = folder.below(f"perf.{host}")
            use = hardware_counters.read_perf(perf, host, window, cell.started)
        except Malformed as error:
            problems.append(Problem("", str(error)))
            continue
        if use is None:
            continue
        if use.total_s is not None and abs(use.total_s / window.seconds - 1) > _OTHER_TIME:
            seconds = f"{use.total_s:.0f} s, not the window's {window.seconds:.0f} s"
            sentence = f"{host}: perf stat counted a total over {seconds}; -I 1000 tells both"
            problems.append(Problem("", sentence))
        yield use

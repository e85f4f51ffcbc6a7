"""The processor time that client processes took in a window, by user and system.

`hosts.samplers.clients` samples it; docs/archive.md has the format.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import numpy as np

from cbt_crypto.archive.documents import CellDocument
from cbt_crypto.archive.files import Malformed, Problem, read_document
from cbt_crypto.archive.folder import Folder
from cbt_crypto.results.arrays import Floats
from cbt_crypto.results.cell.host_samples import Sampled
from cbt_crypto.results.cell.node import BUSY_STATES, NodeSamples, percent_per_second
from cbt_crypto.results.cell.window import Window

STATES = ("user", "sys")
_HEADER = re.compile(rb"# ticks a second: (\d{1,6})")
_SAMPLE = re.compile(rb"(\d{1,12}(?:\.\d{1,9})?) (\d{1,17}) (\d{1,17})")


@dataclass(frozen=True)
class ClientSeries:
    """User and system seconds of a host's client processes so far; times on the host's clock.

    `cpu_s` has a row a sample, and a column each of `STATES`.
    """

    epoch_s: Floats
    cpu_s: Floats


@dataclass(frozen=True)
class ClientUse:
    """Cores that one host's client processes took, by state, over `seconds` of the window."""

    host: str
    seconds: float
    cores: dict[str, float]


class ClientSamples(Sampled[ClientSeries]):
    """One host's client processes."""

    def use(self, window: Window) -> Optional[ClientUse]:
        """None when no two samples touch the window."""
        times = self.times_s
        start, end = max(window.start_s, float(times[0])), min(window.end_s, float(times[-1]))
        if end <= start:
            return None
        used = [
            np.diff(np.interp([start, end], times, counter))[0] for counter in self.series.cpu_s.T
        ]
        cores = {state: float(seconds) / (end - start) for state, seconds in zip(STATES, used)}
        return ClientUse(self.host, end - start, cores)


def read_client_cpu(path: Path) -> ClientSeries:
    """Read a file of samples. Raises Malformed for one that cannot be trusted as a whole."""
    # What follows the last newline is torn.
    header, *lines = read_document(path).split(b"\n")[:-1] or [b""]
    told = _HEADER.fullmatch(header)
    if told is None or int(told[1]) == 0:
        raise Malformed("does not say how many ticks a second has")
    matches = [_SAMPLE.fullmatch(line) for line in lines]
    if not all(matches) or len(matches) < 2:
        raise Malformed("holds no samples of a time and two counters")
    table = np.array([[float(word) for word in match.groups()] for match in matches if match])
    if (np.diff(table[:, 0]) <= 0).any():
        raise Malformed("has samples whose times go backwards")
    if (np.diff(table[:, 1:], axis=0) < 0).any():
        raise Malformed("has a processor time that goes backwards")
    return ClientSeries(table[:, 0], table[:, 1:] / int(told[1]))


def client_samples(
    folder: Folder, cell: CellDocument, problems: list[Problem]
) -> list[ClientSamples]:
    """Of every host with a client process; empty where one has none, as in older archives."""
    hosts = dict.fromkeys(process.host for process in cell.processes)
    present = set(folder.names)
    samples = []
    for host in hosts:
        name = f"clients_cpu.{host}"
        if name not in present:
            return []
        try:
            series = read_client_cpu(folder.path(name))
        except Malformed as error:
            problems.append(Problem(name, str(error)))
            return []
        samples.append(ClientSamples(host, series, cell.clock_offset_s.get(host, 0.0)))
    return samples


def clients_used(
    samples: Sequence[ClientSamples], window: Window, problems: list[Problem]
) -> tuple[ClientUse, ...]:
    """Of every such host, over the window; empty unless the samples of all of them cover it."""
    uses = []
    for of_host in samples:
        use = of_host.use(window)
        shortfall = window.shortfall(use.seconds if use else 0.0)
        if use is None or shortfall:
            sentence = f"the record of its client processes' CPU {shortfall}"
            problems.append(Problem("", f"{of_host.host}: {sentence}"))
        else:
            uses.append(use)
    return tuple(uses) if len(uses) == len(samples) else ()


def cores_per_second(
    samples: Sequence[ClientSamples],
    nodes: Sequence[NodeSamples],
    hosts: Collection[str],
    window: Window,
) -> dict[str, dict[str, Floats]]:
    """Cores by metric and state in each second: of client processes, and of all on their hosts."""
    return {
        "client_cpu": _of_processes(samples, window),
        "client_hosts_cpu": _of_hosts(nodes, hosts, window),
    }


def _of_processes(samples: Sequence[ClientSamples], window: Window) -> dict[str, Floats]:
    if not samples or window.seconds < 1:
        return {}
    by_state = {}
    for column, state in enumerate(STATES):
        used = [
            np.interp(window.grid_s, of_host.times_s, of_host.series.cpu_s[:, column])
            for of_host in samples
        ]
        by_state[state] = np.diff(np.sum(used, axis=0))
    return by_state


def _of_hosts(
    nodes: Sequence[NodeSamples], hosts: Collection[str], window: Window
) -> dict[str, Floats]:
    """By busy state; empty unless all of them were sampled."""
    chosen = [node for node in nodes if node.host in hosts]
    if len(chosen) != len(hosts):
        return {}
    threads = sum(node.series.threads for node in chosen)
    percents = percent_per_second(chosen, window)
    return {state: percents[state] * threads / 100 for state in BUSY_STATES if percents}

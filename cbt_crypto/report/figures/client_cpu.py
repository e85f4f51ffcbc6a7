"""Processor time that clients take for each IO: of their processes, and of whole client hosts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Optional

import numpy as np

from cbt_crypto.report.figures.rate import per, total_rate
from cbt_crypto.results.cell.node import NodesUse
from cbt_crypto.results.cell.run import Run

#: Makes a figure from the measurements of one cell in one direction.
_Of = Callable[[Sequence[Run], str], Optional[float]]


def of_processes(states: Sequence[str], rate: str, scale: float) -> _Of:
    """CPU time of client processes in these states for each IO or byte; None unless all tell."""

    def of(runs: Sequence[Run], direction: str) -> Optional[float]:
        values = []
        for run in runs:
            cores = sum(use.cores[state] for use in run.clients for state in states)
            value = per(scale * cores, total_rate(run, rate))
            if value is None or not run.clients:
                return None
            values.append(value)
        return float(np.mean(values)) if values else None

    return of


def of_hosts(states: Sequence[str]) -> _Of:
    """The same of all that works on hosts with client processes; None where OSDs are there too."""

    def of(runs: Sequence[Run], direction: str) -> Optional[float]:
        values = []
        for run in runs:
            hosts = {record.host for record in run.records}
            osds = {node.host for node in run.osd_nodes.nodes} if run.osd_nodes else hosts
            use = NodesUse(tuple(node for node in run.nodes if node.host in hosts))
            total = total_rate(run, "iops")
            if len(use.nodes) != len(hosts) or hosts & osds or not total:
                return None
            values.append(1e6 * sum(use.cores(state) for state in states) / total)
        return float(np.mean(values)) if values else None

    return of


def idle(runs: Sequence[Run], direction: str) -> Optional[float]:
    """Of all threads of the hosts with client processes, mean over runs; None unless all tell."""
    values = []
    for run in runs:
        hosts = {record.host for record in run.records}
        use = NodesUse(tuple(node for node in run.nodes if node.host in hosts))
        if len(use.nodes) != len(hosts) or not hosts:
            return None
        values.append(use.percent("idle"))
    return float(np.mean(values)) if values else None

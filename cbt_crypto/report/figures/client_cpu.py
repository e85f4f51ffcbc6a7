"""Processor time that clients take for each IO: of their processes, and of whole client hosts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from cbt_crypto.report.figures.of_runs import Of, mean_of_runs
from cbt_crypto.report.figures.rate import per, total_rate
from cbt_crypto.results.cell.node import NodesUse
from cbt_crypto.results.cell.run import Run


def of_processes(states: Sequence[str], rate: str, scale: float) -> Of:
    """CPU time of client processes in these states for each IO or byte; None unless all tell."""

    def value(run: Run, direction: str) -> Optional[float]:
        if not run.clients:
            return None
        cores = sum(use.cores[state] for use in run.clients for state in states)
        return per(scale * cores, total_rate(run, rate))

    return mean_of_runs(value)


def of_hosts(states: Sequence[str]) -> Of:
    """The same of all that works on hosts with client processes; None where OSDs are there too."""

    def value(run: Run, direction: str) -> Optional[float]:
        use = _client_nodes(run)
        osd_hosts = {node.host for node in run.osd_nodes.nodes} if run.osd_nodes else None
        if use is None or osd_hosts is None or osd_hosts & {node.host for node in use.nodes}:
            return None
        return per(1e6 * sum(use.cores(state) for state in states), total_rate(run, "iops"))

    return mean_of_runs(value)


def idle() -> Of:
    """Of all threads of the hosts with client processes, in percent; None unless all tell."""

    def value(run: Run, direction: str) -> Optional[float]:
        use = _client_nodes(run)
        return None if use is None else use.percent("idle")

    return mean_of_runs(value)


def _client_nodes(run: Run) -> Optional[NodesUse]:
    """The hosts with client processes; None unless each of them tells."""
    return NodesUse.of_hosts(run.nodes, {record.host for record in run.records})

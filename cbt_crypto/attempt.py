"""One attempt at a cell: measured between two probes, and proved by them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from cbt_crypto.archive.json_file import write_json
from cbt_crypto.engine import CellBenchmark
from cbt_crypto.errors import HostError, RunError
from cbt_crypto.plan.cells import Cell
from cbt_crypto.run import neighbours, proof
from cbt_crypto.run.measure import failed_processes


def attempt(
    cell: Cell, benchmark: CellBenchmark, cluster: Any, directory: Path, healthy: bool = False
) -> dict[str, Any]:
    """Measure and prove; return the cell's outcome. Its files are still to be collected.

    `healthy` says that the cluster was seen to be so after all that was done to it. It is
    afterwards. Raises RunError, with the reason, for a cell that must not become a number; its
    files are in `directory` then.
    """
    if not healthy:
        cluster.check_health()
    benchmark.initialize()
    try:
        remote, stack, site = benchmark.remote, benchmark.stack, benchmark.site
        before = proof.probe(remote, stack, site)
        load = neighbours.declared(benchmark.cluster.config)
        with neighbours.running(load, remote, stack, site) as seen:
            benchmark.run()
        outcome = benchmark.outcome
        outcome.update({"neighbours": seen} if seen else {})
        after = proof.probe(remote, stack, site)
        cluster.check_health()
        judged = proof.judge(stack, site, cell.configuration, before, after)
        write_json(directory / "proof.json", judged)
        succeeded = all(process["exit_status"] == 0 for process in outcome["processes"])
        if not succeeded or not judged["proved"]:
            # What fio said belongs into the reason.
            benchmark.collect()
        failed_processes(outcome, directory)
        if not judged["proved"]:
            raise RunError(proof.failure(judged))
    except BaseException:
        with contextlib.suppress(HostError):
            benchmark.cleanup()
        raise
    return outcome

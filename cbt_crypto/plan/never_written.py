"""Reads of what nobody wrote: OSDs answer them from nothing, so they measure no drive."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cbt_crypto.benchmarks.rbd import RbdFio
from cbt_crypto.plan.cells import Cell

#: Modes of fio that read.
_READS = ("read", "randread", "rw", "randrw")


def problems(cells: Sequence[Cell]) -> Iterable[str]:
    """A sentence for each scenario that reads volumes which are not filled."""
    for cell in cells:
        scenario = cell.scenario
        if isinstance(scenario, RbdFio) and not scenario.prefill and scenario.mode in _READS:
            yield (
                f"{scenario.name}: prefill: false with mode: {scenario.mode} reads what was never "
                "written, which OSDs answer without their drives; leave prefill out, or measure "
                "write or randwrite"
            )

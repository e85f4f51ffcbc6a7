"""How what each run of a cell tells becomes one figure of the cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Optional

import numpy as np

from cbt_crypto.results.cell.run import Run

#: Makes a figure from the measurements of one cell in one direction.
Of = Callable[[Sequence[Run], str], Optional[float]]


def mean_of_runs(value: Callable[[Run, str], Optional[float]]) -> Of:
    """Mean over runs; None unless every run tells."""

    def of(runs: Sequence[Run], direction: str) -> Optional[float]:
        values = [value(run, direction) for run in runs]
        known = [one for one in values if one is not None]
        return float(np.mean(known)) if known and len(known) == len(runs) else None

    return of

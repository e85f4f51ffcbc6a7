"""`--spread-from`: how much deployments differed in another archive of the same site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from cbt_crypto.archive.documents import Scalar
from cbt_crypto.report.figures.metric import Metric
from cbt_crypto.report.figures.repeats import Estimate, Value, of_known_spread, variance_of
from cbt_crypto.report.figures.spread import Stretches, values_of

#: Dimensions that may differ between the two campaigns without making another load of it.
_ASIDE = ("pool_profile", "prefill_op_size", "prefill_iodepth", "fio_cmd", "cmd_path")
#: A spread of fewer degrees of freedom, that is of two deployments, is as good as unknown.
_FEWEST_DEGREES = 2


@dataclass(frozen=True)
class KnownLoad:
    """The cells of one load of that archive, by configuration."""

    dimensions: Mapping[str, Scalar]
    direction: str
    cells: Mapping[Scalar, Stretches]


@dataclass(frozen=True)
class KnownSpread:
    """The loads of an archive that was measured in rounds; `name` is how the archive is called."""

    name: str
    loads: tuple[KnownLoad, ...]

    def estimate(
        self,
        metric: Metric,
        dimensions: Mapping[str, Scalar],
        direction: str,
        values: Sequence[Scalar],
        sides: Sequence[Sequence[Value]],
    ) -> Optional[Estimate]:
        """The ratio of two rows that were deployed once; None where that load was not repeated.

        Each row has the variance of its own name there; of a name that is not there the largest.
        """
        load = self._like(dimensions, direction)
        if load is None:
            return None
        variances = [_variance(metric, load, value) for value in values]
        if variances[0] is None or variances[1] is None:
            return None
        centers = [sum(value.log for value in side) / len(side) for side in sides]
        parts = [(variance[0], variance[1], 1) for variance in (variances[0], variances[1])]
        basis = f"one deployment of each; deployments differ as those of {self.name} did"
        return of_known_spread(centers[0] - centers[1], parts, basis)

    def _like(self, dimensions: Mapping[str, Scalar], direction: str) -> Optional[KnownLoad]:
        wanted = _plain(dimensions)
        for load in self.loads:
            if load.direction == direction and _plain(load.dimensions) == wanted:
                return load
        return None


def _variance(metric: Metric, load: KnownLoad, value: Scalar) -> Optional[tuple[float, int]]:
    by_row = {
        name: variance_of(values_of(metric, cell, load.direction))
        for name, cell in load.cells.items()
    }
    of_row = by_row.get(value)
    if of_row is not None and of_row[1] >= _FEWEST_DEGREES:
        return of_row
    others = [
        variance
        for variance in by_row.values()
        if variance is not None and variance[1] >= _FEWEST_DEGREES
    ]
    return max(others, default=None)


def _plain(dimensions: Mapping[str, Scalar]) -> dict[str, Scalar]:
    return {key: value for key, value in dimensions.items() if key not in _ASIDE}

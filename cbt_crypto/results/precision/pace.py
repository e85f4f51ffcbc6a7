"""Which cells of a campaign are known well enough, so that no further block of them is needed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Optional

from cbt_crypto.results.precision.confidence_sequence import interval
from cbt_crypto.results.precision.repetition import FEWEST_PAIRS
from cbt_crypto.results.precision.until import MeasureUntil

#: The report reads the same logs more finely; what just reaches the precision here does so there.
_MARGIN = 0.98


@dataclass(frozen=True)
class Measured:
    """One block: IOPS by direction, and the deployment that it was measured on."""

    deployment: Optional[str]
    iops: Mapping[str, float]


@dataclass
class LoadPace:
    """One load under all configurations. `together` are those that take turns on one cluster.

    `blocks`: configuration -> round -> what was measured.
    """

    until: MeasureUntil
    baseline: str
    together: Sequence[Sequence[str]]
    blocks: dict[str, dict[int, Measured]] = field(default_factory=dict)

    def note(self, configuration: str, turn: int, measured: Measured) -> None:
        """A block was measured."""
        self.blocks.setdefault(configuration, {})[turn] = measured

    def is_settled(self, configuration: str, turn: int) -> bool:
        """Whether the block of that round (from 0) is not needed any more."""
        if turn < self.until.fewest:
            return False
        group = self._group(configuration)
        if len(group) > 1 and turn < FEWEST_PAIRS:
            return False
        if configuration != self.baseline or len(group) == 1:
            return self.half(configuration) <= _MARGIN * self.until.half
        # the baseline is measured for the others
        return all(self.is_settled(name, turn) for name in group if name != self.baseline)

    def half(self, configuration: str) -> float:
        """Half the interval of the logarithm of the percent, of its widest direction.

        Where the baseline is on another cluster, that of a percent between two cells which are
        both known as well as this one; what another deployment would change is not in it.
        """
        group = self._group(configuration)
        paired = self.baseline in group and configuration != self.baseline
        blocks = self.blocks.get(configuration, {})
        baseline = self.blocks.get(self.baseline, {}) if paired else None
        names = sorted({name for block in blocks.values() for name in block.iops})
        halves = (interval(_logs(blocks, baseline, name)).half for name in names)
        widest = max(halves, default=math.inf)
        return widest if paired else widest * math.sqrt(2)

    def _group(self, configuration: str) -> Sequence[str]:
        """The configurations that take turns at this load, itself included."""
        group = next((g for g in self.together if configuration in g), [configuration])
        return [name for name in group if name in self.blocks or name == configuration]


def _logs(
    blocks: Mapping[int, Measured], baseline: Optional[Mapping[int, Measured]], direction: str
) -> list[float]:
    """Logarithms of each block, or of each pair of one round on one deployment, in order."""
    logs = []
    for turn, block in sorted(blocks.items()):
        value = block.iops.get(direction, 0.0)
        if baseline is not None:
            base = baseline.get(turn)
            if base is None or base.deployment != block.deployment:
                continue
            value = _ratio(value, base.iops.get(direction, 0.0))
        if value > 0:
            logs.append(math.log(value))
    return logs


def _ratio(value: float, base: float) -> float:
    return value / base if base > 0 else 0.0

"""Which cells of a campaign are known well enough, so that no further block of them is needed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Optional

from cbt_crypto.results.precision import deployments
from cbt_crypto.results.precision.confidence_sequence import interval
from cbt_crypto.results.precision.deployments import FIRST, FIRST_APART, FIRST_SHARED
from cbt_crypto.results.precision.repetition import FEWEST_PAIRS
from cbt_crypto.results.precision.until import MeasureUntil

#: The report reads the same logs more finely; what just reaches the precision here does so there.
MARGIN = 0.98


@dataclass(frozen=True)
class Measured:
    """One block: its figures by name and direction, and the deployment it was measured on.

    `slices`: the number of that deployment when it was planned, where groups stand side by side.
    """

    deployment: Optional[str]
    figures: Mapping[str, float]
    slices: Optional[int] = None


@dataclass
class LoadPace:
    """One load under all configurations. `together` are those that take turns on one cluster.

    `blocks`: configuration -> round -> what was measured. `turns` are those on each deployment,
    where deployments are added until it is known; None where no deployment follows. `beside`: all
    configurations stand on each of these.
    """

    until: MeasureUntil
    baseline: str
    together: Sequence[Sequence[str]]
    blocks: dict[str, dict[int, Measured]] = field(default_factory=dict)
    turns: Optional[int] = None
    beside: bool = False

    @property
    def fewest(self) -> int:
        """The rounds that are measured in any case."""
        return self.until.fewest if self.turns is None else self.until.fewest_of(self.turns)

    def note(self, configuration: str, turn: int, measured: Measured) -> None:
        """A block was measured."""
        self.blocks.setdefault(configuration, {})[turn] = measured

    def is_settled(self, configuration: str, turn: int) -> bool:
        """Whether the block of that round (from 0) is not needed any more."""
        if turn < self.fewest:
            return False
        if self.turns is not None:
            return self._is_settled(configuration, turn - turn % self.turns)
        group = self._group(configuration)
        if len(group) > 1 and turn < FEWEST_PAIRS:
            return False
        if configuration != self.baseline or len(group) == 1:
            return self.half(configuration) <= MARGIN * self.until.half
        # the baseline is measured for the others
        return all(self.is_settled(name, turn) for name in group if name != self.baseline)

    def _is_settled(self, configuration: str, begun: int) -> bool:
        """Whether it was by the end of the deployments before that round."""
        others = [name for name in self.blocks if name != self.baseline]
        names = others if configuration == self.baseline else [configuration]
        return bool(names) and all(
            self.half_of_deployments(name, begun) <= MARGIN * self.until.half for name in names
        )

    def half_of_deployments(self, configuration: str, begun: int) -> float:
        """Half the interval of the logarithm of the percent, of its widest figure.

        Of the rounds before `begun`, where each deployment is one value.
        """
        blocks = self.blocks.get(configuration, {})
        baseline = self.blocks.get(self.baseline, {})
        pairs = [
            (turn, blocks[turn], baseline[turn])
            for turn in sorted(blocks)
            if turn < begun and turn in baseline
        ]
        names = {name for _, block, _ in pairs for name in block.figures}
        return max((self._half(pairs, name) for name in names), default=math.inf)

    def _half(self, pairs: Sequence[tuple[int, Measured, Measured]], figure: str) -> float:
        """The same of one figure."""
        logs = [
            (turn, own, base, [math.log(block.figures[figure]) for block in (own, base)])
            for turn, own, base in pairs
            if min(block.figures.get(figure, 0.0) for block in (own, base)) > 0
        ]
        if self.beside:
            ratios = deployments.on_one_cluster(
                (self._planned(turn, own), own.deployment, base.deployment, values[0] - values[1])
                for turn, own, base, values in logs
            )
            is_known = len(ratios) >= FIRST
            return deployments.beside(list(ratios.values())).half if is_known else math.inf
        rounds = [(values[0], values[1]) for *_, values in logs]
        count = len(rounds)
        if any(own.deployment == base.deployment for _, own, base in pairs):
            differences = [own - base for own, base in rounds]
            return math.inf if count < FIRST_SHARED else deployments.shared(differences).half
        return math.inf if count < FIRST_APART else deployments.apart(rounds).half

    def _planned(self, turn: int, measured: Measured) -> int:
        """The number of a deployment; where the file had other turns before, the block knows it."""
        return turn // (self.turns or 1) if measured.slices is None else measured.slices

    def half(self, configuration: str) -> float:
        """Half the interval of the logarithm of the percent, of its widest figure.

        Where the baseline is on another cluster, that of a percent between two cells which are
        both known as well as this one; what another deployment would change is not in it.
        """
        group = self._group(configuration)
        paired = self.baseline in group and configuration != self.baseline
        blocks = self.blocks.get(configuration, {})
        baseline = self.blocks.get(self.baseline, {}) if paired else None
        names = sorted({name for block in blocks.values() for name in block.figures})
        halves = (interval(_logs(blocks, baseline, name)).half for name in names)
        widest = max(halves, default=math.inf)
        return widest if paired else widest * math.sqrt(2)

    def _group(self, configuration: str) -> Sequence[str]:
        """The configurations that take turns at this load, itself included."""
        group = next((g for g in self.together if configuration in g), [configuration])
        return [name for name in group if name in self.blocks or name == configuration]


def _logs(
    blocks: Mapping[int, Measured], baseline: Optional[Mapping[int, Measured]], figure: str
) -> list[float]:
    """Logarithms of each block, or of each pair of one round on one deployment, in order."""
    logs = []
    for turn, block in sorted(blocks.items()):
        value = block.figures.get(figure, 0.0)
        if baseline is not None:
            base = baseline.get(turn)
            if base is None or base.deployment != block.deployment:
                continue
            value = _ratio(value, base.figures.get(figure, 0.0))
        if value > 0:
            logs.append(math.log(value))
    return logs


def _ratio(value: float, base: float) -> float:
    return value / base if base > 0 else 0.0

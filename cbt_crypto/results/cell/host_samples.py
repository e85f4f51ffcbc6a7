"""What a host sampled on its own clock, brought to the head's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from cbt_crypto.results.arrays import Floats


class Samples(Protocol):
    """Samples with their times on the host's clock, in s since the epoch."""

    @property
    def epoch_s(self) -> Floats:
        """When each was taken."""


AnySamples = TypeVar("AnySamples", bound=Samples)


@dataclass(frozen=True)
class Sampled(Generic[AnySamples]):
    """One host's samples and its clock minus the head's, in s."""

    host: str
    series: AnySamples
    offset_s: float

    @property
    def times_s(self) -> Floats:
        """When the samples were taken, on the head's clock."""
        times: Floats = self.series.epoch_s - self.offset_s
        return times

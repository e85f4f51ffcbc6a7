"""Which differences are shown: family-wise over a report, by Holm's rule.

Of twenty comparisons without a difference one is outside of its own 95 % interval. What is printed
in bold must hold together: with a chance of 95 % none of it is wrong (S. Holm, "A simple
sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6(2), 1979).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

from cbt_crypto.results.repetition import ALPHA

KeyT = TypeVar("KeyT", bound=Hashable)


def differing(p_values: Mapping[KeyT, float], more: int = 0) -> dict[KeyT, bool]:
    """Key -> whether its difference is shown. `more` comparisons are counted without a p."""
    ordered = sorted(p_values, key=lambda key: p_values[key])
    verdicts: dict[KeyT, bool] = {}
    shown = True
    for rank, key in enumerate(ordered):
        shown = shown and p_values[key] <= ALPHA / (len(ordered) + more - rank)
        verdicts[key] = shown
    return verdicts

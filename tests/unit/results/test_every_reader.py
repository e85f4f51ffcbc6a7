"""Everything that reads what others wrote, on inputs that Hypothesis makes from real ones.

`make fuzz` gives the same readers many more, guided by coverage.
"""

from __future__ import annotations

import pytest
from fuzz_targets import TARGETS
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.unit


@st.composite
def damaged(draw: st.DrawFn, seeds: tuple[bytes, ...]) -> bytes:
    """A real input with some pieces cut out, repeated, or replaced."""
    data = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 40)))
        instead = draw(st.binary(max_size=20) | st.just(data[start:end] * 2))
        data = data[:start] + instead + data[end:]
    return data


@pytest.mark.parametrize("name", TARGETS)
def test_a_value_or_a_sentence(name: str) -> None:
    target = TARGETS[name]
    for seed in target.seeds:
        target(seed)

    @settings(max_examples=100)
    @given(st.binary(max_size=200) | damaged(target.seeds))
    def each(data: bytes) -> None:
        target(data)

    each()

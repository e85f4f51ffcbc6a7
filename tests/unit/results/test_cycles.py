"""Cycles in a latency: found with their period, and not where there is only noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cbt_crypto.results.cell.cycles import cycle_of, period_of
from cbt_crypto.results.cell.record import Floats

pytestmark = pytest.mark.unit

Bools = np.ndarray[Any, np.dtype[np.bool_]]


def noise(length: int, memory: float, seed: int, tails: bool = False) -> Floats:
    """A latency in ns for each second that remembers the one before."""
    rng = np.random.default_rng(seed)
    steps = rng.standard_t(2.5, length) if tails else rng.standard_normal(length)
    for second in range(1, length):
        steps[second] += memory * steps[second - 1]
    latency: Floats = 1e6 * np.exp(0.2 * steps)
    return latency


def spikes(length: int, period: float, width: int = 1, first: int = 3) -> Bools:
    """Which seconds are in one."""
    seconds = np.arange(length)
    return (seconds - first) % period < width


@pytest.mark.parametrize(("length", "period"), [(60, 5), (60, 8), (120, 10), (300, 17)])
def test_spikes_that_come_back_have_a_period(length: int, period: float) -> None:
    for seed in range(5):
        latency = noise(length, 0.5, seed)
        latency[spikes(length, period)] *= 2.5
        found = period_of(latency)
        assert found is not None
        assert found == pytest.approx(period, rel=0.06)


def test_a_wave_is_found_although_seconds_are_missing() -> None:
    latency = noise(200, 0.5, 1) * (1 + 0.5 * np.sin(np.arange(200) * 2 * np.pi / 20))
    latency[[17, 80, 81]] = np.nan
    assert period_of(latency) == pytest.approx(20, rel=0.06)


@pytest.mark.parametrize("tails", [False, True])
@pytest.mark.parametrize("memory", [0.0, 0.5, 0.95])
def test_noise_has_no_cycle(memory: float, tails: bool) -> None:
    found = [period_of(noise(120, memory, seed, tails)) for seed in range(200)]
    # one in a hundred; of 200 at most 7 in 999 of 1,000 such tests
    assert sum(period is not None for period in found) <= 7


@pytest.mark.parametrize("kind", ["short", "level", "unknown", "one step", "one spike"])
def test_what_cannot_have_a_cycle_has_none(kind: str) -> None:
    latency = noise(200, 0.3, 4)
    if kind == "short":
        latency = latency[:30]
    elif kind == "level":
        latency = np.full(200, 1e6)
    elif kind == "unknown":
        latency[::3] = np.nan
    elif kind == "one step":
        latency[120:] *= 3
    else:
        latency[77:80] *= 100
    assert period_of(latency) is None


def test_only_what_works_in_the_same_cycle_shares_it() -> None:
    busy = spikes(120, 12, 2)
    latency = noise(120, 0.3, 5) * np.where(busy, 3.0, 1.0)
    rng = np.random.default_rng(6)
    beside = {
        "rocksdb:low": np.where(busy, 0.8, 0.0) + 0.02 * rng.random(120),
        "msgr-worker": 0.5 + 0.2 * rng.random(120),
        "tp_osd_tp": np.where(spikes(120, 7, 2), 0.9, 0.1) + 0.02 * rng.random(120),
        # in step, and next to nothing
        "ceph-rest": np.where(busy, 0.003, 0.0),
    }
    cycle = cycle_of("write", latency, beside)
    assert cycle is not None
    assert cycle.period_s == pytest.approx(12, rel=0.06)
    assert cycle.shared == ("rocksdb:low",)

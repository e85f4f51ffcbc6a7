"""How much the throughput of single seconds varies."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cbt_crypto.report.figures.metric import BY_KEY

pytestmark = pytest.mark.unit
KEY = "iops_variation_percent"


def _run(*iops: float) -> Any:
    return SimpleNamespace(series={"read": SimpleNamespace(is_whole=True, iops=np.array(iops))})


def test_it_is_the_mean_over_runs() -> None:
    """Of 90 and 110 the deviation is 14.142 of 100; of 100 and 100 nothing."""
    of = BY_KEY[KEY].of
    assert of([_run(90, 110)], "read") == pytest.approx(14.142, abs=1e-3)
    assert of([_run(90, 110), _run(100, 100)], "read") == pytest.approx(7.071, abs=1e-3)


def test_it_takes_two_seconds_of_every_run() -> None:
    of = BY_KEY[KEY].of
    assert of([_run(90, 110), _run(100)], "read") is None
    assert of([_run(90, 110)], "write") is None
    assert of([_run(0, 0)], "read") is None

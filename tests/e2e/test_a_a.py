"""Two names for one configuration, and one that encrypts, on real Ceph: what the report says.

A machine that does something else besides may hide any difference, and one interval in twenty is
wrong by right: so no verdict is asserted here, only what holds but once in a thousand times.
`perf/a_a.py` asks for the verdicts.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
ROUNDS, SECONDS = 3, 8


@pytest.fixture(scope="module")
def a_a() -> ModuleType:
    spec = importlib.util.spec_from_file_location("a_a", ROOT / "perf/a_a.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_same_configuration_twice_and_one_that_encrypts(needs_ceph, a_a, tmp_path):
    campaign = a_a.write_campaign(tmp_path, ROUNDS, SECONDS, small=True)
    archive = tmp_path / "archive"
    a_a.measure(campaign, archive)
    whole, *rounds = a_a.judge(archive)
    (twin,), (other,) = whole.of(a_a.TWIN), whole.of(a_a.OTHER)
    for cell in (twin, other):
        assert "in rounds" in cell.iops.basis
        assert cell.iops.low < cell.iops.percent < cell.iops.high
    # with one degree of freedom, five times the interval leaves one chance in a hundred
    half = math.log(twin.iops.high / twin.iops.percent)
    assert abs(math.log(twin.iops.percent / 100)) < 5 * half
    assert other.iops.low < 100, "encryption made it significantly faster"
    assert len(rounds) == ROUNDS
    for report in rounds:
        assert all("of one deployment; no verdict" in cell.iops.basis for cell in report.cells)
        assert all(cell.verdict == "no verdict" for cell in report.cells)

"""What a recovery took stands in every form of the report; clients' latency is of its seconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cbt_crypto.archive.documents import Recovery, Scrub
from cbt_crypto.report import build
from cbt_crypto.report.figures import of_runs
from cbt_crypto.report.markdown import markdown
from cbt_crypto.results.cell.in_window import Series

pytestmark = pytest.mark.unit

TIMES = {"osd": 2, "out_at": 1003.5, "clean_after_out_s": 2.0, "in_at": 1005.5,
         "clean_after_in_s": 1.0}  # fmt: skip


class _Run:
    def __init__(self) -> None:
        iops = np.array([10.0, 10, 10, 10, 5, 5, 4, 10])
        self.disturbance: Any = Recovery(**TIMES)
        self.series = {"read": Series(1000.0, iops, 1e6 * iops, 1e6 * iops)}


def test_the_seconds_are_those_that_it_lasted() -> None:
    """Out in the middle of the fourth second, clean in the middle of the seventh."""
    runs: Any = [_Run()]
    assert of_runs.before("iops")(runs, "read") == 10.0
    assert of_runs.meanwhile("iops")(runs, "read") == np.mean([10, 5, 5, 4])
    weighted = np.average([10, 5, 5, 4], weights=[10, 5, 5, 4])
    assert of_runs.meanwhile("clat_ns_mean")(runs, "read") == pytest.approx(1e6 * weighted)
    assert of_runs.told("disturbance", "clean_after_out_s")(runs, "read") == 2.0
    assert of_runs.meanwhile("iops")(runs, "write") is None


def test_a_scrub_has_its_seconds_too() -> None:
    run: Any = _Run()
    run.disturbance = Scrub(groups=8, scrub_at=1004.0, scrubbed_after_s=2.5)
    assert of_runs.before("iops")([run], "read") == 10.0
    assert of_runs.meanwhile("iops")([run], "read") == np.mean([5, 5, 4])
    assert of_runs.told("disturbance", "scrubbed_after_s")([run], "read") == 2.5
    assert of_runs.told("disturbance", "clean_after_out_s")([run], "read") is None


def test_a_scrub_is_a_row_s_figure(small: Path) -> None:
    for path in small.glob("results/0*/id-*/cell.json"):
        cell = json.loads(path.read_text())
        cell["scrub"] = {"deep": True, "groups": 8, "scrub_at": cell["started"] + 5,
                         "scrubbed_after_s": 2.0}  # fmt: skip
        path.write_text(json.dumps(cell))
    report = build(small)
    assert {cell.figures["scrub_s"] for cell in report.cells} == {2.0}
    assert "scrub, s" in markdown(report)


def test_it_is_a_row_s_figures(small: Path) -> None:
    for path in small.glob("results/0*/id-*/cell.json"):
        cell = json.loads(path.read_text())
        begin = cell["started"] + 5
        lasts = 4.0 if cell["configuration"] == "LUKS" else 2.0
        cell["recovery"] = {"osd": 1, "out_at": begin, "clean_after_out_s": lasts,
                            "in_at": begin + lasts, "clean_after_in_s": 1.0}  # fmt: skip
        path.write_text(json.dumps(cell))
    report = build(small)
    luks = [cell for cell in report.cells if cell.name == "LUKS"]
    assert {cell.figures["recovery_osd_out_s"] for cell in luks} == {4.0}
    assert {cell.comparisons["recovery_osd_out_s"].percent for cell in luks} == {200.0}
    assert all(cell.figures["recovery_iops"] > 0 for cell in luks)
    assert "OSD out, s to clean" in markdown(report)


def test_without_one_there_is_no_column(small: Path) -> None:
    assert "OSD out" not in markdown(build(small))

"""Effects and interactions of a matrix, against the four rows by hand."""

from __future__ import annotations

import json
import math
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from cbt_crypto.archive.documents import crossed
from cbt_crypto.errors import UsageError
from cbt_crypto.report import build
from cbt_crypto.report.document import document, reopened
from cbt_crypto.report.figures.factors import APART, contrasts
from cbt_crypto.report.markdown import markdown
from cbt_crypto.report.page import page
from cbt_crypto.results.repetition import student

pytestmark = pytest.mark.unit

MATRIX: dict[str, Any] = {
    "wire": {"crc": {}, "secure": {"secure_messenger": {}}},
    "cores": {"all": {}, "one": {"cpuset": {"osd_cores": 1}}},
}
ROWS = {
    "crc, all": (1000.0, 1010.0, 990.0, 1004.0),
    "crc, one": (500.0, 495.0, 503.0, 498.0),
    "secure, all": (800.0, 812.0, 795.0, 801.0),
    "secure, one": (200.0, 203.0, 199.0, 202.0),
}


@pytest.fixture
def archive(tmp_path: Path, synthetic: Any) -> Path:
    """Four rounds of the four rows, each on a deployment of its own."""
    campaign = synthetic.SyntheticCampaign(
        scenarios=[synthetic.SyntheticScenario("rbd_multi_client", 1, 1, (4096,))],
        configurations=list(ROWS),
        load=lambda cell: synthetic.Load(ROWS[cell.configuration][cell.iteration], 2.0),
        seconds=12, iterations=4, rounds=True,
    )  # fmt: skip
    written = Path(synthetic.write_archive(campaign, tmp_path / "archive"))
    path = written / "results" / "plan.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "matrix": MATRIX}))
    return written


def by_hand(weights: dict[str, float]) -> tuple[float, float, float]:
    """Percent, low and high: Student's interval of the rounds' logarithms, sides apart."""
    rounds = [
        [sum(w * math.log(ROWS[name][n]) for name, w in weights.items() if (w > 0) == is_more)
         for is_more in (True, False)]
        for n in range(4)
    ]  # fmt: skip

    def variance(values: list[float]) -> float:
        return sum((a - b) ** 2 for a, b in combinations(values, 2)) / 12

    sums = [sum(both) for both in rounds]
    center = sum(sums) / 4
    largest = max(variance(sums), sum(variance([both[n] for both in rounds]) for n in (0, 1)))
    half = student(3) * math.sqrt(largest / 4)
    percent, low, high = (100 * math.exp(center + sign * half) for sign in (0, -1, 1))
    return percent, low, high


def test_the_interaction_and_each_effect_are_those_of_the_four_rows(archive: Path) -> None:
    report = build(archive)
    section = report.tables[0].sections[0]
    found = {effect.name: effect for effect in section.effects}
    rows = {
        "wire: secure": {
            "secure, all": 0.5, "secure, one": 0.5, "crc, all": -0.5, "crc, one": -0.5,
        },
        "cores: one": {
            "crc, one": 0.5, "secure, one": 0.5, "crc, all": -0.5, "secure, all": -0.5,
        },
        "secure with one": {"secure, one": 1, "crc, all": 1, "secure, all": -1, "crc, one": -1},
    }  # fmt: skip
    assert list(found) == list(rows)
    for name, weights in rows.items():
        iops = found[name].iops
        assert (iops.percent, iops.low, iops.high) == pytest.approx(by_hand(weights), rel=2e-3)
        assert iops.differs
    percents = {cell.name: cell.comparisons["iops"].percent for cell in section.cells}
    alone = percents["secure, all"] * percents["crc, one"] / 100
    together = found["secure with one"].iops
    assert together.percent == pytest.approx(100 * percents["secure, one"] / alone)
    assert 49 < together.percent < 52


def test_every_output_has_them(archive: Path) -> None:
    report = build(archive)
    assert any(
        text.startswith("secure with one: 4 KiB") and "50 % of what both effects," in text
        for text in report.headline
    )
    assert f"secure with one | {APART}" in markdown(report)
    assert "Levels, alone and together" in page(report)
    again = reopened(json.dumps(document(report)).encode())
    assert again.tables[0].sections[0].effects == report.tables[0].sections[0].effects


def test_a_row_that_failed_has_no_part_in_any(archive: Path) -> None:
    for path in (archive / "results").glob("**/cell.json"):
        cell = json.loads(path.read_text())
        if (cell["configuration"], cell["iteration"]) == ("secure, one", 1):
            path.write_text(json.dumps({**cell, "state": "failed", "reason": "x"}))
    assert not build(archive).tables[0].sections[0].effects


def test_three_factors_and_three_levels() -> None:
    matrix = {"a": {"0": {}, "1": {}, "2": {}}, "b": {"0": {}, "1": {}}, "c": {"0": {}, "1": {}}}
    found = list(contrasts({f: {f + level: {} for level in of} for f, of in matrix.items()}))
    assert [one.name for one in found] == [
        "a: a1", "a: a2", "b: b1", "c: c1", "a1 with b1", "a2 with b1", "a1 with c1",
        "a2 with c1", "b1 with c1",
    ]  # fmt: skip
    assert {len(one.more) for one in found} == {4, 6}
    assert all(len(one.more) == len(one.less) for one in found)
    both = found[4]
    assert set(both.more) == {"a1, b1, c0", "a1, b1, c1", "a0, b0, c0", "a0, b0, c1"}
    assert set(both.less) == {"a1, b0, c0", "a1, b0, c1", "a0, b1, c0", "a0, b1, c1"}


def test_a_matrix_makes_ordinary_configurations(campaign_of: Any) -> None:
    campaign = campaign_of(cluster={"matrix": MATRIX, "configurations": ...})
    assert [name for name in campaign.configurations if name != "control"] == list(crossed(MATRIX))
    assert campaign.baseline == "crc, all"
    overlays = [each.name for each in campaign.configurations["secure, one"] if each.is_present]
    assert overlays == ["secure_messenger", "cpuset"]


OPTIONS = {"ceph_options": {"osd": {"osd_op_queue": "wpq"}}}
SHARDS = {"ceph_options": {"osd": {"osd_op_num_shards": 2}}}


@pytest.mark.parametrize(
    ("matrix", "sentence"),
    [
        ({"wire": MATRIX["wire"]}, "takes two factors or more"),
        ({**MATRIX, "wire": {"crc": {}}}, "takes two factors or more"),
        ({**MATRIX, "x": {str(n): {} for n in range(17)}}, "at most 64 configurations"),
        ({**MATRIX, "x": {"a": {}, "b": {"cpusett": {}}}}, "x.b.cpusett: unknown overlay"),
        (
            {"a": {"0": {}, "1": OPTIONS}, "b": {"0": {}, "1": OPTIONS}},
            "b.1: sets ceph_options.osd.osd_op_queue, as another factor does",
        ),
        ({"a": {"x": {}, "x, y": {}}, "b": {"y, z": {}, "z": {}}}, "one configuration twice"),
    ],
)  # fmt: skip
def test_what_is_no_matrix(campaign_of: Any, matrix: Any, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        campaign_of(cluster={"matrix": matrix, "configurations": ...})


def test_two_factors_may_set_different_options_of_one_overlay(campaign_of: Any) -> None:
    matrix = {"queue": {"default": {}, "wpq": OPTIONS}, "shards": {"default": {}, "two": SHARDS}}
    made = campaign_of(cluster={"matrix": matrix, "configurations": ...}).document["cluster"]
    assert made["configurations"]["wpq, two"] == {
        "ceph_options": {"osd": {"osd_op_queue": "wpq", "osd_op_num_shards": 2}}
    }
    assert matrix["queue"]["wpq"] is OPTIONS and list(OPTIONS["ceph_options"]["osd"]) == [
        "osd_op_queue"
    ]


def test_configurations_beside_a_matrix_are_refused(campaign_of: Any) -> None:
    with pytest.raises(UsageError, match=r"configurations: are made of cluster.matrix"):
        campaign_of(cluster={"matrix": MATRIX, "configurations": {"A": {}}})

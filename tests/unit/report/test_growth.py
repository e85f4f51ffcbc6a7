"""From how many clients on throughput does not grow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cbt_crypto.report import build

pytestmark = pytest.mark.unit

IOPS = {1: 1000.0, 2: 1900.0, 5: 2600.0, 10: 2610.0}
WOBBLE = (1.0, 1.01, 0.995, 1.004)


@pytest.mark.parametrize(
    ("most", "sentence"),
    [
        (10, "grow significantly up to clients 5; 10 did 100 % of that ("),
        (5, "grow significantly up to clients 5."),
    ],
)
def test_the_headline_says_from_where_on(
    tmp_path: Path, synthetic: Any, most: int, sentence: str
) -> None:
    """Depths stand for numbers of clients: the archive's plan is written over."""
    counts = [count for count in IOPS if count <= most]
    campaign = synthetic.SyntheticCampaign(
        scenarios=[synthetic.SyntheticScenario("rbd_multi_client", 1, 1, tuple(counts))],
        configurations=["Default"],
        load=lambda cell: synthetic.Load(
            IOPS[cell.op_size] * WOBBLE[(cell.iteration + cell.op_size) % 4], 2.0
        ),
        seconds=12, iterations=4, rounds=True,
    )  # fmt: skip
    archive = Path(synthetic.write_archive(campaign, tmp_path / "archive"))
    path = archive / "results" / "plan.json"
    plan = json.loads(path.read_text())
    for cell in plan["cells"]:
        cell["parameters"]["clients"] = cell["parameters"]["op_size"]
        cell["parameters"]["op_size"] = 4096
    path.write_text(json.dumps({**plan, "baseline": {"dimension": "clients", "value": 1}}))
    assert any(sentence in said for said in build(archive).headline)

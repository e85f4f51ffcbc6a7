"""Block lengths and draws of the moving-block bootstrap, as the package `arch` had them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cbt_crypto.results.cell.within_run import drawn_weights, optimal_block_length

pytestmark = pytest.mark.unit

RECORDED = json.loads((Path(__file__).parent / "block_bootstrap.json").read_text())


@pytest.mark.parametrize("case", RECORDED["block lengths"], ids=lambda case: len(case["series"]))
def test_block_lengths_are_those_of_the_paper(case: dict[str, Any]) -> None:
    with np.errstate(divide="ignore"):
        length = optimal_block_length(np.array(case["series"], np.float64))
    assert length == pytest.approx(case["length"], rel=1e-9)


@pytest.mark.parametrize("case", RECORDED["draws"], ids=lambda case: case["length"])
def test_draws_are_whole_blocks(case: dict[str, Any]) -> None:
    weights = drawn_weights(case["length"], case["block"])
    assert weights.sum(axis=1).tolist() == [case["length"]] * len(weights)
    assert weights[0].tolist() == case["first"] and weights[-1].tolist() == case["last"]

"""docs/figures.md describes every figure of a report by its key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cbt_crypto.report.figures.metric import METRICS

pytestmark = pytest.mark.unit

PAGE = Path(__file__).parents[3] / "docs" / "figures.md"


def test_every_figure_is_described() -> None:
    words = set(re.findall(r"`([^`\s]+)`", PAGE.read_text(encoding="utf-8")))
    patterns = [re.escape(word).replace("<state>", "[a-z]+") for word in words]
    described = re.compile("|".join(patterns))
    assert [metric.key for metric in METRICS if not described.fullmatch(metric.key)] == []

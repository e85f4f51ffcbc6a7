"""The table of docs/safety.md is that of the test which tries each of its fields on real Ceph."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[3]


def test_the_page_has_the_table_of_the_test() -> None:
    spec = importlib.util.spec_from_file_location("ways", ROOT / "tests/e2e/test_way_out.py")
    assert spec is not None and spec.loader is not None
    ways = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(ways)
    assert ways.table() in (ROOT / "docs/safety.md").read_text()

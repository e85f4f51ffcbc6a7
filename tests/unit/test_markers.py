"""Every test says what it needs, or `pytest -m unit` leaves it out without a word."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("kind", ["unit", "contract", "e2e", "lab"])
def test_a_file_of_tests_has_the_marker_of_its_folder(kind: str) -> None:
    files = sorted((TESTS / kind).rglob("test_*.py"))
    assert files
    marker = f"pytest.mark.{kind}"
    assert [str(path) for path in files if marker not in path.read_text()] == []

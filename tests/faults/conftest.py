"""The lab that all faults share, and the table that they write."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_lab import Laboratory
from fault_story import Story
from fault_table import Table

_DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "faults.md"


@pytest.fixture(scope="session")
def laboratory() -> Iterator[Laboratory]:
    if os.geteuid() != 0:
        pytest.skip("namespace nodes need root")
    made = Laboratory(f"faults-{os.getpid()}")
    yield made
    made.down()


@pytest.fixture
def lab(laboratory: Laboratory) -> Iterator[Laboratory]:
    laboratory.clear()
    yield laboratory


@pytest.fixture
def table() -> Table:
    """Rows are kept as they come: a run of some faults leaves the rows of the others."""
    return Table(_DOCUMENT)


@pytest.fixture
def story(lab: Laboratory, table: Table, tmp_path: Path) -> Story:
    return Story(lab, table, tmp_path)

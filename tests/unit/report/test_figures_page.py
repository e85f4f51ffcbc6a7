"""docs/figures.md has the table of all figures, and what shows figures takes them from there."""

from __future__ import annotations

import pytest
from figures_reference import BEGIN, END, PAGE, reference

from cbt_crypto.report.figures.metric import METRICS, Where

pytestmark = pytest.mark.unit


def test_the_page_has_the_table_of_all_figures() -> None:
    _, _, after = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    table, _, _ = after.partition(END)
    command = "python tests/programs/figures_reference.py"
    assert table == reference(), f"`{command}` writes it"


def test_every_figure_has_a_row_and_no_two_have_one_key() -> None:
    assert all(f"`{metric.key}`" in reference() for metric in METRICS)
    assert len({metric.key for metric in METRICS}) == len(METRICS)


def test_columns_of_a_terminal_have_a_rank() -> None:
    shown = [m.column for m in METRICS if m.column and m.column.where is Where.TERMINAL]
    assert shown and all(column.rank < 9 for column in shown)

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbt_crypto.results.readers.number_columns import BLOCK, Columns, parse_columns

pytestmark = pytest.mark.unit

ROW = st.lists(st.integers(0, 10**16 - 1), min_size=3, max_size=3)


def _parsed(text: bytes, width: int) -> Columns:
    """All blocks together."""
    blocks = [Columns(np.empty((0, width), np.int64), 0), *parse_columns(text, width)]
    values = np.concatenate([block.values for block in blocks])
    return Columns(values, sum(block.torn for block in blocks))


def _plainly(text: bytes, width: int) -> list[list[int]]:
    """Parse one line after another."""
    rows = []
    for line in text.split(b"\n")[:-1]:
        fields = line.split(b",")
        if len(fields) == width and all(re.fullmatch(rb" ?\d{1,16}", f) for f in fields):
            rows.append([int(field) for field in fields])
    return rows


@given(st.lists(ROW, max_size=30))
def test_every_number_comes_back(rows):
    text = b"".join(b"%d, %d,%d\n" % tuple(row) for row in rows)
    columns = _parsed(text, 3)
    assert columns.values.tolist() == rows
    assert columns.torn == 0


@settings(max_examples=300)
@given(st.lists(st.sampled_from([b"1", b"23", b"9876543210", b",", b", ", b"\n", b"x", b"-"])))
def test_torn_lines_are_left_out_and_counted(pieces):
    text = b"".join(pieces)
    columns = _parsed(text, 3)
    assert columns.values.tolist() == _plainly(text, 3)
    lines = text.count(b"\n") + (not text.endswith(b"\n") and bool(text))
    assert columns.torn == lines - len(columns.values)


@given(st.binary(max_size=200))
def test_any_bytes_give_what_reading_line_by_line_gives(text):
    assert _parsed(text, 2).values.tolist() == _plainly(text, 2)


def test_a_text_of_several_blocks():
    numbers = np.arange(BLOCK // 4)
    text = b"".join(b"%d, 7\n" % number for number in numbers)
    columns = _parsed(text, 2)
    assert (columns.values[:, 0] == numbers).all()
    assert (columns.values[:, 1] == 7).all()


def test_a_last_line_without_its_end_is_torn():
    columns = _parsed(b"1, 2\n3, 4", 2)
    assert columns.values.tolist() == [[1, 2]]
    assert columns.torn == 1

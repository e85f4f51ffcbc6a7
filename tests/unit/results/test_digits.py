from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbt_crypto.results.readers.fio_log import read_fio_log
from cbt_crypto.results.readers.number_columns import parse_columns

pytestmark = pytest.mark.unit

ROW = st.lists(st.integers(0, 10**16 - 1), min_size=3, max_size=3)


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
    columns = parse_columns(text, 3)
    assert columns.values.tolist() == rows
    assert columns.torn == 0


@settings(max_examples=300)
@given(st.lists(st.sampled_from([b"1", b"23", b"9876543210", b",", b", ", b"\n", b"x", b"-"])))
def test_torn_lines_are_left_out_and_counted(pieces):
    text = b"".join(pieces)
    columns = parse_columns(text, 3)
    assert columns.values.tolist() == _plainly(text, 3)
    lines = text.count(b"\n") + (not text.endswith(b"\n") and bool(text))
    assert columns.torn == lines - len(columns.values)


@given(st.binary(max_size=200))
def test_any_bytes_give_what_reading_line_by_line_gives(text):
    assert parse_columns(text, 2).values.tolist() == _plainly(text, 2)


def test_a_text_that_is_read_in_several_pieces(tmp_path):
    numbers = np.arange(1 << 16)
    path = tmp_path / "log"
    path.write_bytes(b"".join(b"%d, 7, 0, 0\n" % number for number in numbers))
    log = read_fio_log(path)
    assert (log.times_ms == numbers).all()
    assert (log.values == 7).all() and len(log.values) == len(numbers)
    assert log.torn == 0


def test_a_last_line_without_its_end_is_torn():
    columns = parse_columns(b"1, 2\n3, 4", 2)
    assert columns.values.tolist() == [[1, 2]]
    assert columns.torn == 1

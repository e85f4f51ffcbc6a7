from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbt_crypto.archive.files import Malformed
from cbt_crypto.results.readers.fio import parse_fio_json
from cbt_crypto.results.readers.histogram import (
    BINS,
    PERCENTILES,
    bin_latencies_ns,
    from_bins,
    merge,
    percentile_columns,
    read_histogram_log,
)

pytestmark = pytest.mark.unit

BIN = st.integers(0, BINS - 1)
SOME_COUNTS = st.sampled_from([0, 0, 0, 7, 10, 205])


def test_bins_of_the_log_are_those_of_the_output(data):
    for job in parse_fio_json((data / "fio/client_server.json").read_bytes()).jobs:
        for side in job.sides:
            assert side.histogram is not None
            assert set(side.histogram.latencies_ns) <= set(bin_latencies_ns(np.arange(BINS)))


def test_every_line_of_a_log(data):
    log = read_histogram_log(data / "fio/randread_clat_hist.log")
    lines = (data / "fio/randread_clat_hist.log").read_text().splitlines()
    plain = np.array([[int(field) for field in line.split(",")] for line in lines])
    assert log.times_ms.tolist() == plain[:, 0].tolist()
    assert log.directions.tolist() == plain[:, 1].tolist()
    dense = np.zeros((len(lines), BINS), np.int64)
    dense[log.lines, log.bins] = log.counts
    assert (dense == plain[:, 3:]).all()
    assert log.torn == 0


@given(
    st.lists(st.dictionaries(BIN, st.integers(0, 10**9), max_size=8), min_size=1, max_size=4),
    st.integers(0, 6),
)
def test_any_log_comes_back(tmp_path_factory, lines, coarseness):
    bins = BINS >> coarseness
    dense = np.zeros((len(lines), bins), np.int64)
    for row, counts in enumerate(lines):
        for index, count in counts.items():
            dense[row, index >> coarseness] = count
    path = tmp_path_factory.getbasetemp() / "any_hist.log"
    path.write_text(
        "".join(f"{n}, 0, 4096, {', '.join(map(str, r))}\n" for n, r in enumerate(dense.tolist()))
    )
    log = read_histogram_log(path)
    again = np.zeros_like(dense)
    again[log.lines, log.bins] = log.counts
    assert (again == dense).all()
    assert len(log.middles_ns) == bins


def test_torn_lines_are_left_out(tmp_path, data):
    lines = (data / "fio/randread_clat_hist.log").read_text().splitlines(keepends=True)
    path = tmp_path / "log"
    path.write_text(
        lines[0] + lines[1][:3000] + "\n" + lines[2].replace(" 0, 0", " x, 0", 1) + lines[3][:-9]
    )
    log = read_histogram_log(path)
    assert log.torn == 3
    whole = read_histogram_log(data / "fio/randread_clat_hist.log")
    assert log.times_ms.tolist() == whole.times_ms[:1].tolist()
    assert log.counts.tolist() == whole.counts[whole.lines == 0].tolist()


def _line_by_line(text, form):
    """The lines of a log of 29 bins all whose fields have a form, by looking at each of them."""
    rows = [line.split(b",") for line in text.split(b"\n")[:-1]]
    form = re.compile(form)
    right = [r for r in rows if len(r) == 32 and all(form.fullmatch(field) for field in r)]
    return [list(map(int, row)) for row in right]


@given(
    st.lists(st.lists(SOME_COUNTS, min_size=29, max_size=29), min_size=3, max_size=5),
    st.integers(0, 195),
    st.sampled_from(list(b" 0,9x\n-/\xff")),
)
def test_one_wrong_character_never_gives_another_number(tmp_path_factory, lines, place, character):
    rows = [[f"{time}", "0", "4096", *map(str, bins)] for time, bins in enumerate(lines, 1)]
    text = bytearray("".join(f"{', '.join(row)}\n" for row in rows), "ascii")
    text[place] = character
    path = tmp_path_factory.getbasetemp() / "one_wrong_hist.log"
    path.write_bytes(text)
    log = read_histogram_log(path)
    dense = np.zeros((len(log.times_ms), 29), np.int64)
    dense[log.lines, log.bins] = log.counts
    read = np.column_stack((log.times_ms, log.directions, dense)).tolist()
    as_fio_writes, numbers = (
        [row[:2] + row[3:] for row in _line_by_line(text, form)]
        for form in (rb" ?(0|[1-9]\d{0,15})", rb" ?\d{1,16}")
    )
    assert [row for row in as_fio_writes if row not in read] == []
    assert [row for row in read if row not in numbers] == []


def test_what_is_no_histogram_log_says_so(tmp_path, data):
    with pytest.raises(Malformed, match="no whole line"):
        read_histogram_log(data / "fio/randread_iops.log")
    (tmp_path / "log").write_text("")
    with pytest.raises(Malformed, match="no whole line"):
        read_histogram_log(tmp_path / "log")


def test_merging_adds_bins():
    merged = merge([from_bins({100: 1, 200: 5}), from_bins({200: 2, 300: 1})])
    assert merged.latencies_ns.tolist() == [100, 200, 300]
    assert merged.counts.tolist() == [1, 7, 1]


def test_a_merged_percentile_is_not_the_mean_of_percentiles():
    fast, slow = from_bins({100: 99_900, 200: 100}), from_bins({100: 1, 5000: 9_999})
    assert merge([fast, slow]).percentile_ns(50) == 100
    assert merge([fast, slow]).percentile_ns(99) == 5000


def test_nothing_merged_has_no_percentile():
    assert np.isnan(merge([]).percentile_ns(50))


@given(st.dictionaries(st.integers(0, 10**9), st.integers(1, 1000), min_size=1, max_size=20))
def test_many_histograms_at_once_give_what_one_by_one_gives(bins):
    one = from_bins(bins)
    columns = percentile_columns(np.array([one.counts, one.counts * 3], float), one.latencies_ns)
    for name, percent in PERCENTILES.items():
        assert columns[name].tolist() == [one.percentile_ns(percent)] * 2
    assert columns["clat_ns_max"].tolist() == [max(bins)] * 2

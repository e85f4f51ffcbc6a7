from __future__ import annotations

import pytest

from cbt_crypto.archive.files import Malformed
from cbt_crypto.results.cell.window import Window, counts_per_second, means_per_second
from cbt_crypto.results.readers.fio import parse_fio_json
from cbt_crypto.results.readers.fio_log import read_fio_log

pytestmark = pytest.mark.unit


def test_averaged_log_with_wall_clock(data):
    log = read_fio_log(data / "fio/randread_iops.log")
    assert len(log.times_ms) == 25
    assert (log.times_ms[0], log.times_ms[-1]) == (1795182851585, 1795182875585)
    assert log.is_averaged
    assert not log.is_relative
    assert log.torn == 0


def test_both_directions_of_a_mixed_load(data):
    log = read_fio_log(data / "fio/randrw_iops.log")
    assert log.side("read").values[:2].tolist() == [646129, 652917]
    assert log.side("write").values[:2].tolist() == [646998, 652643]


def test_log_of_single_ios(data):
    log = read_fio_log(data / "fio/unaveraged_iops.log")
    assert log.is_relative
    assert not log.is_averaged
    assert set(log.block_sizes.tolist()) == {4096}
    window = Window(0.0, 0.2)
    assert counts_per_second(log, 0.0, 1.0, window).tolist() == []
    second = counts_per_second(log, 0.0, 1.0, Window(0.0, 1.0))
    assert second.tolist() == [len(log.times_ms)]


def test_ios_of_the_log_are_those_of_the_output(data):
    log = read_fio_log(data / "fio/randread_iops.log")
    side = parse_fio_json((data / "fio/randread.json").read_bytes()).jobs[0].sides[0]
    start = log.times_ms[0] / 1000 - 1
    counts = counts_per_second(log, 0.0, 1.0, Window(start, start + side.runtime_s))
    assert counts.sum() == pytest.approx(side.ios, rel=0.005)


def test_mean_latency_of_the_log_is_that_of_the_output(data):
    log = read_fio_log(data / "fio/randread_clat.log")
    side = parse_fio_json((data / "fio/randread.json").read_bytes()).jobs[0].sides[0]
    start = log.times_ms[0] / 1000 - 1
    sums, weights = means_per_second(log, 0.0, 1.0, Window(start, start + 25))
    assert (sums / weights).mean() == pytest.approx(side.clat_ns_mean, rel=0.01)


def test_a_second_that_no_entry_covers_had_no_io(tmp_path):
    path = tmp_path / "log"
    path.write_text("1000000001000, 10, 0, 0, 0\n1000000003000, 10, 0, 0, 0\n")
    log = read_fio_log(path)
    window = Window(1_000_000_000, 1_000_000_003)
    assert counts_per_second(log, 0.0, 1.0, window).tolist() == [10, 0, 10]


def test_a_line_torn_in_the_middle_is_left_out(tmp_path, data):
    lines = (data / "fio/randread_iops.log").read_text().splitlines(keepends=True)
    path = tmp_path / "log"
    path.write_text("".join([*lines[:5], "1795182856585, 2", *lines[6:]]))
    log = read_fio_log(path)
    assert log.torn == 1
    assert len(log.times_ms) == 23  # the torn line took the one behind it along


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        ("no log\n", "no line of a fio log"),
        ("a, b, c, d\n", "no line of a fio log"),
        ("1, 2\n3, 4\n", "no line of a fio log"),
    ],
)
def test_what_is_no_log_says_so(tmp_path, text, reason):
    path = tmp_path / "log"
    path.write_text(text)
    with pytest.raises(Malformed, match=reason):
        read_fio_log(path)

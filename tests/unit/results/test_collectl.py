from __future__ import annotations

import gzip
import sys
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbt_crypto.archive.files import Malformed, Stream
from cbt_crypto.results.cell.node import NodeSamples, percent_per_second
from cbt_crypto.results.cell.window import Window
from cbt_crypto.results.readers.collectl import (
    CPU_STATES,
    NodeSeries,
    ProcessSample,
    read_collectl,
)

pytestmark = pytest.mark.unit

RAW = "collectl/node0-20261120-144733.raw.gz"
#: The columns of a playback with -P, behind the time.
PLAYED = ("user", "nice", "sys", "iowait", "irq", "softirq", "steal", "idle")


def _percents(series: NodeSeries) -> np.ndarray:
    ticks = np.diff(series.cpu, axis=0)
    return 100 * ticks / ticks.sum(axis=1, keepdims=True)


def _same_as_played(series: NodeSeries, playback: str) -> None:
    rows = [line.split() for line in playback.splitlines() if not line.startswith("#")]
    assert [float(row[0]) for row in rows] == np.floor(series.epoch_s[1:]).tolist()
    percents = _percents(series)
    for column, state in enumerate(PLAYED, 1):
        played = np.array([float(row[column]) for row in rows])
        ours = percents[:, CPU_STATES.index(state)]
        assert np.abs(played - ours).max() <= 0.5 + 1e-9, state


def test_a_file_that_a_signal_cut_short(data):
    series = read_collectl(data / RAW)
    assert series.truncated
    assert (series.threads, series.hz) == (2, 100)
    assert len(series.epoch_s) == 21
    assert len(series.processes) == 3
    assert series.net_bytes_per_s_limit == {"eth0": 1.25e9}
    assert series.net_bytes["eth0"].shape == (21, 2)
    _same_as_played(series, (data / "collectl/node0.playback").read_text())


def test_a_plain_file(tmp_path, data):
    path = tmp_path / "node0.raw"
    path.write_bytes(gzip.decompress(_whole(data)))
    assert (read_collectl(path).cpu == read_collectl(data / RAW).cpu).all()
    assert not read_collectl(path).truncated


def test_where_isal_is_not_packaged_the_same_is_read(tmp_path, data, monkeypatch):
    """The deb asks for no package of isal, and reports of it ended in a traceback."""
    usual = read_collectl(data / RAW)
    damaged = bytearray(_whole(data))
    damaged[len(damaged) // 2] ^= 0xFF
    (tmp_path / "x.raw.gz").write_bytes(damaged)
    monkeypatch.setitem(sys.modules, "isal", None)
    found = read_collectl(data / RAW)
    assert (found.cpu == usual.cpu).all() and found.truncated == usual.truncated
    with pytest.raises(Malformed, match="is damaged"):
        read_collectl(tmp_path / "x.raw.gz")


@settings(max_examples=40, deadline=None)
@given(st.floats(0.05, 1))
def test_a_file_cut_anywhere_gives_a_part_of_the_same_or_says_so(tmp_path_factory, data, share):
    whole = read_collectl(data / RAW)
    packed = (data / RAW).read_bytes()
    path = tmp_path_factory.getbasetemp() / "cut.raw.gz"
    path.write_bytes(packed[: int(len(packed) * share)])
    try:
        part = read_collectl(path)
    except Malformed:
        return
    assert (part.cpu == whole.cpu[: len(part.cpu)]).all()
    assert (part.epoch_s == whole.epoch_s[: len(part.epoch_s)]).all()


def test_damaged_data_are_not_read(tmp_path, data):
    packed = bytearray(gzip.compress(gzip.decompress(_whole(data))))
    packed[len(packed) // 2] ^= 0xFF
    (tmp_path / "x.raw.gz").write_bytes(packed)
    with pytest.raises(Malformed, match="is damaged"):
        read_collectl(tmp_path / "x.raw.gz")


def _whole(data: Path) -> bytes:
    """The file as it would be with its end."""
    return gzip.compress(zlib.decompressobj(31).decompress((data / RAW).read_bytes()))


def test_counters_that_lost_time_show():
    series = _node().series
    damaged = replace(series, cpu=series.cpu // 2)
    use = NodeSamples("osd0", damaged, 0.0).use(Window(1000.0, 1020.0))
    assert use is not None
    assert use.accounted == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "fewer than two samples"),
        (b"hello\n", "fewer than two samples"),
        (b"# HZ: 100\n>>> 1.0 <<<\ncpu  1 2\n>>> 2.0 <<<\n>>> 3.0 <<<\n", "fewer than two samples"),
        (
            b"# HZ: 100\n>>> 1.0 <<<\ncpu  1 2 3 4 5 6 7 8\n>>> 2.0 <<<\ncpu  1 2 3 4 5 6 7 8\n"
            b">>> 3.0 <<<\n",
            "does not say the number of CPUs",
        ),
    ],
)
def test_what_is_not_collectls_says_so(tmp_path, text, reason):
    (tmp_path / "x.raw").write_bytes(text)
    with pytest.raises(Malformed, match=reason):
        read_collectl(tmp_path / "x.raw")


def test_a_bomb_is_left_as_soon_as_it_is_longer_than_a_sample(tmp_path, monkeypatch):
    """5 MB that unpack to 1 GiB of zeros took a report more than a minute."""
    path = tmp_path / "node0.raw.gz"
    path.write_bytes(gzip.compress(bytes(64 << 20), 1))
    read = []
    pieces = Stream.__iter__

    def counted(self):
        for piece in pieces(self):
            read.append(len(piece))
            yield piece

    monkeypatch.setattr(Stream, "__iter__", counted)
    with pytest.raises(Malformed, match="no time stamp for 32 MiB, so it is not collectl's"):
        read_collectl(path)
    assert sum(read) < 48 << 20


def _node(offset_s: float = 0.0, processes: tuple[ProcessSample, ...] = ()) -> NodeSamples:
    """Four threads; the first ten seconds idle, then two threads user and one sys."""
    seconds = np.arange(21)
    busy = np.maximum(seconds - 10, 0) * 100
    idle = seconds * 400 - 3 * busy
    zero = np.zeros_like(busy)
    cpu = np.stack((2 * busy, zero, busy, idle, zero, zero, zero, zero), axis=1)
    series = NodeSeries(1000.0 + offset_s + seconds, cpu, 4, 100, processes)
    return NodeSamples("osd0", series, offset_s)


@pytest.mark.parametrize(("idle", "received"), [(10**30, 0), (0, 10**30)])
def test_a_counter_of_more_than_64_bits_is_none_of_a_kernel(tmp_path, idle, received):
    text = "# Collectl: NumCPUs: 2 HZ: 100\n"
    for second in range(3):
        text += f">>> {1_700_000_000 + second}.0 <<<\ncpu  0 0 0 {idle} 0 0 0 0\n"
        text += f"Net   eth0: {received} 0 0 0 0 0 0 0 0\n"
    path = tmp_path / "node.raw"
    path.write_text(text)
    with pytest.raises(Malformed, match="64 bits"):
        read_collectl(path)


def test_only_the_window_counts():
    use = _node().use(Window(1010.0, 1020.0))
    assert use is not None
    assert use.seconds == 10
    assert use.cpu_seconds["user"] == 20
    assert use.percent(("user",)) == 50
    assert use.percent(("sys",)) == 25
    half = _node().use(Window(1005.0, 1015.0))
    assert half is not None
    assert half.percent(("user",)) == 25


def test_a_clock_that_is_ahead_is_brought_back():
    use = _node(offset_s=7.5).use(Window(1010.0, 1020.0))
    assert use is not None
    assert use.percent(("user",)) == 50


def test_a_window_without_samples_has_no_use():
    assert _node().use(Window(5000.0, 5010.0)) is None


def test_percent_of_each_second():
    percents = percent_per_second([_node()], Window(1008.0, 1012.0))
    assert percents["user"].tolist() == [0, 0, 50, 50]
    assert percents["sys"].tolist() == [0, 0, 25, 25]


def test_processor_time_by_kind_of_process():
    samples = (
        ProcessSample(1000.0, {(1, "ceph-osd"): 500, (2, "kworker/u9:1-events"): 100}),
        ProcessSample(1010.0, {(1, "ceph-osd"): 1500, (2, "kworker/u9:1-kcryptd/253:0"): 300}),
        ProcessSample(
            1020.0,
            {(1, "ceph-osd"): 2000, (2, "kworker/u9:1-events"): 400, (3, "dmcrypt_write/2"): 100},
        ),
    )
    use = _node(processes=samples).use(Window(1000.0, 1020.0))
    assert use is not None
    assert use.process_cores == {"ceph_osd": 15 / 20, "dmcrypt": 3 / 20, "neighbours": 0.0}


def test_a_process_that_takes_a_kernel_worker_s_name_is_none(tmp_path):
    """A user's own process called kcryptd was counted as dm-crypt's."""
    lines = ["# NumCPUs: 1 HZ: 100\n"]
    numbers = " ".join(["0"] * 9 + ["70", "0"] + ["0"] * 30)
    for second in range(3):
        lines.append(f">>> {1000 + second}.0 <<<\ncpu  0 0 0 {100 * second} 0 0 0 0\n")
        for pid, parent, name in ((9, 2, "kcryptd/253:0"), (10, 1, "kcryptd/253:1")):
            lines.append(f"proc:{pid} stat {pid} ({name}) S {parent} {numbers}\n")
    path = tmp_path / "node0.raw"
    path.write_text("".join(lines))
    assert [set(sample.ticks) for sample in read_collectl(path).processes] == [
        {(9, "kcryptd/253:0")}
    ] * 2


def test_processes_sampled_once_tell_nothing():
    use = _node(processes=(ProcessSample(1010.0, {}),)).use(Window(1000.0, 1020.0))
    assert use is not None
    assert use.process_cores is None


def test_a_saturated_link_shows(tmp_path):
    lines = ["# NumCPUs: 1 HZ: 100\n# NumNets: 1 NetNames: eth0:10000\n"]
    for second in range(4):
        sent = second * 1_250_000_000
        lines.append(f">>> {1000 + second}.0 <<<\ncpu  0 0 0 {100 * second} 0 0 0 0\n")
        lines.append(f"Net   eth0: 5 0 0 0 0 0 0 0 {sent} 0 0 0 0 0 0 0\n")
    path = tmp_path / "x.raw.gz"
    path.write_bytes(gzip.compress("".join(lines).encode()))
    use = NodeSamples("osd0", read_collectl(path), 0.0).use(Window(1000.0, 1002.0))
    assert use is not None
    assert use.network_percent == 100

from __future__ import annotations

import contextlib
import gzip
import json
import os
import tempfile
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbt_crypto.archive.files import LINE_LIMIT, Malformed, Stream, read_document
from cbt_crypto.archive.folder import Folder
from cbt_crypto.cluster_overlays.luks.preparation import DmCrypt
from cbt_crypto.hosts.secret import options_without
from cbt_crypto.results.cell.client import read_client_cpu
from cbt_crypto.results.cell.cycles import period_of
from cbt_crypto.results.cell.hardware_counters import crypto_percent, parse_perf_stat, read_energy
from cbt_crypto.results.cell.in_window import second_bins
from cbt_crypto.results.cell.window import Window
from cbt_crypto.results.cell.within_run import Seconds, within_run
from cbt_crypto.results.foreign import read_published
from cbt_crypto.results.readers import collectl, histogram
from cbt_crypto.results.readers.fio import parse_fio_normal
from cbt_crypto.results.readers.fio_log import read_fio_log
from cbt_crypto.results.readers.process_output import parse_kbench, parse_output, read_output
from cbt_crypto.results.readers.recording import read_recording
from cbt_crypto.results.until import read_block
from cbt_crypto.run.preflight.survey import Version

pytestmark = pytest.mark.unit


@given(st.lists(st.binary(max_size=50), max_size=5), st.integers(2, 40))
def test_gzip_members_of_any_size_come_back(tmp_path_factory, parts, piece):
    path = tmp_path_factory.getbasetemp() / "members.gz"
    path.write_bytes(b"".join(gzip.compress(part) for part in parts))
    stream = Stream(path, piece=piece)
    assert b"".join(stream) == b"".join(parts)
    assert not stream.truncated


@given(st.binary(min_size=40, max_size=400), st.integers(1, 30))
def test_a_truncated_gzip_stream_gives_its_beginning(tmp_path_factory, content, cut):
    path = tmp_path_factory.getbasetemp() / "cut.gz"
    path.write_bytes(gzip.compress(content)[:-cut])
    stream = Stream(path)
    assert content.startswith(b"".join(stream))
    assert stream.truncated


def test_a_gzip_bomb_is_refused_in_bounded_memory(tmp_path):
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(64):
            file.write(bytes(1 << 20))
    tracemalloc.start()
    with pytest.raises(Malformed, match="holds more than 32 MiB"):
        for _ in Stream(path, limit=32 << 20):
            pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


def test_a_gzip_file_of_members_alone_is_refused(tmp_path):
    """Two seconds for each MiB, and no byte came out of it that a limit would have counted."""
    path = tmp_path / "members.gz"
    path.write_bytes(gzip.compress(b"x") + gzip.compress(b"") * 5000)
    with pytest.raises(Malformed, match="more than 1000 gzip members"):
        list(Stream(path))
    path.write_bytes(gzip.compress(b"x") * 24)
    assert b"".join(Stream(path)) == b"x" * 24, "as a log of each hour has"


def test_one_endless_line_is_refused(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"1, " * LINE_LIMIT)
    with pytest.raises(Malformed, match="a line of more than"):
        list(Stream(path).lines())


@given(st.lists(st.sampled_from([b"a", b"bb\n", b"\n", b"ccccccccc"])), st.integers(1, 7))
def test_lines_are_not_torn_between_pieces(tmp_path_factory, parts, piece):
    text = b"".join(parts)
    path = tmp_path_factory.getbasetemp() / "lines"
    path.write_bytes(text)
    chunks = list(Stream(path, piece=piece).lines())
    assert b"".join(chunks) == text
    assert all(chunk.endswith(b"\n") for chunk in chunks[:-1])


def test_a_large_document_is_refused(tmp_path):
    path = tmp_path / "big.json"
    path.write_bytes(bytes(3 << 20))
    with pytest.raises(Malformed, match="larger than 2 MiB"):
        read_document(path, limit=2 << 20)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Malformed, match="not a regular file"):
        read_document(tmp_path / "pipe")


@pytest.mark.parametrize("name", ["../secret", "a/../../secret", "/etc/passwd", "", "x\0y"])
def test_names_that_lead_out_of_the_archive_are_refused(tmp_path, name):
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "archive").mkdir()
    with pytest.raises(Malformed, match="outside of the archive"):
        Folder(tmp_path / "archive").read(name)


def test_links_out_of_the_archive_are_refused(tmp_path):
    (tmp_path / "secret").write_text("secret")
    archive = tmp_path / "archive"
    archive.mkdir()
    (archive / "file").symlink_to(tmp_path / "secret")
    (archive / "directory").symlink_to(tmp_path)
    (archive / "loop").symlink_to("loop")
    folder = Folder(archive)
    for name in ("file", "directory/secret"):
        with pytest.raises(Malformed, match="link out of the archive"):
            folder.read(name)
    with pytest.raises(Malformed):
        folder.below("directory")
    with pytest.raises(Malformed):
        folder.read("loop")


def test_links_inside_the_archive_are_followed(tmp_path):
    (tmp_path / "real").write_text("text")
    (tmp_path / "link").symlink_to("real")
    assert Folder(tmp_path).read("link") == b"text"


def _quiet(read, *what):
    with contextlib.suppress(Malformed):
        read(*what)


def _collectl(text):
    with tempfile.NamedTemporaryFile() as file:
        sample = f"\n>>> 1 <<<\ncpu 0 0 0 0 0 0 0 0\nproc:1 stat 1 {text}"
        file.write(f"# HZ: 100 NumCPUs: 1\n{sample}\n>>> 2 <<<\n".encode())
        file.flush()
        collectl.read_collectl(Path(file.name))


_HAS = "has cryptsetup\nhas dmsetup\nhas blkid\nhas wipefs\non tmpfs\n"
_FIO = (
    "x: (groupid=0, jobs=1): err= 0\n  cpu          : usr=1%, sys=1%\n"
    "     issued rwts: total=1,1,0,0\n"
)
_LONG = {
    "fio's normal output": (lambda text: _quiet(parse_output, text.encode()), "<\n"),
    "fio's numbers": (lambda text: _quiet(parse_fio_normal, b"fio-3.33\n" + text.encode()), "1"),
    "perf stat": (lambda text: _quiet(parse_perf_stat, text), "\n"),
    "perf stat's numbers": (lambda text: _quiet(parse_perf_stat, text), "1"),
    "perf report": (lambda text: _quiet(crypto_percent, text), "\n"),
    "perf report's blanks": (lambda text: _quiet(crypto_percent, "1%" + text), " "),
    "addresses": (options_without, "x = ://:"),
    "an address": (lambda text: options_without(f"x = {text}"), "://:"),
    "a name of blanks": (options_without, " "),
    "a value of blanks": (lambda text: options_without(f"x = {text}y"), " "),
    "a version": (Version("ceph", (), "").shown, "1"),
    "a kernel's dm-crypt": (lambda text: DmCrypt("x", (), "").judge(f"{_HAS}crypt {text}"), "1"),
    "fio's declarations": (
        lambda text: _quiet(parse_fio_normal, f"{_FIO}{text}".encode()),
        "x: (g=0): rw=a, bs=(R) 1B-1B, (W) 1B-1B ",
    ),
    "fio's directions": (
        lambda text: _quiet(parse_fio_normal, f"{_FIO}{text}".encode()),
        "  read: IOPS=1, BW=\n",
    ),
    "kbench's headings": (
        lambda text: _quiet(parse_kbench, f"FIO Benchmark Summary\n{text}".encode()),
        "FIO Benchmark ",
    ),
    "collectl's processes": (lambda text: _quiet(_collectl, text), "(ceph-osd"),
}


@pytest.mark.parametrize("name", _LONG)
def test_what_is_twice_as_long_takes_twice_the_time(name: str) -> None:
    """Regular expressions tried again at each place: a host's 1 MB took hours, deaf to signals."""
    read, piece = _LONG[name]

    def seconds(characters: int) -> float:
        text = piece * (characters // len(piece))
        took = []
        for _ in range(3):
            # CPU time of this thread: beside other tests it may stand still for a while.
            began = time.thread_time()
            read(text)
            took.append(time.thread_time() - began)
        return min(took) + 1e-4

    # Sixteen times as long: 256 times the time, where it grows by the square.
    assert seconds(64_000) / seconds(4_000) < 80


def test_names_of_one_line_make_no_rows_of_all_lines(tmp_path):
    """A recording of 12 MB took 11 GB, whatever its 500 disks did."""
    path = tmp_path / "recording"
    header = {"format": 1, "t": 1, "hz": 100, "cpus": 1, "link_mbit": {}}
    named = {"t": 1, "cpu": [0] * 8, "disk": {f"d{n}": [0] * 8 for n in range(500)}}
    line = '{"t":1,"cpu":[0,0,0,0,0,0,0,0]}\n'
    path.write_text(f"{json.dumps(header)}\n{json.dumps(named)}\n" + 40_000 * line)
    with pytest.raises(Malformed, match="has 500 names of disk in 40001 samples"):
        read_recording(path)


def test_a_small_log_of_very_many_lines_is_refused(tmp_path):
    """6 MB of gzip took 50 GB."""
    path = tmp_path / "log.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"1, 1, 0, 0\n" * 100)
        for _ in range(50):
            file.write(b"\n" * 1_000_000)
    with pytest.raises(Malformed, match="more than 50000000 lines"):
        read_fio_log(path)


@pytest.mark.parametrize(
    "more", [b"", b"\nNet eth0:" + b" 1" * 9, b"\nproc:1 stat 1 (ceph-osd) S" + b" 1" * 40]
)
def test_a_small_file_of_very_many_counters_is_refused(tmp_path, monkeypatch, more):
    """10 MB of gzip took 74 GB."""
    path = tmp_path / "x.raw.gz"
    sample = b"\n>>> 1 <<<\ncpu 0 0 0 0 0 0 0 0" + more
    path.write_bytes(gzip.compress(b"# HZ: 100 NumCPUs: 1\n" + 101 * sample + b"\n>>> 1 <<<\n"))
    monkeypatch.setattr(collectl, "MOST_COUNTERS", 101 * (8 + bool(more)))
    assert len(collectl.read_collectl(path).epoch_s) == 101
    monkeypatch.setattr(collectl, "MOST_COUNTERS", 101 * (8 + bool(more)) - 1)
    with pytest.raises(Malformed, match="too many samples"):
        collectl.read_collectl(path)


def test_a_small_histogram_log_of_very_many_latencies_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "x_clat_hist.log.gz"
    path.write_bytes(gzip.compress(100 * (b"1, 0, 4096" + b", 1" * 1856 + b"\n")))
    monkeypatch.setattr(histogram, "MOST_COUNTS", 185_600)
    assert len(histogram.read_histogram_log(path).counts) == 185_600
    monkeypatch.setattr(histogram, "MOST_COUNTS", 185_599)
    with pytest.raises(Malformed, match="too many latencies"):
        histogram.read_histogram_log(path)


@pytest.mark.parametrize("read", [read_energy, read_client_cpu])
def test_samples_of_years_are_refused(tmp_path, read):
    """64 MiB of four-byte lines took 5 GB."""
    path = tmp_path / "samples"
    path.write_bytes(b"# ticks a second: 100\n" + b"1 1\n" * 2_700_000)
    with pytest.raises(Malformed, match="too many samples"):
        read(path)


def test_a_log_whose_times_lie_far_apart_takes_no_memory_for_each(tmp_path):
    """Each of its lines was an interval of its own, which more than a day's never are."""
    lines = [f"{1795182851585 + n}, 1, 0, 0\n" for n in (0, *range(10_000_000_000, 10_000_100_000))]
    (tmp_path / "output.0_iops.1.log.h").write_text("".join(lines))
    process = {"host": "h", "logs": "output.0", "json": "none"}
    tracemalloc.start()
    assert read_block(tmp_path, [process], 1) is None
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 9 << 20


def test_a_window_of_weeks_takes_no_memory_for_each_second_s_bins(tmp_path):
    """One line of a log, beside a fio output that says 14 days, took 33 GiB."""
    problems = []
    assert second_bins(Folder(tmp_path), [], Window(0, 14 * 86_400), problems) == {}
    assert "longer than 48 hours" in str(problems[0])


def test_servers_without_end_in_one_file_of_fio_s() -> None:
    """For each one all were counted: hours for 15 MB."""
    job = {"jobname": "j", "job options": {}, "read": {"total_ios": 1, "runtime": 1}}
    stats = [{**job, "hostname": f"h{n}", "port": n} for n in range(20_000)]
    began = time.process_time()
    jobs = parse_output(json.dumps({"fio version": "fio-3.33", "client_stats": stats}).encode())
    assert len({job.host for job in jobs.jobs}) == 20_000
    assert time.process_time() - began < 5


def test_numbers_of_jobs_without_end() -> None:
    jobs = [{"jobname": "j", "read": {"total_ios": 1, "runtime": 1}} for _ in range(3_000)]
    data = json.dumps({"fio version": "fio-3.33", "jobs": jobs}).encode()
    numbers = ",".join(map(str, range(3_000, 300_000)))
    began = time.process_time()
    assert len(read_output(f"fio:0,{numbers}", data).jobs) == 1
    assert time.process_time() - began < 5


def test_unlike_jobs_without_end_are_no_workloads(tmp_path: Path) -> None:
    """The whole file was read for each one."""
    jobs = [
        {"jobname": "j", "job options": {"bs": str(512 * n)}, "read": {"total_ios": 1}}
        for n in range(1, 300)
    ]
    (tmp_path / "f.json").write_text(json.dumps({"fio version": "fio-3.33", "jobs": jobs}))
    with pytest.raises(Malformed, match="has 299 jobs that differ, more than 256"):
        read_published(tmp_path / "f.json", "x")


def test_a_window_of_days_has_no_range_within_and_no_cycle() -> None:
    """A log of 336 lines made a series of two weeks, and weights of 11 GB."""
    series = np.tile([900.0, 1000.0, 1100.0], 40_000)
    tracemalloc.start()
    try:
        assert within_run(Seconds(series, series, series, {})) is None
        assert period_of(series) is None
        assert tracemalloc.get_traced_memory()[1] < 50 << 20
    finally:
        tracemalloc.stop()

"""Readers of what client processes leave, by kind; the outputs are captured ones."""

from __future__ import annotations

import re

import pytest

from cbt_crypto.archive.files import Malformed
from cbt_crypto.results.readers.fio import SYNC, parse_fio_json
from cbt_crypto.results.readers.process_output import read_output

pytestmark = pytest.mark.unit


def test_etcds_benchmark(data):
    text = (data / "results/etcd_benchmark.txt").read_bytes() + b"ended 1795269843.5\n"
    output = read_output("etcd_benchmark", text)
    (side,) = output.jobs[0].sides
    assert (side.direction, side.ios, side.bytes) == ("write", 20000, 0)
    assert (side.iops, side.runtime_s) == (7996.3959, 2.5011)
    assert (side.clat_ns_mean, side.clat_ns_max) == (118900000, 326200000)
    assert output.printed_epoch_s == 1795269843.5
    assert {p: round(ns / 1e6, 1) for p, ns in side.percentiles_ns.items()} == {
        10.0: 55.7, 25.0: 83.6, 50.0: 115.6, 75.0: 152.6, 90.0: 182.2, 95.0: 204.2, 99.0: 281.0,
        99.9: 312.6,
    }  # fmt: skip


#: As etcd 3.4 prints them; Prometheus's histogram_quantile gives these percentiles.
_WAL_FSYNC = b"""ended 1795269843.5
etcd_disk_wal_fsync_duration_seconds_bucket{le="0.001"} 600
etcd_disk_wal_fsync_duration_seconds_bucket{le="0.002"} 900
etcd_disk_wal_fsync_duration_seconds_bucket{le="0.004"} 990
etcd_disk_wal_fsync_duration_seconds_bucket{le="+Inf"} 1000
etcd_disk_wal_fsync_duration_seconds_sum 1.5
etcd_disk_wal_fsync_duration_seconds_count 1000
"""


def test_etcds_own_syncs(data):
    text = (data / "results/etcd_benchmark.txt").read_bytes() + _WAL_FSYNC
    write, sync = read_output("etcd_benchmark", text).jobs[0].sides
    assert (write.direction, sync.direction, sync.ios) == ("write", SYNC, 1000)
    assert sync.iops == 1000 / 2.5011 and sync.clat_ns_mean == 1.5e6
    shown = {p: round(ns / 1e6, 3) for p, ns in sync.percentiles_ns.items()}
    assert shown == {50: 0.833, 95: 3.111, 99: 4.0, 99.9: 4.0}


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        (rb".*Inf.*\n", b""),
        (rb".*_sum.*\n", b""),
        (rb".*bucket.*\n", b""),
        (rb"(?s)(.*)", rb"\1\1"),
        (rb"(?<=\} )900", b"300"),
        (rb"(?<=\} )1000", b"5e-324"),
    ],
)
def test_no_whole_histogram_is_refused(data, line, instead):
    text = (data / "results/etcd_benchmark.txt").read_bytes()
    with pytest.raises(Malformed, match="no whole histogram of etcd"):
        read_output("etcd_benchmark", text + re.sub(line, instead, _WAL_FSYNC, count=4))


def test_syncs_beyond_all_numbers_are_refused(data):
    """Both escaped as a ZeroDivisionError, or were read as an infinite rate."""
    text = (data / "results/etcd_benchmark.txt").read_bytes()
    for line, instead in (
        (rb"Total:\t[\d.]+", b"Total:\t0." + b"0" * 300 + b"1"),
        (rb" 1\.5", b" 1e18"),
    ):
        with pytest.raises(Malformed, match="where a number belongs"):
            read_output("etcd_benchmark", re.sub(line, instead, text + _WAL_FSYNC))


@pytest.mark.parametrize("lost", ["Requests/sec", "Latency distribution", "Response time"])
def test_a_torn_output_is_refused(data, lost):
    text = (data / "results/etcd_benchmark.txt").read_bytes()
    torn = text[: text.index(lost.encode())]
    with pytest.raises(Malformed, match="not the whole output"):
        read_output("etcd_benchmark", torn)


def test_requests_that_failed_are_no_result(data):
    text = (data / "results/etcd_benchmark.txt").read_bytes()
    failed = text + b"\nError distribution:\n  [105]\trpc error: code = Unavailable\n"
    with pytest.raises(Malformed, match=re.escape("[105] rpc error: code = Unavailable")):
        read_output("etcd_benchmark", failed)


@pytest.mark.parametrize("digits", [400, 5000])
@pytest.mark.parametrize(
    ("line", "said"),
    [
        (rb"\[\d+\]", "it lacks a distribution"),
        (rb"(?<=Requests/sec:\t)[\d.]+", "a number belongs"),
    ],
)
def test_a_number_of_many_digits_is_none(data, line, said, digits):
    text = (data / "results/etcd_benchmark.txt").read_bytes()
    number = b"9" * digits
    many = re.sub(line, b"[%s]" % number if b"[" in line[:2] else number, text)
    assert many != text
    with pytest.raises(Malformed, match=said):
        read_output("etcd_benchmark", many)


def test_more_requests_than_are_counted(data):
    text = (data / "results/etcd_benchmark.txt").read_bytes()
    with pytest.raises(Malformed, match="where a number belongs"):
        read_output("etcd_benchmark", text + b"  0.1 [999999999999999]\n" * 10_000)


def test_an_unknown_kind_is_named(data):
    with pytest.raises(Malformed, match="of kind 'iozone'"):
        read_output("iozone", b"")


def test_fdatasync_is_a_direction_of_its_own(data):
    output = parse_fio_json((data / "fio/fdatasync.json").read_bytes())
    write, sync = output.jobs[0].sides
    assert (write.direction, sync.direction) == ("write", SYNC)
    # fio does not sync after its last write of a loop
    assert sync.ios == write.ios + 1 or sync.ios <= write.ios
    assert sync.histogram is not None and sync.histogram.total == sync.ios
    for percent in (50.0, 99.0, 99.9):
        assert sync.histogram.percentile_ns(percent) == pytest.approx(
            sync.percentiles_ns[percent], rel=0.02
        )
    assert sync.iops == pytest.approx(sync.ios / write.runtime_s)


def test_reads_without_syncs_have_no_such_direction(data):
    output = parse_fio_json((data / "fio/randread.json").read_bytes())
    assert [side.direction for side in output.jobs[0].sides] == ["read"]

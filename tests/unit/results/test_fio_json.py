from __future__ import annotations

import json

import pytest

from cbt_crypto.archive.files import Malformed
from cbt_crypto.results.readers.fio import parse_fio_json
from cbt_crypto.results.readers.histogram import PERCENTILES, merge

pytestmark = pytest.mark.unit


def test_json_plus_of_one_job(data):
    output = parse_fio_json((data / "fio/randread.json").read_bytes())
    assert output.version == "fio-3.33"
    assert output.printed_epoch_s == 1795182875.638
    (job,) = output.jobs
    assert (job.name, job.host, job.error) == ("rbd-randread", None, 0)
    assert job.options["iodepth"] == "32"
    assert (job.usr_cpu_percent, job.sys_cpu_percent) == (4.452, 31.844)
    (side,) = job.sides
    assert side.direction == "read"
    assert (side.ios, side.bytes) == (686232, 2810810368)
    assert (side.iops, side.bandwidth_bytes_per_s) == (pytest.approx(686232 / 25.001), 112427917)
    assert side.runtime_s == 25.001
    assert (side.clat_ns_mean, side.clat_ns_max) == (1130149.039574, 56945259)


def test_the_bins_of_a_side_are_put_in_order_once(data):
    (job,) = parse_fio_json((data / "fio/randread.json").read_bytes()).jobs
    (side,) = job.sides
    assert side.histogram is side.histogram
    assert merge([side.histogram]) is side.histogram


def test_ios_are_those_that_ended_as_bytes_are():
    """As fio 3.39 wrote it of a LUKS cell of the quickstart, 1 MiB at depth 4 behind a ramp."""
    side = {"io_bytes": 28 << 20, "bw_bytes": 5625590, "iops": 4.79019, "runtime": 5219,
            "total_ios": 25, "clat_ns": {"mean": 7.5e8, "N": 28}}  # fmt: skip
    document = {"fio version": "fio-3.39", "jobs": [{"jobname": "j", "write": side}]}
    (write,) = parse_fio_json(json.dumps(document).encode()).jobs[0].sides
    assert (write.ios, write.bytes) == (28, 28 << 20)
    assert write.iops == pytest.approx(28 / 5.219)
    # without latencies, as by disable_clat, nothing says more
    del side["clat_ns"]
    (write,) = parse_fio_json(json.dumps(document).encode()).jobs[0].sides
    assert (write.ios, write.iops) == (25, 4.79019)


@pytest.mark.parametrize(
    "name", ["randread.json", "randrw_2_jobs.json_normal", "client_server.json"]
)
def test_percentiles_read_from_bins_are_fios_own(data, name):
    for job in parse_fio_json((data / "fio" / name).read_bytes()).jobs:
        for side in job.sides:
            assert side.histogram is not None
            for percent, value in side.percentiles_ns.items():
                assert side.histogram.percentile_ns(percent) == value


def test_json_with_normal_output_behind_it(data):
    output = parse_fio_json((data / "fio/randrw_2_jobs.json_normal").read_bytes())
    directions = [[side.direction for side in job.sides] for job in output.jobs]
    assert directions == [["read", "write"], ["read", "write"]]


def test_client_server_mode_gives_each_server_its_jobs(data):
    jobs = parse_fio_json((data / "fio/client_server.json").read_bytes()).jobs
    assert [(job.host, job.name) for job in jobs] == [
        ("127.0.0.1:8798", "rbd-randread"),
        ("127.0.0.1:8798", "rbd-randwrite"),
        ("127.0.0.1:8799", "rbd-randread"),
        ("127.0.0.1:8799", "rbd-randwrite"),
    ]


def test_text_before_the_json_is_kept(data):
    text = b"fio: io_u error on file: Input/output error\n{bad\n"
    output = parse_fio_json(text + (data / "fio/randread.json").read_bytes())
    assert output.before.startswith("fio: io_u error")
    assert output.jobs[0].sides[0].ios == 686232


def test_merged_bins_count_every_io(data):
    output = parse_fio_json((data / "fio/randrw_2_jobs.json_normal").read_bytes())
    reads = [
        side.histogram for job in output.jobs for side in job.sides if side.direction == "read"
    ]
    merged = merge(histogram for histogram in reads if histogram is not None)
    assert merged.total == 5607874 + 6191546
    ordered = [merged.percentile_ns(percent) for percent in PERCENTILES.values()]
    assert ordered == sorted(ordered)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"fio: command not found\n", "holds no JSON but 'fio: command not found'"),
        (b"{}", "is not fio's JSON: fio version"),
        (b'{"fio version": "fio-3.33"}', "holds no job"),
        (b'{"fio version": "fio-3.33", "jobs": [{"read": {"iops": NaN}}]}', "jobs.0.read.iops"),
        (b'{"fio version": "fio-3.33", "jobs": [{"read": {"total_ios": -1}}]}', "total_ios"),
        (b"{" * 100_000, "is cut off or damaged"),
        (b"{\n" * 100_000, "is cut off or damaged"),
    ],
)
def test_what_is_not_fios_json_says_so(text, reason):
    with pytest.raises(Malformed, match=reason.replace("'", ".")):
        parse_fio_json(text)


def test_a_percentile_that_is_no_number_is_malformed(data):
    document = json.loads((data / "fio/randread.json").read_text())
    document["jobs"][0]["read"]["clat_ns"]["percentile"] = {"many": 1}
    with pytest.raises(Malformed, match="percentile"):
        parse_fio_json(json.dumps(document).encode())


@pytest.mark.parametrize("bins", [{"1": 2**64}, {str(2**64): 1}, {"1": -1}, {"1\x7f" * 9999: 1}])
def test_bins_that_no_measurement_has_are_malformed(data, bins):
    document = json.loads((data / "fio/randread.json").read_text())
    document["jobs"][0]["read"]["clat_ns"]["bins"] = bins
    with pytest.raises(Malformed, match=r"jobs\.0\.read\.clat_ns\.bins") as caught:
        parse_fio_json(json.dumps(document).encode())
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_json_cut_anywhere_is_malformed(data, share):
    whole = (data / "fio/randread.json").read_bytes()
    with pytest.raises(Malformed, match="cut off"):
        parse_fio_json(whole[: int(len(whole) * share)])


@pytest.mark.parametrize("between", ["", "\nfio: a word of its own\n"])
def test_figures_so_far_before_the_last_ones_are_no_results(data, between):
    """Whoever makes /tmp/fio-dump-status had the figures of that moment reported as the cell's."""
    last = (data / "fio/randread.json").read_text()
    so_far = json.loads(last)
    so_far["jobs"][0]["read"].update(total_ios=7, clat_ns={"N": 7})
    output = parse_fio_json(f"{json.dumps(so_far, indent=2)}\n{between}{last}".encode())
    assert output.jobs[0].sides[0].ios == 686232
    assert output.before == ""
    with pytest.raises(Malformed, match="cut off"):
        parse_fio_json(f"{json.dumps(so_far)}\n{last[: len(last) // 2]}".encode())

from __future__ import annotations

import pytest

from cbt_crypto.archive.files import Malformed
from cbt_crypto.results.readers.fio import parse_fio_json, parse_fio_normal

pytestmark = pytest.mark.unit


def test_reads_and_writes_of_one_job(data):
    output = parse_fio_normal((data / "fio/randrw.normal").read_bytes())
    (job,) = output.jobs
    assert output.version == "fio-3.33"
    assert job.options == {"rw": "randrw", "iodepth": "4", "bs": "4194304"}
    read, write = job.sides
    assert (read.direction, read.ios, write.direction, write.ios) == ("read", 23775, "write", 23856)
    assert read.iops == pytest.approx(23775 / 2.001)
    assert read.bandwidth_bytes_per_s == pytest.approx(23775 * (4 << 20) / 2.001)
    assert (read.clat_ns_mean, read.clat_ns_max) == (41117.61, 16_187_000)
    assert write.percentiles_ns[99.9] == 162816


def test_iops_are_not_rounded_as_they_are_printed(data):
    (job,) = parse_fio_normal((data / "fio/randwrite.normal").read_bytes()).jobs
    assert job.sides[0].iops == pytest.approx(40 / 2.001)  # printed as IOPS=19


def test_client_mode_leaves_the_summary_out(data):
    output = parse_fio_normal((data / "fio/client.normal").read_bytes())
    assert [job.name for job in output.jobs] == ["rbd-randread", "rbd-randwrite"]
    assert [job.sides[0].ios for job in output.jobs] == [2662205, 2496371]


def test_it_agrees_with_the_json_of_the_same_run(data):
    both = (data / "fio/randrw_2_jobs.json_normal").read_bytes()
    exact = parse_fio_json(both).jobs
    printed = parse_fio_normal(both).jobs
    for one, other in zip(exact, printed):
        for side, rounded in zip(one.sides, other.sides):
            assert rounded.ios == side.ios
            assert rounded.iops == pytest.approx(side.iops)
            assert rounded.bandwidth_bytes_per_s == pytest.approx(
                side.bandwidth_bytes_per_s, rel=1e-3
            )
            assert rounded.clat_ns_mean == pytest.approx(side.clat_ns_mean, rel=1e-3)
            assert rounded.percentiles_ns == side.percentiles_ns


def test_output_cut_in_half_is_malformed(data):
    whole = (data / "fio/randrw.normal").read_bytes()
    with pytest.raises(Malformed, match="is cut off in the block of job rbd-randrw"):
        parse_fio_normal(whole[: len(whole) // 2])


def test_a_job_s_name_is_shown_as_it_is_written(data):
    whole = (data / "fio/randrw.normal").read_bytes().replace(b"rbd-randrw", b"rbd\0\x1b[2J\t.")
    with pytest.raises(Malformed) as caught:
        parse_fio_normal(whole[: len(whole) // 2])
    assert str(caught.value).isprintable()
    assert "rbd" in str(caught.value)


def test_text_without_a_job_is_malformed():
    with pytest.raises(Malformed, match="holds no job"):
        parse_fio_normal(b"fio: failed parsing rw=rondread\n")


@pytest.mark.parametrize("name", ["fdatasync", "fsync", "fdatasync_3.42"])
def test_syncs_agree_with_the_json_of_the_same_run(data, name):
    """Of fdatasync after each write, which fio does not count as issued; and of fsync.

    Since 3.42 the block's heading has syncfs too.
    """
    both = (data / f"fio/{name}.json_normal").read_bytes()
    (exact,) = [s for s in parse_fio_json(both).jobs[0].sides if s.direction == "sync"]
    (printed,) = [s for s in parse_fio_normal(both).jobs[0].sides if s.direction == "sync"]
    assert printed.ios == pytest.approx(exact.ios, rel=0.001)
    assert printed.iops == pytest.approx(exact.iops, rel=0.001)
    assert printed.clat_ns_mean == pytest.approx(exact.clat_ns_mean, rel=0.001)
    assert printed.clat_ns_max == pytest.approx(exact.clat_ns_max, rel=0.001)
    assert printed.percentiles_ns.keys() == exact.percentiles_ns.keys()
    for percent, value in exact.percentiles_ns.items():
        assert printed.percentiles_ns[percent] == pytest.approx(
            value, abs=1000
        )  # rounded up to a whole us


def test_without_a_block_of_syncs_there_are_none(data):
    for job in parse_fio_normal((data / "fio/randrw.normal").read_bytes()).jobs:
        assert {side.direction for side in job.sides} == {"read", "write"}

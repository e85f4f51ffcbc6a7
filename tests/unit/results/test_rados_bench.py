"""What upstream keeps of `rados bench`: figures of a real run."""

from __future__ import annotations

import json

import pytest

from cbt_crypto.archive.files import Malformed
from cbt_crypto.results.readers.process_output import read_output

pytestmark = pytest.mark.unit

REAL = {
    "Total time run": "5.06107", "Total writes made": "1377", "Write size": "65536",
    "Object size": "65536", "Bandwidth (MB/sec)": "17.0048", "Stddev Bandwidth": "3.59861",
    "Max bandwidth (MB/sec)": "22.1875", "Min bandwidth (MB/sec)": "13", "Average IOPS": "272",
    "Stddev IOPS": "57.5778", "Max IOPS": "355", "Min IOPS": "208",
    "Average Latency(s)": "0.0585064", "Stddev Latency(s)": "0.0253024",
    "Max latency(s)": "0.145976", "Min latency(s)": "0.00715633",
}  # fmt: skip


def test_writes() -> None:
    (job,) = read_output("rados_bench", json.dumps(REAL).encode()).jobs
    (side,) = job.sides
    assert (side.direction, side.ios, side.runtime_s) == ("write", 1377, 5.06107)
    assert side.iops == pytest.approx(272.08, abs=0.01)
    assert side.bytes == pytest.approx(1377 * 65536, rel=1e-4)
    assert side.clat_ns_mean == pytest.approx(58506400)
    assert side.percentiles_ns == {}


def test_reads() -> None:
    reads = {key.replace("writes made", "reads made"): value for key, value in REAL.items()}
    (job,) = read_output("rados_bench", json.dumps(reads).encode()).jobs
    assert job.sides[0].direction == "read"


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"{}", json.dumps({**REAL, "Total time run": "nan?"}).encode(),
     json.dumps({**REAL, "Total writes made": "0"}).encode()],
)  # fmt: skip
def test_what_is_torn_is_refused(data: bytes) -> None:
    with pytest.raises(Malformed):
        read_output("rados_bench", data)


@pytest.mark.parametrize("key", ["Total writes made", "Total time run", "Bandwidth (MB/sec)",
                                 "Average Latency(s)"])  # fmt: skip
@pytest.mark.parametrize("value", ["inf", "nan", "-1", 1e308, 10**400, [1], None])
def test_a_number_that_no_bench_prints_is_refused(key: str, value: object) -> None:
    with pytest.raises(Malformed, match="where a number belongs"):
        read_output("rados_bench", json.dumps({**REAL, key: value}).encode())


@pytest.mark.parametrize("data", [b"[" * 200_000, b'{"a":[' + b"[]," * 2_000_000 + b"1]}",
                                  b'{"Total writes made": 1e400}'])  # fmt: skip
def test_json_that_python_fails_at_is_refused(data: bytes) -> None:
    with pytest.raises(Malformed):
        read_output("rados_bench", data)


def test_figures_whose_product_is_no_number() -> None:
    for values in ({"Total time run": "5e-324"}, {"Bandwidth (MB/sec)": "9e18"}):
        with pytest.raises(Malformed, match="where a number belongs"):
            read_output("rados_bench", json.dumps({**REAL, **values}).encode())

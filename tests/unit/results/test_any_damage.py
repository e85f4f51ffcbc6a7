"""Any cut and any damage of a real file: refused, or read without a figure that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbt_crypto.archive.files import Malformed
from cbt_crypto.archive.folder import Folder
from cbt_crypto.results.cell.hardware_counters import crypto_percent, parse_perf_stat
from cbt_crypto.results.foreign import read_upstream
from cbt_crypto.results.readers.collectl import read_collectl
from cbt_crypto.results.readers.fio import parse_fio_normal
from cbt_crypto.results.readers.fio_log import read_entries, read_fio_log
from cbt_crypto.results.readers.histogram import read_histogram_log
from cbt_crypto.results.readers.process_output import parse_output

pytestmark = pytest.mark.unit

#: A whole perf stat with intervals, as perf 6.1 prints it where there are counters.
STAT = "# started on Tue Nov 14 23:13:20 2023\n" + "".join(
    f"     {second}.001054360  {second},000,000      cycles\n"
    f"     {second}.001054360    {second},000,000      instructions\n"
    for second in range(1, 30)
)

FILES = (
    "fio/client_server.json",
    "fio/randread.json",
    "fio/randrw_2_jobs.json_normal",
    "fio/randrw.normal",
    "fio/client.normal",
    "fio/randread_iops.log",
    "fio/randread_clat.log",
    "fio/randread_slat.log",
    "fio/randread_bw.log",
    "fio/unaveraged_iops.log",
    "fio/randread_clat_hist.log",
    "collectl/node0-20261120-144733.raw.gz",
    "perf/report.txt",
    "perf/stat_interval.csv",
    "perf/stat_interval.txt",
    "perf/stat_total.txt",
)


def _of_bytes(parse: Callable[[bytes], object]) -> Callable[[Path], object]:
    return lambda path: parse(path.read_bytes())


def _of_text(parse: Callable[[str], object]) -> Callable[[Path], object]:
    return lambda path: parse(path.read_bytes().decode("utf-8", "replace"))


def _parser(name: str) -> Callable[[Path], object]:
    """What reads such a file."""
    if "hist" in name:
        return read_histogram_log
    if name.endswith(".log"):
        return read_fio_log
    if name.startswith("collectl"):
        return read_collectl
    if name.startswith("perf"):
        return _of_text(crypto_percent if "report" in name else parse_perf_stat)
    return _of_bytes(parse_output)


@settings(max_examples=150)
@given(st.sampled_from(FILES), st.floats(0, 1), st.binary(max_size=12), st.booleans())
def test_any_damage_is_read_or_refused(tmp_path_factory, data, name, share, instead, is_cut):
    whole = (data / name).read_bytes()
    at = int(len(whole) * share)
    path = tmp_path_factory.getbasetemp() / "damaged"
    path.write_bytes(whole[:at] + (b"" if is_cut else instead + whole[at + len(instead) :]))
    try:
        _parser(name)(path)
    except Malformed as error:
        assert str(error)


@given(st.sampled_from(["randrw.normal", "client.normal"]), st.floats(0, 1))
def test_normal_output_that_is_cut_gives_no_other_figure(data, name, share):
    whole = (data / "fio" / name).read_bytes()
    try:
        cut = parse_fio_normal(whole[: int(len(whole) * share)])
    except Malformed:
        return
    for job, other in zip(cut.jobs, parse_fio_normal(whole).jobs):
        assert job.sides == other.sides


@given(st.sampled_from(["randread_iops.log", "randread_clat.log"]), st.floats(0.001, 1))
def test_a_log_that_is_cut_gives_a_part_of_the_same(tmp_path_factory, data, name, share):
    whole = (data / "fio" / name).read_bytes()
    path = tmp_path_factory.getbasetemp() / "cut.log"
    path.write_bytes(whole[: int(len(whole) * share)])
    try:
        cut = read_fio_log(path)
    except Malformed:
        return
    path.write_bytes(whole)
    full = read_fio_log(path)
    assert (cut.values == full.values[: len(cut.values)]).all()
    assert (cut.times_ms == full.times_ms[: len(cut.times_ms)]).all()


@given(st.floats(0, 1))
def test_counts_that_are_cut_are_a_part_of_the_same(share):
    whole = parse_perf_stat(STAT)
    try:
        cut = parse_perf_stat(STAT[: int(len(STAT) * share)])
    except Malformed:
        return
    for part, other in zip(cut.parts, whole.parts):
        assert part.end_s == other.end_s
        assert part.counts.items() <= other.counts.items()


@given(st.floats(0, 1))
def test_symbols_that_are_cut_are_refused(data, share):
    text = (data / "perf/report.txt").read_text().replace("write_null", "aesni_xts_encrypt")
    try:
        found = crypto_percent(text[: int(len(text) * share)])
    except Malformed as error:
        assert "is cut off" in str(error)
    else:
        assert found == crypto_percent(text) > 0


@settings(max_examples=80)
@given(
    st.sampled_from(["benchmark_config.yaml", "json_output.0.client0", "../cbt_config.yaml"]),
    st.floats(0, 1),
    st.binary(max_size=12),
)
def test_an_archive_of_upstream_with_any_damage(tmp_path_factory, data, name, share, instead):
    root = tmp_path_factory.mktemp("upstream")
    cell = root / "results/00000000/id-0123"
    cell.mkdir(parents=True)
    (cell / "json_output.0.client0").write_bytes((data / "fio/randread.json").read_bytes())
    (cell / "benchmark_config.yaml").write_text("cluster:\n  mode: randread\n  iteration: 0\n")
    (root / "results/cbt_config.yaml").write_text("cluster:\n  osds: [osd0]\n")
    path = root / "results/cbt_config.yaml" if name.startswith("..") else cell / name
    whole = path.read_bytes()
    at = int(len(whole) * share)
    path.write_bytes(whole[:at] + instead + whole[at + len(instead) :])
    try:
        (run,) = read_upstream(Folder(root), "A")
    except Malformed as error:
        assert str(error)
        return
    assert run.failure or np.isfinite([record.iops for record in run.records]).all()


@settings(max_examples=100)
@given(
    st.sampled_from(["randread_iops.log", "randrw_iops.log", "block_iops.log"]),
    st.floats(0, 1),
    st.binary(max_size=12) | st.sampled_from([b"\n", b", ", b" ", b"1", b"\r\n"]),
)
def test_a_damaged_log_is_read_alike_without_numpy(tmp_path_factory, data, name, share, instead):
    whole = (data / "fio" / name).read_bytes()
    at = int(len(whole) * share)
    path = tmp_path_factory.getbasetemp() / "both.log"
    path.write_bytes(whole[:at] + instead + whole[at + len(instead) :])
    try:
        log = read_fio_log(path)
    except Malformed:
        return
    columns = (log.times_ms.tolist(), log.values.tolist(), log.directions.tolist())
    assert sorted(read_entries(path)) == sorted(zip(*columns))

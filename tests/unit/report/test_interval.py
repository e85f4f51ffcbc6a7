from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cbt_crypto.archive.documents import PlannedCell
from cbt_crypto.report import ReportOptions, build
from cbt_crypto.report.figures.interval import Intervals, Load
from cbt_crypto.report.figures.metric import BY_KEY
from cbt_crypto.report.figures.spread import split, stretches
from cbt_crypto.results.cell.record import Record
from cbt_crypto.results.cell.run import Run
from cbt_crypto.results.cell.within_run import Seconds, Within, within_run

pytestmark = pytest.mark.unit

IOPS = BY_KEY["iops"]


def _run(configuration: str, iops: float, started: float, log_sd: float = 0.001) -> Run:
    planned = PlannedCell(id="id-1", path="p", scenario="s", configuration=configuration)
    record = Record(
        run="p", iteration=0, dimensions={}, host="h", volume="0", direction="read",
        start_epoch_s=started, runtime_s=10, ios=int(iops * 10), bytes=1, iops=iops,
        bandwidth_bytes_per_s=iops * 4096, clat_ns_mean=1e6, clat_ns_p50=None,
        clat_ns_p90=None, clat_ns_p95=None,
        clat_ns_p99=None, clat_ns_p999=None, clat_ns_max=2e6, fio_usr_cpu_percent=1.0,
        fio_sys_cpu_percent=1.0,
    )  # fmt: skip
    return Run(
        planned,
        {"scenario": "s", "configuration": configuration},
        started=started,
        records=(record,),
        within={"read": Within({"iops": log_sd}, 20.0, 2)},
    )


def _load(runs: list[Run]) -> Load:
    numbers = stretches(runs, "configuration")
    by_name: dict[str, list[Run]] = {}
    for run in runs:
        by_name.setdefault(run.planned.configuration, []).append(run)
    return Load("read", {name: split(found, numbers) for name, found in by_name.items()})


def _compare(runs: list[Run], assumed: float = 2.0):
    load = _load(runs)
    values = {
        name: IOPS.of([r for s in found for r in s], "read") for name, found in load.cells.items()
    }
    percent = 100 * values["B"] / values["A"]
    return Intervals({0: load}, assumed).compare(IOPS, load, "B", "A", percent)


def test_a_stretch_ends_where_another_configuration_is_measured():
    runs = [_run("A", 1, 0), _run("A", 1, 1), _run("B", 1, 2), _run("A", 1, 3)]
    load = _load(runs)
    assert [len(stretch) for stretch in load.cells["A"]] == [2, 1]
    assert [len(stretch) for stretch in load.cells["B"]] == [1]


def test_one_run_each_rests_on_blocks_and_the_assumed_spread():
    comparison = _compare([_run("A", 1000, 0), _run("B", 900, 1)])
    assert comparison.basis == "blocks of the seconds of one run; 2 % assumed between deployments"
    half = 1.96 * 0.02 * np.sqrt(2)
    assert comparison.low == pytest.approx(90 * np.exp(-half), rel=0.002)
    assert comparison.is_within_noise is False
    assert _compare([_run("A", 1000, 0), _run("B", 960, 1)]).is_within_noise is True


def test_an_unsteady_run_has_a_wider_interval():
    calm = _compare([_run("A", 1000, 0), _run("B", 900, 1)])
    wild = _compare([_run("A", 1000, 0, 0.05), _run("B", 900, 1, 0.05)])
    assert wild.high - wild.low > 2 * (calm.high - calm.low)
    assert wild.is_within_noise is True


def test_interleaved_runs_show_the_spread_themselves():
    noise = [1.0, 1.01, 0.99, 1.005]
    runs = []
    for number, factor in enumerate(noise):
        runs += [_run("A", 1000 * factor, 2 * number), _run("B", 950 / factor, 2 * number + 1)]
    comparison = _compare(runs)
    assert comparison.basis == "4 and 4 runs; run to run, 6 degrees of freedom"
    assert comparison.is_within_noise is False
    assert 1 - comparison.low / comparison.percent == pytest.approx(
        2.447 * np.std(np.log(noise), ddof=1) / np.sqrt(2), rel=0.02
    )


def test_runs_in_a_row_do_not_hide_that_another_deployment_may_differ():
    runs = [_run("A", 1000 + n, n) for n in range(3)] + [
        _run("B", 970 + n, 3 + n) for n in range(3)
    ]
    comparison = _compare(runs)
    assert comparison.basis == "3 runs in a row; 2 % assumed between deployments"
    assert comparison.is_within_noise is True


def test_an_interval_covers_the_truth_as_often_as_it_says():
    random = np.random.default_rng(1)
    covered = 0
    for _ in range(300):
        runs = []
        for number in range(3):
            a, b = np.exp(random.normal(0, 0.05, 2))
            runs += [_run("A", 1000 * a, 2 * number), _run("B", 1000 * b, 2 * number + 1)]
        covered += bool(_compare(runs).is_within_noise)
    assert 0.91 <= covered / 300 <= 0.99


def test_without_series_and_repeats_there_is_no_interval():
    runs = [replace(_run("A", 1000, 0), within={}), _run("B", 900, 1)]
    comparison = _compare(runs)
    assert (comparison.low, comparison.high, comparison.basis) == (None, None, None)
    assert comparison.is_within_noise is None


def _seconds(iops: np.ndarray) -> Seconds:
    return Seconds(iops=iops, clat_ns_mean=np.full(len(iops), 1e6), io_total=iops)


def test_the_bootstrap_knows_the_error_of_a_mean_of_independent_seconds():
    random = np.random.default_rng(2)
    within = within_run(_seconds(random.normal(1000, 50, 400)))
    assert within is not None
    assert within.log_sd["iops"] == pytest.approx(0.05 / np.sqrt(400), rel=0.25)


def test_the_bootstrap_sees_that_seconds_resemble_each_other():
    random = np.random.default_rng(3)
    noise = random.normal(0, 50, 400)
    slow = np.convolve(noise, np.ones(15), "same")
    independent = within_run(_seconds(1000 + random.permutation(slow)))
    resembling = within_run(_seconds(1000 + slow))
    assert independent is not None and resembling is not None
    assert resembling.block_s > independent.block_s
    assert resembling.log_sd["iops"] > 2 * independent.log_sd["iops"]


@pytest.mark.parametrize("iops", [np.ones(5), np.zeros(50)])
def test_a_short_or_idle_run_says_nothing(iops):
    assert within_run(_seconds(iops)) is None


def test_a_constant_run_has_no_spread():
    within = within_run(_seconds(np.full(50, 7.0)))
    assert within is not None
    assert within.log_sd["iops"] == pytest.approx(0)


def test_every_figure_of_a_whole_archive_has_an_interval(small):
    report = build(small, ReportOptions())
    for cell in report.cells:
        for key, comparison in cell.comparisons.items():
            if not cell.is_baseline:
                assert comparison.basis is not None, key
                assert comparison.low <= comparison.percent <= comparison.high, key

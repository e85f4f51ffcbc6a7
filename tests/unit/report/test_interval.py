from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cbt_crypto.archive.documents import PlannedCell
from cbt_crypto.report import ReportOptions, build
from cbt_crypto.report.figures import repeats
from cbt_crypto.report.figures.interval import Comparisons, LoadRuns, stretches
from cbt_crypto.results.cell.record import Record
from cbt_crypto.results.cell.run import Run
from cbt_crypto.results.cell.within_run import Seconds, Within, within_run

pytestmark = pytest.mark.unit


def _run(configuration: str, iops: float, started: float, log_sd: float = 0.001) -> Run:
    planned = PlannedCell(id="id-1", path="p", scenario="s", configuration=configuration)
    record = Record(
        run="p", iteration=0, dimensions={}, host="h", volume="0", direction="read",
        start_epoch_s=started, runtime_s=10, ios=int(iops * 10), bytes=1, iops=iops,
        bandwidth_bytes_per_s=iops * 4096, clat_ns_mean=1e6, percentiles_ns={},
        clat_ns_max=2e6, fio_usr_cpu_percent=1.0,
        fio_sys_cpu_percent=1.0,
    )  # fmt: skip
    return Run(
        planned,
        {"scenario": "s", "configuration": configuration},
        started=started,
        records=(record,),
        within={"read": Within({"iops": log_sd}, 20.0, 2)},
    )


def _load(runs: list[Run]) -> LoadRuns:
    numbers = stretches(runs, "configuration")
    by_name: dict[str, list[Run]] = {}
    for run in runs:
        by_name.setdefault(run.planned.configuration, []).append(run)
    return LoadRuns.of("read", by_name, numbers, {})


def _compare(runs: list[Run], other: str = "A", **options):
    found = Comparisons({0: _load(runs)}, other, **options)
    return found.of(0, "B", "iops")


def _round(number: int, name: str, iops: float, deployment: str | None = None) -> Run:
    run = _run(name, iops, number)
    planned = run.planned.model_copy(update={"iteration": number})
    return replace(run, planned=planned, deployment=deployment or f"{name}{number}")


def _rounds(**iops: list[float]) -> list[Run]:
    return [
        _round(number, name, value)
        for number in range(max(map(len, iops.values())))
        for name, values in iops.items()
        for value in values[number : number + 1]
    ]


def test_a_stretch_ends_where_another_configuration_is_measured():
    runs = [_run("A", 1, 0), _run("A", 1, 1), _run("B", 1, 2), _run("A", 1, 3)]
    load = _load(runs)
    assert [len(stretch) for stretch in load.cells["A"]] == [2, 1]
    assert [len(stretch) for stretch in load.cells["B"]] == [1]


def test_what_was_deployed_once_has_a_range_and_no_verdict():
    comparison = _compare([_run("A", 1000, 0), _run("B", 500, 1)])
    assert comparison.percent == pytest.approx(50)
    assert comparison.level == "run" and comparison.is_of_one_deployment
    assert comparison.differs is None and comparison.p is None
    assert comparison.basis == "within this run, of one deployment; no verdict"
    assert comparison.low < 50 < comparison.high


def test_an_unsteady_run_has_a_wider_range():
    calm = _compare([_run("A", 1000, 0), _run("B", 900, 1)])
    wild = _compare([_run("A", 1000, 0, 0.05), _run("B", 900, 1, 0.05)])
    assert wild.high - wild.low > 2 * (calm.high - calm.low)


def test_two_runs_that_are_visibly_apart_are_not_thrown_away():
    """Two iterations, 8 % apart: they were ignored, as two degrees of freedom were too few."""
    apart = _compare(_rounds(A=[1000, 1080], B=[900, 972]))
    assert apart.level == "rounds" and apart.differs is None
    assert apart.low < 60 and apart.high > 135
    in_a_row = _compare([_run(n, v, t) for t, (n, v) in enumerate(
        [("A", 1000), ("A", 1080), ("B", 900), ("B", 972)])])  # fmt: skip
    assert in_a_row.level == "run" and in_a_row.low < 75 and in_a_row.high > 110


def test_four_rounds_show_a_difference_and_say_what_they_are():
    comparison = _compare(_rounds(A=[1000, 1010, 990, 1002], B=[700, 705, 702, 699]))
    assert comparison.basis == "4 deployments of each, in rounds"
    assert comparison.differs is True
    assert comparison.low < 70.2 < comparison.high < 80


def test_three_rounds_carry_no_verdict_and_four_do_beside_many_others():
    """A bound on p of one comparison alone forbade every verdict beside 80 others."""
    three = _compare(_rounds(A=[1000] * 3, B=[850, 851, 850]))
    assert three.p is None and three.differs is None and three.level == "rounds"
    four = {"A": [1000, 1004, 998, 1001], "B": [850, 851, 848, 852]}
    assert _compare(_rounds(**four)).differs is True
    others = {f"D{n}": [1000 + n % 3, 1005, 997 - n % 2, 1000] for n in range(80)}
    assert _compare(_rounds(**four, **others)).differs is True
    assert _compare(_rounds(A=[1000] * 4, B=[1000] * 4)).differs is False


def test_runs_that_did_no_io_are_part_of_what_a_row_does():
    """0 IOPS in two of six deployments were left out: None, and no from the gate."""
    found = _compare(_rounds(A=[1000, 1001, 999, 1000, 1002, 998], B=[1000, 0, 1001, 0, 999, 1000]))
    assert found.percent == pytest.approx(66.7, abs=0.1)
    assert found.p is None and found.differs is None and found.low is None
    assert found.basis == "2 of 12 cells of both rows failed or did no IO; no verdict"


def test_a_row_that_was_added_later_has_no_verdict():
    """Its rounds were days after the baseline's: campaigns that differ by 2 % gave 37 % false."""
    runs = _rounds(A=[1000, 1003, 998, 1001, 1002], B=[980, 981, 979, 983, 980])
    later = [replace(run, started=run.started + 100) if _is_of(run, "B") else run for run in runs]
    assert _compare(runs).differs is True
    found = _compare(later)
    assert found.differs is None and "not measured in the same rounds; no verdict" in found.basis


def _is_of(run: Run, name: str) -> bool:
    return run.planned.configuration == name


def test_a_campaign_that_runs_must_hold_beside_every_look_at_it():
    """Ended by what was seen while it ran, 11 to 16 % of campaigns were wrong."""
    runs = _rounds(A=[1000, 1010, 990, 1002], B=[900, 925, 885, 905])
    assert _compare(runs).differs is True
    missing = replace(_round(4, "B", 1), failure="not run", is_missing=True, records=())
    found = Comparisons({0: _load([*runs, missing])}, "A").of(0, "B", "iops")
    assert found.p == pytest.approx(50 * _compare(runs).p) and found.differs is False


def test_a_row_that_tosses_by_workload_does_not_borrow_from_others():
    """What the trial does at once for many reports is what reports do."""
    random = np.random.default_rng(3)
    names, loads = ["A", "B", "C", "D"], range(5)
    logs = random.normal(0, 0.02, (4, len(names), len(loads)))
    found = Comparisons(
        {load: _load(_rounds(**{
            name: list(1000 * np.exp(logs[:, number, load])) for number, name in enumerate(names)
        })) for load in loads}, "A",
    )  # fmt: skip
    ratios = logs[:, 1:] - logs[:, :1]
    sides = logs.var(0, ddof=1)
    variances = np.maximum(ratios.var(0, ddof=1), sides[1:] + sides[:1]).ravel()
    rows, columns = np.divmod(np.arange(15), 5)
    counts = np.full(15, 4)
    p = repeats.p_values(ratios.mean(0).ravel(), variances, counts, 1, rows, columns)
    for number, expected in enumerate(p):
        compared = found.of(int(columns[number]), names[1 + rows[number]], "iops")
        assert compared.p == pytest.approx(expected)


def _beside(deployments: int, turns: int, groups: tuple[int, int]) -> list[Run]:
    """Rows in groups of OSDs, in turns on each deployment; B is at 80 % of A."""
    random = np.random.default_rng(1)
    return [
        replace(
            _round(turn, name, share * random.normal(1000, 5), f"d{turn // turns}"),
            beside=(f"group{group}", turn // turns),
        )
        for turn in range(deployments * turns)
        for name, share, group in (("A", 1.0, groups[0]), ("B", 0.8, groups[1]))
    ]


@pytest.mark.parametrize("groups", [(0, 0), (0, 1)])
def test_two_deployments_give_no_verdict_within_a_group_or_between_groups(groups):
    """Rows of one group had verdicts from two deployments, as if each turn were another."""
    two = _compare(_beside(2, 6, groups))
    assert two.level == "rounds" and two.differs is None
    assert _compare(_beside(4, 6, groups)).differs is True


def test_one_turn_on_each_deployment_gives_no_verdict():
    """Its place in the round looked like a difference in 18 % of campaigns."""
    found = _compare(_beside(6, 1, (0, 1)))
    assert found.differs is None and found.low < 80 < found.high
    assert found.basis.endswith("one pair on each; no verdict")
    assert _compare(_beside(6, 2, (0, 1))).differs is True


def test_rows_of_different_campaigns_have_an_interval_and_no_verdict():
    """`compare`: campaigns that differ by 2 % gave 37 to 60 % false verdicts."""
    runs = _rounds(A=[1000, 1003, 998, 1001, 1002], B=[980, 981, 979, 983, 980])
    assert _compare(runs).differs is True
    two = [replace(run, campaign=run.planned.configuration) for run in runs]
    found = _compare(two)
    assert found.differs is None and found.low < 98 < found.high
    assert "in different campaigns; no verdict" in found.basis


def test_a_noisy_configuration_does_not_borrow_the_quiet_ones_variance():
    """Pooled over the report, one noisy configuration was wrong in 24 to 48 % of cases."""
    random = np.random.default_rng(5)
    false = 0
    for _ in range(400):

        def values(deviation):
            return list(1000 * np.exp(random.normal(0, deviation, 4)))

        quiet = {name: values(0.005) for name in "ACDE"}
        found = Comparisons({0: _load(_rounds(B=values(0.08), **quiet))}, "A")
        false += bool(found.of(0, "B", "iops").differs)
    assert false / 400 <= 0.06


def test_a_baseline_that_was_deployed_once_is_no_repetition():
    runs = [_round(n, "B", 900 + n) for n in range(4)]
    runs += [_round(n, "A", 1000 + n, "once") for n in range(4)]
    assert _compare(runs).differs is None


def test_deployments_that_serve_both_are_pairs():
    levels = [1000, 1500, 700, 1200, 900]
    shares = [(n, level, "A", 1.0) for n, level in enumerate(levels)]
    shares += [(n, level, "B", 0.9 - 0.002 * n) for n, level in enumerate(levels)]
    runs = [
        _round(n, name, level * share * (1 + 0.001 * n), f"d{n}")
        for n, level, name, share in shares
    ]
    comparison = _compare(runs)
    assert comparison.basis == "5 deployments shared with the baseline, in rounds"
    assert comparison.differs is True


def test_a_verdict_holds_over_the_whole_report():
    """Of many comparisons without a difference, one interval leaves 100 out by chance."""
    random = np.random.default_rng(7)
    wrong = intervals = 0
    for _ in range(60):
        names = [f"B{n}" for n in range(20)]

        def some():
            return list(1000 * np.exp(random.normal(0, 0.02, 5)))

        runs = _rounds(A=some(), **{name: some() for name in names})
        found = Comparisons({0: _load(runs)}, "A")
        compared = [found.of(0, name, "iops") for name in names]
        wrong += any(one.differs for one in compared)
        intervals += any(not one.low <= 100 <= one.high for one in compared)
    assert wrong / 60 <= 0.07 < intervals / 60


def test_rows_are_compared_with_one_another():
    runs = _rounds(A=[1000, 1001, 999, 1000], B=[900, 901, 902, 899], C=[450, 451, 449, 450])
    found = Comparisons({0: _load(runs)}, "A").between(0, "C", "B")
    assert found.percent == pytest.approx(49.9, abs=0.2) and found.differs is True


def test_a_maximum_has_no_interval(small):
    for cell in build(small, ReportOptions()).cells:
        assert cell.comparisons["clat_ns_max"].low is None


def test_without_series_and_repeats_there_is_no_range():
    runs = [replace(_run("A", 1000, 0), within={}), _run("B", 900, 1)]
    comparison = _compare(runs)
    assert (comparison.low, comparison.high, comparison.basis) == (None, None, None)
    assert comparison.differs is None


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


def test_every_figure_of_a_whole_archive_has_a_range(small):
    report = build(small, ReportOptions())
    for cell in report.cells:
        for key, comparison in cell.comparisons.items():
            if not cell.is_baseline and key != "clat_ns_max":
                assert comparison.basis is not None, key
                assert comparison.low <= comparison.percent <= comparison.high, key

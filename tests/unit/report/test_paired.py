"""Percents of blocks that took turns."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import pytest

from cbt_crypto.archive.documents import PlannedCell
from cbt_crypto.report.figures.interval import Comparisons, LoadRuns, split, stretches
from cbt_crypto.report.figures.repeats import UNTIL_KNOWN, StandardError
from cbt_crypto.results.cell.record import Record
from cbt_crypto.results.cell.run import Run
from cbt_crypto.results.repetition import ALPHA, boundary, interval

pytestmark = pytest.mark.unit

UNTIL = {"precision": "5%", "min": 4, "max": 40, "block": 4}


def _block(name: str, turn: int, iops: float, deployment: str = "d", **changes: Any) -> Run:
    planned = PlannedCell(
        id="id-1", path=f"p{turn}", iteration=turn, scenario="s", configuration=name,
        parameters={"time": UNTIL},
    )  # fmt: skip
    record = Record(
        run="p", iteration=turn, dimensions={}, host="h", volume="0", direction="read",
        start_epoch_s=turn, runtime_s=10, ios=int(iops * 10), bytes=1, iops=iops,
        bandwidth_bytes_per_s=iops * 4096, clat_ns_mean=1e9 / iops, percentiles_ns={},
        clat_ns_max=2e6,
        fio_usr_cpu_percent=1.0, fio_sys_cpu_percent=1.0,
    )  # fmt: skip
    run = Run(
        planned,
        {"scenario": "s", "configuration": name},
        started=float(turn),
        deployment=deployment,
        records=(record,),
    )
    return replace(run, **changes)


def _compare(runs: list[Run], key: str = "iops") -> Any:
    numbers = stretches(runs, "configuration")
    by_name: dict[Any, list[Run]] = {}
    for run in runs:
        by_name.setdefault(run.planned.configuration, []).append(run)
    load = LoadRuns("read", {name: split(found, numbers) for name, found in by_name.items()})
    return Comparisons({0: load}, "A").of(0, "B", key)


NOISE = [1.01, 0.99, 1.02, 0.98, 1.0, 1.01]
DRIFT = [1000.0 * 1.3**n for n in range(6)]
PAIRS = [
    run
    for turn, (level, noise) in enumerate(zip(DRIFT, NOISE))
    for run in (_block("A", turn, level), _block("B", turn, 0.8 * level * noise))
]


def test_by_hand() -> None:
    logs = [math.log(0.8 * noise) for noise in NOISE]
    mean = sum(logs) / 6
    deviation = math.sqrt(sum((log - mean) ** 2 for log in logs) / 5)
    half = boundary(6) * deviation / math.sqrt(6)
    found = _compare(PAIRS)
    assert found.percent == pytest.approx(100 * math.exp(mean))
    assert found.low == pytest.approx(100 * math.exp(mean - half))
    assert found.high == pytest.approx(100 * math.exp(mean + half))
    assert found.basis == f"6 pairs of turns on one cluster{UNTIL_KNOWN}"


def test_what_was_asked_for_and_not_reached_is_said() -> None:
    wild = [
        _block(name, turn, 1000 * (1.4 ** (turn % 3) if name == "B" else 1))
        for turn in range(6)
        for name in "AB"
    ]
    assert str(_compare(wild).basis).endswith("; 5% was asked for and not reached")


def test_what_was_asked_of_the_latency_is_said_of_it() -> None:
    """With steady IOPS at a rate, it is the latency that is not known well enough."""
    runs = []
    for turn in range(6):
        for name, latency in (("A", 1e6), ("B", 1e6 * 1.4 ** (turn % 3))):
            run = _block(name, turn, 1000)
            asked = {"parameters": {"time": {**UNTIL, "metrics": ["clat_ns_mean"]}}}
            records = (replace(run.records[0], clat_ns_mean=latency),)
            planned = run.planned.model_copy(update=asked)
            runs.append(replace(run, planned=planned, records=records))
    assert str(_compare(runs, "clat_ns_mean").basis).endswith("; 5% was asked for and not reached")
    assert "asked for" not in str(_compare(runs).basis)


def test_pairs_are_of_one_round_and_one_deployment_and_of_measured_blocks() -> None:
    failed = replace(PAIRS[1], failure="fio exited with 1")
    assert "pairs" not in str(_compare([PAIRS[0], failed, *PAIRS[2:]]).basis)
    more = [*PAIRS, _block("A", 6, 1000.0), _block("B", 6, 800.0)]
    assert str(_compare([PAIRS[0], failed, *more[2:]]).basis).startswith("6 pairs of turns")
    both = [replace(run, deployment="e") if run.started == 5 else run for run in PAIRS]
    assert str(_compare(both).basis).startswith("6 pairs of turns on 2 clusters")


def test_too_few_pairs_carry_no_verdict() -> None:
    few = _compare(PAIRS[:10])
    assert few.level == "run" and few.differs is None
    assert _compare(PAIRS).differs is True


def test_latency_is_paired_too() -> None:
    latency = _compare(PAIRS, key="clat_ns_mean")
    assert latency.percent == pytest.approx(1e4 / _compare(PAIRS).percent)
    assert _compare(PAIRS, key="clat_ns_max").low is None


def test_blocks_that_took_turns_share_a_deployment() -> None:
    assert {run.deployment for run in PAIRS} == {"d"}
    assert len(set(stretches(PAIRS, "configuration").values())) == 12


def test_the_sequences_p_is_what_its_interval_says() -> None:
    for shift in (0.0, 0.01, 0.03, 0.05, 0.1, 0.3):
        values = [shift + noise - 1 for noise in NOISE]
        found = interval(values)
        error = found.half / boundary(found.count)
        known = StandardError(error, found.count - 1, is_sequence=True)
        assert (known.p(found.center) <= ALPHA) == (abs(found.center) > found.half)


def test_rows_without_end_are_not_all_compared_with_one_another() -> None:
    """A plan of 20,000 configurations took 26 GB, with nothing measured."""
    load = LoadRuns("read", {f"c{number}": () for number in range(20_000)})
    began = time.process_time()
    assert Comparisons({0: load}, "c0").between(0, "c2", "c1") is None
    assert time.process_time() - began < 20


@pytest.mark.parametrize(
    ("late", "has_verdict"),
    [((), True), ((3,), True), (tuple(range(8)), False)],
    ids=["in turns", "one was measured again", "one after the other"],
)
def test_rows_that_did_not_take_turns_have_no_verdict(
    late: tuple[int, ...], has_verdict: bool
) -> None:
    """`order: sequential`, or another day on an existing cluster, was "8 pairs of turns"."""
    noise = [1.0, 1.01, 0.99, 1.02, 1.0, 0.98, 1.01, 1.0]
    runs = [
        _block(name, turn, level * noise[turn], started=2.0 * turn + at)
        for turn in range(8)
        for name, level, at in (
            ("A", 1000.0, 0.0), ("B", 800.0 + turn, 1000.0 if turn in late else 1.0)
        )
    ]  # fmt: skip
    found = _compare(runs)
    assert (found is not None and found.p is not None) is has_verdict

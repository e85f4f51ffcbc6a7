"""What --plan prints."""

from __future__ import annotations

import io
from typing import Any, Callable

import pytest
from rich.console import Console

from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.show import show_plan
from cbt_crypto.plan.steps import plan

pytestmark = pytest.mark.unit


@pytest.fixture
def shown(campaign_of: Callable[..., Campaign]) -> Callable[..., list[str]]:
    def lines(only: tuple[str, ...] = (), **sections: Any) -> list[str]:
        output = io.StringIO()
        show_plan(plan(campaign_of(**sections), only), Console(file=output, width=200))
        return [line.rstrip() for line in output.getvalue().splitlines()]

    return lines


def test_a_file_without_rebuild_learns_what_it_could_spare(
    shown: Callable[..., list[str]],
) -> None:
    """70 minutes of measuring took 21 hours, and nothing named the key."""
    configurations = {name: {"live": {"value": n}} for n, name in enumerate("ABCD")}
    cluster = {"configurations": configurations, "iterations": 4}
    benchmarks = {"rbd_single_client": {"time": 5, "vol_size": 2048}}
    told = [line for line in shown(cluster=cluster, benchmarks=benchmarks) if "With" in line]
    assert len(told) == 1 and "With rebuild: needed in the file's cluster, about " in told[0]
    for rebuild in ("scenario", "needed"):
        lines = shown(cluster={**cluster, "rebuild": rebuild}, benchmarks=benchmarks)
        assert not [line for line in lines if "With" in line]


def test_configurations_steps_and_sums(shown: Callable[..., list[str]]) -> None:
    lines = shown(
        cluster={
            "configurations": {"A": {}, "B": {"live": {"value": 3}}},
            "baseline": "B",
            "rebuild": "needed",
        },
        benchmarks={"rbd_single_client": {"time": 3600, "ramp": 60, "vol_size": 2048}},
    )
    text = "\n".join(lines)
    assert "\nA              none\n" in text
    assert "\nB  (baseline)  live (value=3)\n" in text
    steps = [line.split()[1] for line in lines if line[:1].isdigit() and " cells " not in line]
    assert steps == ["rebuild", "prefill", "measure", "live", "measure"]
    assert lines[-3:] == [
        "2 OSDs; 2 cells to measure; 1 rebuild, 1 live change; prefill of 2.0 GiB. Measuring takes "
        "2:02:00; deployments and prefill are extra.",
        "In all about 2 h 3 min ±30 s on a small cluster, 20 s of it to fill volumes at 100 MiB/s; "
        "--like ARCHIVE, a short run on yours, predicts yours.",
        "One deployment of each configuration: percentages without a verdict; iterations: 4 or "
        "more gives one.",
    ]


def test_what_gives_a_verdict_is_said_of_this_order(shown: Callable[..., list[str]]) -> None:
    both = {"configurations": {"A": {}, "B": {}}}
    lines = shown(cluster={**both, "order": "sequential", "iterations": 4})
    assert lines[-1].endswith(
        "without a verdict; order: rounds with iterations: 4 or more gives one."
    )


def test_what_is_not_measured_is_counted(shown: Callable[..., list[str]]) -> None:
    lines = shown(only=("/ A /",), cluster={"configurations": {"A": {}, "B": {}}})
    assert any(
        line.startswith("2 OSDs; 1 cell to measure, 1 left out; 1 rebuild; ") for line in lines
    )


def test_a_plan_without_the_baseline_says_so(shown: Callable[..., list[str]]) -> None:
    """It promised verdicts, and nothing was there to compare with."""
    cluster = {"configurations": {"A": {}, "B": {}}, "baseline": "A"}
    said = "The baseline, A, is not measured now; percentages need it."
    assert said in shown(only=("/ B /",), cluster=cluster)
    assert said not in shown(only=("/ A /",), cluster=cluster) + shown(cluster=cluster)


def test_a_label_is_whole_in_a_pipe(campaign_of: Callable[..., Campaign]) -> None:
    output = io.StringIO()
    campaign = campaign_of(cluster={"configurations": {"LUKS, no workqueues": {}}})
    planned = plan(campaign)
    show_plan(planned, Console(file=output, width=80))
    assert all(f"{cell.label}  [" in output.getvalue() for cell in planned.cells)


def test_names_are_not_markup(shown: Callable[..., list[str]]) -> None:
    name = "LUKS [red]4k[/red] [0]"
    text = "\n".join(shown(cluster={"configurations": {name: {}}}))
    assert text.count(name) >= 3


PAIR = {"configurations": {"A": {}, "B": {"build": {}}}, "rebuild": "configuration"}


def test_the_losses_that_would_be_seen_are_said_with_one_more_round(
    shown: Callable[..., list[str]],
) -> None:
    (line,) = [line for line in shown(cluster={**PAIR, "iterations": 4}) if "verdicts" in line]
    assert "ends in verdicts on 1 comparison. Each finds a loss of" in line
    assert "with one more round" in line
    assert "are alike in 12 % of campaigns" in line
    (line,) = [line for line in shown(cluster={**PAIR, "iterations": 6}) if "verdicts" in line]
    assert "chance" not in line


def test_comparisons_are_counted_with_each_workload_s_own_baseline(
    shown: Callable[..., list[str]],
) -> None:
    """All cells but one counted, with the baseline's own under each further workload."""
    cluster = {"replication": [1, 2, 3], "baseline": {"replication": 1}, "iterations": 4}
    cluster["osds_per_node"] = 2
    load = {"rbd_single_client": {"workloads": {"op_size": [4096, 8192]}}}
    (line,) = [line for line in shown(cluster=cluster, benchmarks=load) if "verdicts" in line]
    assert "ends in verdicts on 4 comparisons" in line


def test_no_verdict_is_promised_that_cannot_come(shown: Callable[..., list[str]]) -> None:
    turns = {"configurations": {"A": {}, "B": {}}, "order": "interleaved", "rebuild": "needed"}
    short = {"precision": "2%", "min": 10, "max": 50, "block": 10}
    load = {"rbd_single_client": {"time": short}}
    assert "No verdict; a verdict needs 6 pairs." in shown(cluster=turns, benchmarks=load)[-1]
    load = {"rbd_single_client": {"time": {**short, "max": 60}}}
    assert "ends in verdicts" in shown(cluster=turns, benchmarks=load)[-1]
    alone = {"configurations": {"A": {}}, "iterations": 4, "control": False}
    assert "Nothing is compared" in shown(cluster=alone)[-1]


def test_names_of_a_round_are_told_apart(shown: Callable[..., list[str]]) -> None:
    """Those of a matrix have commas: "crc, all, secure, one" were two, or four."""
    matrix = {"wire": {"crc": {}, "secure": {"live": {"value": 1}}},
              "cores": {"all": {}, "one": {"build": {}}}}  # fmt: skip
    lines = shown(cluster={"matrix": matrix, "iterations": 4, "control": False})
    (row, *_) = [line for line in lines if " round 2 " in line]
    names = row.split("round 2")[1].split("  (")[0].strip()
    assert sorted(names.split(" / ")) == ["crc, all", "crc, one", "secure, all", "secure, one"]

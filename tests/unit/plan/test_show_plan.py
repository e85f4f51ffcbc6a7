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
    assert lines[-1] == (
        "2 cells to measure; 1 rebuild, 1 live change; prefill of 2.0 GiB. Measuring takes "
        "2:02:00 by the file's own times; deployments and prefill come on top. In all about "
        "2:02:59 ±30 s on a small cluster; --like ARCHIVE says it of yours. One deployment of "
        "each configuration: percents without a verdict; iterations: 4 or more gives one."
    )


def test_what_gives_a_verdict_is_said_of_this_order(shown: Callable[..., list[str]]) -> None:
    both = {"configurations": {"A": {}, "B": {}}}
    lines = shown(cluster={**both, "order": "sequential", "iterations": 4})
    assert lines[-1].endswith(
        "without a verdict; order: rounds with iterations: 4 or more gives one."
    )


def test_what_is_not_measured_is_counted(shown: Callable[..., list[str]]) -> None:
    lines = shown(only=("/ A /",), cluster={"configurations": {"A": {}, "B": {}}})
    assert lines[-1].startswith("1 cell to measure, 1 not; 1 rebuild; ")


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

"""`workloads` of librbdfio: each combination of each is a cell, with upstream's own precedence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cbt_crypto.benchmarks.upstream import Librbdfio
from cbt_crypto.errors import UsageError
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.order import cells_of

pytestmark = pytest.mark.unit

Make = Callable[..., Campaign]


def cells(campaign_of: Make, **section: Any) -> list[dict[str, Any]]:
    campaign = campaign_of(benchmarks={"rbd_single_client": ..., "librbdfio": section})
    first = campaign.names_of_configurations[0]
    return [cell.parameters for cell in cells_of(campaign) if cell.configuration == first]


def test_lists_span_a_product_in_each_workload(campaign_of: Make) -> None:
    found = cells(
        campaign_of,
        time=5,
        iodepth=1,
        workloads={
            "reads": {"mode": "randread", "iodepth": [4, 8], "numjobs": [1, 2]},
            "writes": {"mode": "write"},
        },
    )
    shown = [(p["workload"], p["mode"], p["iodepth"], p.get("numjobs")) for p in found]
    assert shown == [
        ("reads", "randread", 4, 1),
        ("reads", "randread", 4, 2),
        ("reads", "randread", 8, 1),
        ("reads", "randread", 8, 2),
        ("writes", "write", 1, None),
    ]
    assert {p["time"] for p in found} == {5}, "what a workload lacks comes from above"


def test_dimensions_without_names_are_as_for_other_scenarios(campaign_of: Make) -> None:
    found = cells(campaign_of, workloads={"mode": ["read", "write"]})
    assert [p["mode"] for p in found] == ["read", "write"]
    assert not {"workload", "total_iodepth", "pre_workload_script"} & set(found[0])


def test_what_is_wrong_in_a_workload_is_named(campaign_of: Make) -> None:
    with pytest.raises(UsageError, match=r"librbdfio\.workloads\.reads\.iodepth"):
        cells(campaign_of, workloads={"reads": {"iodepth": 0}})
    with pytest.raises(UsageError, match=r"workloads\.b: must be a mapping of names to values"):
        cells(campaign_of, workloads={"a": {"iodepth": 1}, "b": 3})
    with pytest.raises(UsageError, match=r"x is a mapping; give one value, or a list of values"):
        cells(campaign_of, workloads={"reads": {"x": {"y": 1}}})


@pytest.mark.parametrize(
    ("total", "volumes", "depth", "numbers"),
    [(5, 2, 2, ("0", "1")), (8, 2, 4, ("0", "1")), (2, 4, 1, ("0", "1")), (3, 1, 3, ("0",))],
)
def test_a_total_depth_wins_and_is_divided(
    total: int, volumes: int, depth: int, numbers: tuple[str, ...]
) -> None:
    made = Librbdfio(configuration="A", total_iodepth=total, volumes_per_client=volumes, iodepth=99)
    assert made.iodepth == depth
    assert made.volume_numbers() == numbers
    assert made.options()["total_iodepth"] == total
    assert "iodepth" not in made.options()


def test_upstream_s_object_gets_what_is_its_own() -> None:
    made = Librbdfio(configuration="A", workload="w", pre_workload_script="true", iodepth=3)
    assert made.before() == "true"
    options = made.options()
    assert options["iodepth"] == 3
    assert not {"workload", "pre_workload_script", "total_iodepth", "workloads"} & set(options)

"""Lists are dimensions: which scenario objects a section makes, and in which order."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbt_crypto.errors import UsageError
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.file.schema import combinations

pytestmark = pytest.mark.unit


def test_the_last_key_varies_fastest_and_workloads_come_last() -> None:
    section = {"workloads": {"op_size": [1, 2], "mode": ["r", "w"]}, "iodepth": [8, 9], "time": 5}
    assert list(combinations(section)) == [
        {"iodepth": depth, "time": 5, "op_size": size, "mode": mode}
        for depth in (8, 9)
        for size in (1, 2)
        for mode in ("r", "w")
    ]


def test_a_workload_s_key_overrides_the_same_key_above_it() -> None:
    section = {"iodepth": [1, 2], "mode": "r", "workloads": {"iodepth": [64]}}
    assert list(combinations(section)) == [{"mode": "r", "iodepth": 64}]


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=3).filter(lambda key: key != "workloads"),
        st.lists(st.integers(), min_size=1, max_size=4) | st.integers(),
        max_size=4,
    )
)
def test_each_combination_once(section: dict[str, Any]) -> None:
    lists = [value if isinstance(value, list) else [value] for value in section.values()]
    made = list(combinations(section))
    assert [tuple(one.values()) for one in made] == list(itertools.product(*lists))
    assert all(list(one) == list(section) for one in made)


def test_each_configuration_is_measured_unless_the_section_says(
    campaign_of: Callable[..., Any],
) -> None:
    campaign = campaign_of(
        cluster={"configurations": {"A": {}, "B": {}, "C": {}}},
        benchmarks={"rbd_multi_client": {"configuration": ["A", "C"]}},
    )
    measured = {
        name: [scenario.configuration for scenario in scenarios]
        for name, scenarios in campaign.scenarios.items()
    }
    assert measured == {"rbd_single_client": ["A", "B", "C"], "rbd_multi_client": ["A", "C"]}


def test_the_first_configuration_is_the_baseline(campaign_of: Callable[..., Any]) -> None:
    configurations = {"B": {}, "A": {}}
    assert campaign_of(cluster={"configurations": configurations}).baseline == "B"
    chosen = campaign_of(cluster={"configurations": configurations, "baseline": "A"})
    assert chosen.baseline == "A"


def test_the_title_is_the_file_s_name(
    write_campaign: Callable[..., Path], campaign_of: Callable[..., Any]
) -> None:
    assert campaign_of(name="reef_encryption.yaml").title == "reef_encryption"


def test_cbt_s_names_are_taken_for_ours(campaign_of: Callable[..., Any]) -> None:
    campaign = campaign_of(
        cluster={"ceph-osd_cmd": "/opt/ceph-osd", "ceph_mon_cmd": "/opt/ceph-mon"},
        benchmarks={"rbd_single_client": {"cmd_path": ["/a/fio", "/b/fio"]}},
    )
    assert campaign.cluster.ceph_osd_cmd == "/opt/ceph-osd"
    assert campaign.cluster.ceph_mon_cmd == "/opt/ceph-mon"
    fios = [scenario.fio_cmd for scenario in campaign.scenarios["rbd_single_client"]]
    assert fios == ["/a/fio", "/b/fio"]


def test_a_list_of_mappings_is_several_sets_of_dimensions(
    campaign_of: Callable[..., Campaign],
) -> None:
    parts = [
        {"time": 10, "op_size": 4194304, "mode": ["read", "write"]},
        {"time": 10, "op_size": 4096, "iodepth": [64, 1], "mode": ["randread"]},
    ]
    objects = campaign_of(benchmarks={"rbd_single_client": parts}).scenarios["rbd_single_client"]
    assert [(one.op_size, one.iodepth, one.mode) for one in objects] == [
        (4194304, 128, "read"),
        (4194304, 128, "write"),
        (4096, 64, "randread"),
        (4096, 1, "randread"),
    ]


def test_what_is_wrong_in_one_of_them_is_named_by_its_number(
    campaign_of: Callable[..., Campaign],
) -> None:
    parts = [{"time": 10}, {"time": 10, "depth": 3}]
    with pytest.raises(UsageError, match=r"benchmarks\.rbd_single_client\[1\]\.depth"):
        campaign_of(benchmarks={"rbd_single_client": parts})

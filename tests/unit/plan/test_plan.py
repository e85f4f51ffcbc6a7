"""In which order a campaign's cells run, and what has to be done between them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import pytest

from cbt_crypto.cluster_overlays.base import Transition
from cbt_crypto.errors import UsageError
from cbt_crypto.plan.cells import select
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.order import cells_of
from cbt_crypto.plan.steps import Deploy, Plan, Prefill, plan

pytestmark = pytest.mark.unit

Make = Callable[..., Campaign]
Steps = Callable[[Plan], list[str]]

CONFIGURATIONS = {"A": {}, "B": {"live": {}}, "C": {"live": {}, "restart": {}}, "D": {"build": {}}}
TWO = {"rbd_single_client": {"op_size": [4096, 65536]}, "rbd_single_client_sync": {"time": 5}}


def order(campaign: Campaign) -> list[tuple[Any, ...]]:
    return [
        (cell.configuration, cell.scenario.name, cell.iteration, cell.parameters["op_size"])
        for cell in cells_of(campaign)
    ]


def test_configurations_then_scenarios_then_iterations_then_dimensions(campaign_of: Make) -> None:
    campaign = campaign_of(
        cluster={
            "configurations": {"B": {}, "A": {}}, "iterations": 2, "order": "sequential",
        },
        benchmarks=TWO,
    )  # fmt: skip
    many, sync = "rbd_single_client", "rbd_single_client_sync"
    assert order(campaign) == [
        (configuration, *rest)
        for configuration in ("B", "A")
        for rest in (
            (many, 0, 4096),
            (many, 0, 65536),
            (many, 1, 4096),
            (many, 1, 65536),
            (sync, 0, 4096),
            (sync, 1, 4096),
        )
    ]


def test_ids_and_paths_are_cbt_s_and_each_is_its_own(campaign_of: Make) -> None:
    cells = cells_of(campaign_of(cluster={"iterations": 3}, benchmarks=TWO))
    assert len({cell.id for cell in cells}) == len({cell.path for cell in cells}) == len(cells)
    for cell in cells:
        assert cell.path == f"results/{cell.iteration:08d}/{cell.id}"
        assert len(cell.id) == len("id-") + 16
        int(cell.id.removeprefix("id-"), 16)


def test_ids_stay_the_same_from_run_to_run(campaign_of: Make) -> None:
    first, second = (cells_of(campaign_of(benchmarks=TWO)) for _ in range(2))
    assert [cell.path for cell in first] == [cell.path for cell in second]
    assert [cell.definition for cell in first] == [cell.definition for cell in second]


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"settings": {"osd_memory_target": "16G"}}, False),
        ({"osds_per_node": 2}, False),
        ({"configurations": {"A": {"live": {}}}}, False),
        ({"configurations": {"A": {"live": {"value": 1}}}}, False),
        ({"iterations": 3}, True),
        ({"rebuild": "needed"}, True),
        ({"deploy_timeout": 900}, True),
        ({"configurations": {"A": {}, "B": {"live": {}}}}, True),
    ],
)
def test_a_definition_changes_with_what_is_measured(
    campaign_of: Make, change: Any, same: bool
) -> None:
    base = {"configurations": {"A": {}}}
    before = cells_of(campaign_of(cluster=base))[0]
    after = cells_of(campaign_of(cluster={**base, **change}))[0]
    assert (before.definition == after.definition) is same


def test_a_definition_changes_with_the_content_of_ceph_conf(
    campaign_of: Make, tmp_path: Path
) -> None:
    conf = tmp_path / "ceph.conf"
    found = []
    for text in ("[osd]\na = 1\n", "[osd]\n a=1 # the same\n", "[osd]\na = 2\n"):
        conf.write_text(text)
        found.append(cells_of(campaign_of(cluster={"conf_file": str(conf)}))[0].definition)
    assert found[0] == found[1] != found[2]


def test_two_cells_that_are_the_same(campaign_of: Make) -> None:
    campaign = campaign_of(benchmarks={"rbd_single_client": {"op_size": [4096, 4096]}})
    with pytest.raises(UsageError, match="two cells are the same: rbd_single_client / Default"):
        cells_of(campaign)


def test_more_cells_than_a_report_reads(campaign_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """`check` called 24,016 of them good, and what was measured could not be reported."""
    replication = {"replication": [1, 2]}
    lists = {"rbd_single_client": {"op_size": [512, 1024, 2048]}}
    monkeypatch.setattr("cbt_crypto.archive.documents.MOST_CELLS", 6)
    assert len(cells_of(campaign_of(cluster=replication, benchmarks=lists))) == 6
    monkeypatch.setattr("cbt_crypto.archive.documents.MOST_CELLS", 5)
    with pytest.raises(UsageError, match="make more than 5 cells; shorten them"):
        campaign_of(cluster=replication, benchmarks=lists)


def test_rebuild_scenario_builds_for_each(campaign_of: Make, steps_of: Steps) -> None:
    made = plan(campaign_of(cluster={"configurations": {"A": {}, "B": {}}}, benchmarks=TWO))
    block = ["rebuild {0}", "prefill 1", "measure {0}", "measure {0}"]
    sync = ["rebuild {0}", "prefill 1", "measure {0}"]
    assert steps_of(made) == [word.format(name) for name in "AB" for word in (*block, *sync)]


def test_rebuild_configuration_keeps_the_volumes_of_the_scenario_before(
    campaign_of: Make, steps_of: Steps
) -> None:
    made = plan(
        campaign_of(
            cluster={"configurations": {"A": {}, "B": {}}, "rebuild": "configuration"},
            benchmarks=TWO,
        )
    )
    block = ["rebuild {0}", "prefill 1", "measure {0}", "measure {0}", "measure {0}"]
    assert steps_of(made) == [word.format(name) for name in "AB" for word in block]


def test_rebuild_needed_does_no_more_than_it_takes(campaign_of: Make, steps_of: Steps) -> None:
    made = plan(
        campaign_of(
            cluster={
                "configurations": {**CONFIGURATIONS, "E": {"build": {}}},
                "rebuild": "needed",
            }
        )
    )
    assert steps_of(made) == [
        *("rebuild A", "prefill 1", "measure A"),
        *("live B", "measure B"),
        *("restart C", "measure C"),
        *("rebuild D", "prefill 1", "measure D"),
        *("none E", "measure E"),
    ]


def test_rebuild_never_refuses_what_it_cannot_keep(campaign_of: Make, steps_of: Steps) -> None:
    cluster = {"configurations": CONFIGURATIONS, "rebuild": "never"}
    with pytest.raises(UsageError, match='"C" cannot become "D" without a rebuild; say rebuild'):
        plan(campaign_of(cluster=cluster))
    made = plan(campaign_of(cluster=cluster), only=["/ A /", "/ B /", "/ C /"])
    assert [step for step in steps_of(made) if step.startswith("re")] == ["rebuild A", "restart C"]


def test_rebuild_every_test_is_stronger_than_rebuild(campaign_of: Make, steps_of: Steps) -> None:
    made = plan(
        campaign_of(cluster={"rebuild": "never", "rebuild_every_test": True}, benchmarks=TWO)
    )
    assert steps_of(made) == ["rebuild Default", "prefill 1", "measure Default"] * 3


def test_an_existing_cluster_is_never_built(campaign_of: Make, steps_of: Steps) -> None:
    made = plan(
        campaign_of(
            cluster={
                "use_existing": True,
                "rebuild_every_test": True,
                "configurations": {"A": {}, "B": {}},
            },
            benchmarks=TWO,
        )
    )
    assert steps_of(made) == ["none A", "prefill 1", *["measure A"] * 3, *["measure B"] * 3]


def test_only_selects_by_parts_of_labels_and_by_globs(campaign_of: Make) -> None:
    cells = cells_of(campaign_of(cluster={"configurations": {"A": {}, "B": {}}}, benchmarks=TWO))
    assert len(cells) == 6
    assert {cell.configuration for cell in select(cells, ["/ a /"])} == {"A"}
    assert len(select(cells, ["*sync*"])) == 2
    assert len(select(cells, ["sync", "/ b /"])) == 4
    assert select(cells, []) == cells


def test_only_that_matches_nothing_names_a_label(campaign_of: Make) -> None:
    with pytest.raises(UsageError) as caught:
        plan(campaign_of(), only=["sync"])
    label = cells_of(campaign_of())[0].label
    assert str(caught.value) == (
        f'--only "sync" matches no cell; `cbt-crypto plan FILE` lists them, e.g. "{label}"'
    )


def test_finished_cells_are_not_measured_again(campaign_of: Make, steps_of: Steps) -> None:
    campaign = campaign_of(
        cluster={"configurations": {"A": {}, "B": {"live": {}}}, "rebuild": "needed"},
        benchmarks=TWO,
    )
    cells = cells_of(campaign)
    kept = [cell.path for cell in cells if cell.configuration == "A"]
    made = plan(campaign, finished=kept)
    assert steps_of(made) == ["rebuild B", "prefill 1", *["measure B"] * 3]
    assert len(made.cells) == 6
    assert plan(campaign, finished=[cell.path for cell in cells]).steps == ()


def test_volumes_are_prefilled_once_and_only_those_that_are_missing(campaign_of: Make) -> None:
    made = plan(
        campaign_of(
            cluster={"rebuild": "configuration"},
            benchmarks={
                "rbd_single_client": {"vol_size": 1024},
                "rbd_multi_client": {"vol_size": 1024, "volumes_per_client": 3},
                "rbd_single_client_sync": {"vol_size": [1024, 2048]},
            },
        )
    )
    prefills = [step for step in made.steps if isinstance(step, Prefill)]
    assert [[volume.name for volume in step.volumes] for step in prefills] == [
        [f"cbt-{client}-{n}-1024" for client in ("c0", "c1") for n in range(3)],
        ["cbt-c0-0-2048"],
    ]
    assert made.prefill_mb == 6 * 1024 + 2048


def test_sums(campaign_of: Make) -> None:
    made = plan(
        campaign_of(
            cluster={"configurations": CONFIGURATIONS, "rebuild": "needed"},
            benchmarks={"rbd_single_client": {"time": 30, "ramp": 5}},
        )
    )
    assert made.seconds == 4 * 35
    kinds = [made.deployments(how) for how in Transition]
    assert dict(zip(Transition, kinds)) == {
        Transition.NONE: 0,
        Transition.LIVE: 1,
        Transition.RESTART: 1,
        Transition.REBUILD: 2,
    }
    assert all(step.reason for step in made.steps if isinstance(step, Deploy))

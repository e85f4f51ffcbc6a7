"""`rate: 50%`: whose maximum it is a part of, and where that is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable

import pytest

from cbt_crypto.errors import RunError, UsageError
from cbt_crypto.plan.cells import Cell, reference_of
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.order import cells_of
from cbt_crypto.plan.steps import plan
from cbt_crypto.run.cell.conditions import loaded

pytestmark = pytest.mark.unit

Make = Callable[..., Campaign]

TWO = {"configurations": {"Plain": {}, "Secure": {"live": {}}}, "rebuild": "needed"}


def _load(**options: Any) -> dict[str, Any]:
    return {"rbd_single_client": {"mode": ["randread", "randwrite"], **options}}


def _relative(campaign: Campaign) -> list[Cell]:
    return [cell for cell in cells_of(campaign) if cell.parameters["rate"] == "50%"]


def test_it_is_always_the_baseline_s_first_iteration(campaign_of: Make) -> None:
    cluster = {**TWO, "iterations": 2}
    campaign = campaign_of(cluster=cluster, benchmarks=_load(rate=["max", "50%"]))
    cells = cells_of(campaign)
    plan(campaign)
    assert len(_relative(campaign)) == 8
    for cell in _relative(campaign):
        found = reference_of(cell, cells, campaign.first_configuration)
        assert found is not None
        same = {k: v for k, v in cell.parameters.items() if k != "rate"}
        assert {k: v for k, v in found.parameters.items() if k != "rate"} == same
        assert (found.configuration, found.parameters["rate"], found.iteration) == (
            "Plain",
            "max",
            0,
        )


@pytest.mark.parametrize(
    ("rate", "cluster", "sentence"),
    [
        (["50%"], {}, "Plain does at max, which is not measured; say rate: [max, 50%]"),
        (["50%", "max"], {}, "which is measured later; put max first"),
        (["max", "50%"], {"baseline": "Secure"}, None),
    ],
)
def test_a_maximum_that_is_not_there(
    campaign_of: Make, rate: list[str], cluster: dict[str, Any], sentence: Any
) -> None:
    campaign = campaign_of(cluster={**TWO, **cluster}, benchmarks=_load(rate=rate))
    if sentence is None:
        plan(campaign)
        return
    with pytest.raises(UsageError, match="part of what") as error:
        plan(campaign)
    assert sentence in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def _measured(archive: Path, cell: Cell, iops: tuple[int, ...], state: str = "finished") -> None:
    """A cell.json and logs as fio writes them: time in ms, IOPS, direction, size."""
    folder = archive / cell.path
    folder.mkdir(parents=True)
    processes = [
        {"host": "c", "volume": str(n), "json": f"json_output.{n}.c", "logs": f"output.{n}"}
        for n in range(len(iops))
    ]
    (folder / "cell.json").write_text(json.dumps({"state": state, "processes": processes}))
    for n, value in enumerate(iops):
        lines = [f"{1700000000000 + 1000 * s}, {value}, 0, 4096, 0\n" for s in range(10)]
        (folder / f"output.{n}_iops.1.log.c").write_text("".join(lines))


def test_iops_come_from_the_archive(campaign_of: Make, tmp_path: Path) -> None:
    campaign = campaign_of(cluster=TWO, benchmarks=_load(rate=["max", "50%"], mode="randread"))
    cells = cells_of(campaign)
    reference = cells[0]
    for cell in _relative(campaign):
        with pytest.raises(RunError, match="which was not measured"):
            loaded(cell, cells, "Plain", tmp_path)
    _measured(tmp_path, reference, (3000, 1001))
    for cell in _relative(campaign):
        assert loaded(cell, cells, "Plain", tmp_path).model_dump()["rate"] == 2000
    assert loaded(reference, cells, "Plain", tmp_path) is reference.scenario


def test_a_failed_maximum_is_none(campaign_of: Make, tmp_path: Path) -> None:
    campaign = campaign_of(cluster=TWO, benchmarks=_load(rate=["max", "50%"], mode="randread"))
    cells = cells_of(campaign)
    _measured(tmp_path, cells[0], (3000,), state="failed")
    with pytest.raises(RunError, match="its rate is a part of what"):
        loaded(_relative(campaign)[0], cells, "Plain", tmp_path)

"""Any dimension of the file can be the one that is compared."""

from __future__ import annotations

from typing import Any, Callable

import pytest

from cbt_crypto.errors import UsageError
from cbt_crypto.plan.file import Campaign

pytestmark = pytest.mark.unit

Make = Callable[..., Campaign]
SWEEP = {"rbd_single_client": {"time": 10, "iodepth": [1, 16], "op_size": [4096, 8192]}}


def test_the_first_configuration_when_nothing_is_named(campaign_of: Make) -> None:
    campaign = campaign_of(cluster={"configurations": {"A": {}, "B": {}}})
    assert (campaign.compared, campaign.baseline) == ("configuration", "A")
    assert campaign.first_configuration == "A"


@pytest.mark.parametrize(("dimension", "value"), [("iodepth", 1), ("op_size", 8192)])
def test_a_value_of_another_dimension(campaign_of: Make, dimension: str, value: int) -> None:
    cluster = {"configurations": {"A": {}, "B": {}}, "baseline": {dimension: value}}
    campaign = campaign_of(cluster=cluster, benchmarks=SWEEP)
    assert (campaign.compared, campaign.baseline) == (dimension, value)
    assert campaign.first_configuration == "A"


def test_a_configuration_can_be_named_that_way_too(campaign_of: Make) -> None:
    cluster = {"configurations": {"A": {}, "B": {}}, "baseline": {"configuration": "B"}}
    assert campaign_of(cluster=cluster).first_configuration == "B"


@pytest.mark.parametrize(
    ("baseline", "sentence"),
    [
        ({"iodepth": 4}, 'does not measure the baseline, "4"'),
        ({"depth": 4}, 'no benchmark of the file has the dimension "depth"'),
        ({"mode": "randread"}, "the values of mode are different workloads"),
        ({"iodepth": 1, "op_size": 4096}, "one dimension with one value"),
        ({"iodepth": [1]}, "names no plain value of iodepth"),
        ({"configuration": "C"}, 'unknown configuration "C"'),
    ],
)
def test_one_sentence_for_each_mistake(campaign_of: Make, baseline: Any, sentence: str) -> None:
    cluster = {"configurations": {"A": {}, "B": {}}, "baseline": baseline}
    with pytest.raises(UsageError, match=sentence):
        campaign_of(cluster=cluster, benchmarks=SWEEP)

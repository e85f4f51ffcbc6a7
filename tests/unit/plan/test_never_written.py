"""A workload that reads volumes which nobody filled measures nothing, and is refused."""

from __future__ import annotations

from typing import Any, Callable

import pytest

from cbt_crypto.errors import UsageError
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.steps import plan

pytestmark = pytest.mark.unit

Make = Callable[..., Campaign]


@pytest.mark.parametrize("mode", ["read", "randread", "rw", "randrw"])
def test_reads_of_what_nobody_wrote(campaign_of: Make, mode: str) -> None:
    load: dict[str, Any] = {"rbd_single_client": {"mode": mode, "prefill": False}}
    with pytest.raises(UsageError, match=f"rbd_single_client: prefill: false with mode: {mode} "):
        plan(campaign_of(benchmarks=load))


@pytest.mark.parametrize("mode", ["write", "randwrite"])
def test_writes_need_no_prefill(campaign_of: Make, mode: str) -> None:
    assert plan(campaign_of(benchmarks={"rbd_single_client": {"mode": mode, "prefill": False}}))

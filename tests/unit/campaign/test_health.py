"""How often a campaign asks for its cluster's health: after each cell, and after each change."""

from __future__ import annotations

from typing import Any

import pytest

from cbt_crypto.engine.embedded.ceph import Ceph

pytestmark = pytest.mark.unit


def test_a_cluster_that_was_seen_healthy_is_not_asked_again(
    host: Any, no_overlays: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(Ceph, "check_health", lambda self: asked.append(1))
    benchmarks = {"rbd_single_client": {"time": 1, "op_size": [4096, 8192, 65536]}}
    assert host.cbt(host.write(benchmarks=benchmarks)).exit_code == 0
    assert len(asked) == 1 + 3

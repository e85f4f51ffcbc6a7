"""The embedded engine, with a file read and hosts that are this machine behind recording shims."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any, Callable

import pytest

from cbt_crypto.engine import Engine
from cbt_crypto.engine.embedded import common
from cbt_crypto.engine.names import embedded


@dataclasses.dataclass
class Bench:
    """An engine that has read a campaign's file."""

    engine: Engine
    tmp_dir: Path
    archive: Path


@pytest.fixture
def bench(
    write_campaign: Callable[..., Path], tmp_path: Path, shims: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Bench]:  # fmt: skip
    """Initialize the engine's settings from the base campaign, with changes; no host is local."""
    monkeypatch.setattr(common, "_local_names", frozenset)

    def make(**sections: Any) -> Bench:
        tmp_dir = tmp_path / "cbt"
        tmp_dir.mkdir(exist_ok=True)
        cluster = {"tmp_dir": str(tmp_dir), **sections.pop("cluster", {})}
        path = write_campaign(cluster=cluster, **sections)
        archive = tmp_path / "archive"
        engine = embedded()
        engine.settings.initialize(
            argparse.Namespace(config_file=str(path), archive=str(archive), conf=None)
        )
        return Bench(engine, tmp_dir, archive)

    return make

"""Each engine, with a file read and hosts that are this machine behind recording shims."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest

from cbt_crypto.engine import Engine
from cbt_crypto.engine.choice import embedded
from cbt_crypto.engine.upstream.checkout import Checkout
from cbt_crypto.engine.upstream.engine import upstream as make_upstream
from cbt_crypto.hosts import directories, remote

#: Upstream's modules, by the top-level names under which one process can hold them once.
_UPSTREAM = ("settings", "common", "monitoring", "cluster", "benchmark", "client_endpoints_factory")


@dataclasses.dataclass
class Bench:
    """An engine that has read a campaign's file."""

    engine: Engine
    tmp_dir: Path
    archive: Path


Make = Callable[..., Bench]


@pytest.fixture
def own_bench(
    write_campaign: Callable[..., Path], tmp_path: Path, shims: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> Make:  # fmt: skip
    """The embedded engine's settings from the base campaign, with changes; no host is local.

    For what the embedded engine promises beyond CBT.
    """
    monkeypatch.setattr(remote, "local_names", frozenset)
    return _maker(embedded(), write_campaign, tmp_path)


@pytest.fixture
def upstream(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, programs: Callable[[str, str], Path]
) -> Iterator[Engine]:
    """A checkout as the engine. Its modules are imported anew, and forgotten afterwards."""
    with _imported(checkout, monkeypatch, programs) as engine:
        yield engine


@pytest.fixture
def upstream_bench(
    upstream: Engine, write_campaign: Callable[..., Path], tmp_path: Path, shims: Any
) -> Make:
    """Make benchmarks of an upstream checkout alone."""
    return _maker(upstream, write_campaign, tmp_path)


@pytest.fixture
def bench(
    request: pytest.FixtureRequest, write_campaign: Callable[..., Path], tmp_path: Path,
    shims: Any, monkeypatch: pytest.MonkeyPatch, programs: Callable[[str, str], Path],
) -> Iterator[Make]:  # fmt: skip
    """Each engine in turn: the embedded one, and every checkout that was found."""
    if request.param is None:
        monkeypatch.setattr(remote, "local_names", frozenset)
        yield _maker(embedded(), write_campaign, tmp_path)
        return
    with _imported(request.param, monkeypatch, programs) as engine:
        yield _maker(engine, write_campaign, tmp_path)


@contextlib.contextmanager
def _imported(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, programs: Callable[[str, str], Path]
) -> Iterator[Engine]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(socket, "gethostbyname", lambda host: "192.0.2.1")
    programs("sudo", 'exec "$@"')
    _forget()
    try:
        yield make_upstream(checkout)
    finally:
        _forget()


def _forget() -> None:
    for name in list(sys.modules):
        if name.partition(".")[0] in _UPSTREAM:
            del sys.modules[name]


def _maker(engine: Engine, write_campaign: Callable[..., Path], tmp_path: Path) -> Make:
    def make(**sections: Any) -> Bench:
        tmp_dir = tmp_path / "cbt"
        subprocess.run(["sh", "-c", directories.make(str(tmp_dir))], check=True)
        cluster = {"tmp_dir": str(tmp_dir), **sections.pop("cluster", {})}
        path = write_campaign(cluster=cluster, **sections)
        archive = tmp_path / "archive"
        engine.settings.initialize(
            argparse.Namespace(config_file=str(path), archive=str(archive), conf=None)
        )
        return Bench(engine, tmp_dir, archive)

    return make

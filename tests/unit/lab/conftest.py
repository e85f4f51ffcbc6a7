from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from cbt_crypto.lab.shape import Kind, Lab, Shape, make_nodes


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache directory of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "cbt-crypto"


@pytest.fixture
def shape() -> Shape:
    return Shape(kind=Kind.VM, nodes=3, disks=2, disk_size=8 * 2**30, memory=3 * 2**30, cpus=2)


@pytest.fixture
def make_lab(tmp_path: Path, shape: Shape) -> Callable[..., Lab]:
    """Lab "trial" of three nodes, with directories for them."""

    def make(kind: Kind = Kind.VM) -> Lab:
        network = IPv4Network("10.231.7.0/24")
        ends = [("127.0.0.1", 20001 + index) for index in range(3)]
        lab = Lab(
            name="trial",
            directory=tmp_path / "trial",
            shape=shape.model_copy(update={"kind": kind}),
            image="0123456789ab",
            network=network,
            nodes=make_nodes(network, ends if kind is Kind.VM else [(None, 22)] * 3),
            accelerator="tcg" if kind is Kind.VM else "none",
        )
        for node in lab.nodes:
            lab.node_dir(node).mkdir(parents=True)
        return lab

    return make

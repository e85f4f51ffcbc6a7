"""Labs of this project's own kind, for tests that need hosts: namespaces, or virtual machines."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from cbt_crypto.lab import lifecycle
from cbt_crypto.lab.shape import Kind, Lab, Shape, Steps


def namespaces(nodes: int, **others: Any) -> Shape:
    """So many nodes of namespaces, which need root: without it the test is skipped, and says so."""
    if os.geteuid() != 0:
        pytest.skip("namespace nodes need root")
    sizes = {"disks": 0, "disk_size": 2**30, "memory": 1, "cpus": 1, **others}
    return Shape(kind=Kind.NAMESPACE, nodes=nodes, **sizes)


def start_lab(name: str, shape: Shape) -> Lab:
    """Start it, or raise RunError; what a start that failed leaves is the caller's."""
    with Steps(Console(file=io.StringIO())) as steps:
        return lifecycle.up(name, shape, steps)[0]


@contextlib.contextmanager
def running_lab(name: str, shape: Shape) -> Iterator[Lab]:
    """A lab that is torn down afterwards, whatever happens, also while it starts."""
    try:
        yield start_lab(name, shape)
    finally:
        lifecycle.down(name)

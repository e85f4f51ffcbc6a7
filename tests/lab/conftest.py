"""One boot for all tests that leave a lab of virtual machines as it is."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from real_labs import running_lab

from cbt_crypto.lab.shape import Kind, Lab, Shape

SHAPE = Shape(kind=Kind.VM, nodes=2, disks=3, disk_size=64 << 20, memory=1 << 30, cpus=2)


@pytest.fixture(scope="session")
def two() -> Iterator[Lab]:
    """Two machines of three small disks each, without a cluster."""
    with running_lab(f"vm-test-{os.getpid()}", SHAPE) as started:
        yield started

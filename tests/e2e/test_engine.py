"""The embedded engine's cluster alone: what its OSDs run with once they are up."""

from __future__ import annotations

import json
import subprocess
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

import pytest

from cbt_crypto.engine.embedded import settings
from cbt_crypto.engine.embedded.ceph import Ceph

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture
def cluster(machine: Any) -> Iterator[Ceph]:
    config = machine.write({"Default": {}}, {"rbd_single_client": {}})
    settings.initialize(Namespace(config_file=str(config), archive=str(machine.archive), conf=None))
    made = Ceph(settings.cluster)
    try:
        made.initialize()
        yield made
    finally:
        made.shutdown()
        made.purge()
    assert machine.leftovers() == []


def in_force(cluster: Ceph, option: str) -> list[str]:
    """An option of each running OSD."""
    answers = []
    for osd in cluster.site.osds:
        command = ["ceph", "daemon", osd.admin_socket, "config", "get", option]
        told = subprocess.run(command, capture_output=True, check=True)
        answers.append(json.loads(told.stdout)[option])
    return answers


def test_what_only_the_start_of_osds_needs_is_not_in_force_afterwards(cluster: Ceph) -> None:
    assert in_force(cluster, "bdev_aio_poll_ms") == ["250", "250"]
    cluster.restart()
    assert in_force(cluster, "bdev_aio_poll_ms") == ["250", "250"]

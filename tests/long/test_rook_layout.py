"""A cluster as Rook lays it out: daemons and commands in a container, the head is `kubectl exec`.

Kubernetes itself cannot be had here. In its place `kubectl` enters the container by nsenter; the
cluster is by Ceph's own tools, as in tests/e2e/test_stock_clusters.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_labs import namespaces, running_lab
from stock_clusters import SCRIPT, STATE, campaigns, run_script

import cbt_crypto
from cbt_crypto.lab import access
from cbt_crypto.lab import run as transfer
from cbt_crypto.lab.run import CBT_SCRIPT
from cbt_crypto.lab.shape import Lab, Release

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

_TOOLBOX = "kubectl -n rook-ceph exec deploy/rook-ceph-tools --"
#: Each OSD has a block.db of its own, which is looked at where its container has it.
_DB = "'bluestore_block_db_create = true' 'bluestore_block_db_size = 1073741824'"
_KEYS = {"ceph_cmd": f"{_TOOLBOX} ceph", "rbd_cmd": f"{_TOOLBOX} rbd"}


@pytest.fixture(params=[Release.REEF, Release.TENTACLE], ids=lambda release: str(release.value))
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A node with such a cluster of the release, this package and the campaigns."""
    files: dict[str, Path | str] = {
        "cbt.py": CBT_SCRIPT,
        "cbt_crypto": Path(cbt_crypto.__file__).parent,
        "stock.sh": SCRIPT,
        "rook.sh": SCRIPT.with_name("rook_cluster.sh"),
        "state.sh": STATE,
        **campaigns("node0", "/root/mine", keys=_KEYS),
    }
    with running_lab(f"rook-test-{os.getpid()}", namespaces(1, ceph=request.param)) as started:
        transfer.put(started, started.head, "/root/campaign", files)
        script = f"cd /root/campaign; sh rook.sh /root/campaign/stock.sh {_DB}"
        access.run(started, started.head, script)
        yield started


def state(lab: Lab) -> str:
    return access.run(lab, lab.head, f"{_TOOLBOX} sh /root/campaign/state.sh")


def run(lab: Lab, name: str) -> str:
    return access.run(lab, lab.head, run_script(name, "/root/campaign", "python3 cbt.py"))


def test_what_is_in_containers_is_recognised_and_left_as_it_was(lab: Lab) -> None:
    before = state(lab)
    plain, secure, luks = (run(lab, name) for name in ("plain", "secure", "luks"))
    assert plain.startswith("plain: proved"), plain
    assert "2 of 2 OSDs did not encrypt what they exchanged" in plain
    assert secure.startswith("secure: refused"), secure
    assert "its traffic is plain: clients crc, OSDs crc" in secure
    assert luks.startswith("luks: refused"), luks
    assert "below which is no dm-crypt" in luks
    assert state(lab) == before
    databases = access.run(
        lab, lab.head, 'grep -ch \'"block.db": "file"\' /root/campaign/plain/results/*/*/proof.json'
    )
    assert databases.strip() == "2", "the evidence has each OSD's database"

    asked = access.run(lab, lab.head, "cat /var/lib/rook/asked")
    assert "rbd -c /etc/ceph/ceph.conf" in asked

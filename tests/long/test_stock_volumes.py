"""A cluster whose OSDs ceph-volume made with --dmcrypt, in a virtual machine: it is recognised."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_labs import running_lab
from stock_clusters import SCRIPT, campaigns, run_script

import cbt_crypto
from cbt_crypto.lab import access
from cbt_crypto.lab import run as transfer
from cbt_crypto.lab.run import CBT_SCRIPT
from cbt_crypto.lab.shape import Kind, Lab, Release, Shape

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1500)]

_MAKE = """
for disk in /dev/vd?; do wipefs -qa "$disk"?* "$disk"; partx -d "$disk" 2>/dev/null || :; done
cd /root/campaign
OSDS=0 DEVICES='/dev/vda /dev/vdb' sh stock.sh 'osd_memory_target = 900000000'
"""
_STATE = """
for what in 'config dump' 'auth ls' 'osd tree' 'mon dump'; do ceph $what 2>/dev/null; done
dmsetup table | sed 's/ :[0-9]*:logon:[^ ]*//' | sort; lvs --noheadings -o lv_name,lv_tags; rbd ls
find /etc/ceph /var/lib/ceph -name store.db -prune -o -name 'external_log_to*' -o \\
    -printf '%p %M %u %l\\n' | sort  # the monitor writes that log's place anew all the time
"""
CLAIMS = {
    "encrypted": {"As it is": {"luks": {}}},
    "plain": {"As it is": {}},
    "options": {"As it is": {"luks": {"sector_size": 512, "allow_discards": False}}},
}


@pytest.fixture(scope="module", params=list(Release), ids=lambda release: str(release.value))
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    shape = Shape(
        kind=Kind.VM, ceph=request.param, nodes=1, disks=2,
        disk_size=4 << 30, memory=4 << 30, cpus=2,
    )  # fmt: skip
    load = {"vol_size": 16, "iodepth": 4, "time": 5, "op_size": 65536}
    files: dict[str, Path | str] = {
        "cbt.py": CBT_SCRIPT,
        "cbt_crypto": Path(cbt_crypto.__file__).parent,
        "stock.sh": SCRIPT,
        **campaigns("node0", "/root/mine", CLAIMS, **load),
    }
    with running_lab(f"stock-volumes-{os.getpid()}", shape) as started:
        transfer.put(started, started.head, "/root/campaign", files)
        access.run(started, started.head, _MAKE)
        yield started


def run(lab: Lab, name: str) -> str:
    return access.run(lab, lab.head, run_script(name, "/root/campaign", "python3 cbt.py"))


def test_dmcrypt_of_ceph_volume_is_recognised_and_left_as_it_was(lab: Lab) -> None:
    before = access.run(lab, lab.head, _STATE)
    assert " crypt " in before
    encrypted = run(lab, "encrypted")
    assert encrypted.startswith("encrypted: proved"), encrypted
    assert "2 of 2 OSDs are on dm-crypt" in encrypted
    plain = run(lab, "plain")
    assert plain.startswith("plain: refused"), plain
    assert "which is encrypted" in plain
    options = run(lab, "options")
    assert options.startswith("options: refused"), options
    assert "has flags allow_discards" in options
    assert access.run(lab, lab.head, _STATE) == before

"""OSDs with a block.db of their own, made by ceph-volume in a virtual machine: each as it is.

One of each kind: plain; dmcrypt, which encrypts data and DB alike; and data or DB alone on volumes
that are on what cryptsetup opened. Every claim is made of every OSD, and one of them holds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from real_labs import running_lab
from stock_clusters import SCRIPT, campaigns, run_script

import cbt_crypto
from cbt_crypto.cluster_overlays.db_device import DbDevice
from cbt_crypto.cluster_overlays.luks.overlay import Luks
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.site import Osd, Site
from cbt_crypto.lab import access
from cbt_crypto.lab import run as transfer
from cbt_crypto.lab.run import CBT_SCRIPT
from cbt_crypto.lab.shape import Kind, Lab, Shape
from cbt_crypto.plan.file import read_campaign
from cbt_crypto.plan.layout import site_of
from cbt_crypto.run.targets.existing import discover

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1500)]

HOST = "node0"
_SHAPE = Shape(kind=Kind.VM, nodes=1, disks=4, disk_size=5 << 30, memory=4 << 30, cpus=2)
_MAKE = """
for disk in /dev/vd?; do wipefs -qa "$disk"?* "$disk"; partx -d "$disk" 2>/dev/null || :; done
head -c 32 /dev/urandom > /root/key
encrypted() {
    cryptsetup luksFormat -q --pbkdf pbkdf2 --pbkdf-force-iterations 1000 "$1" /root/key
    cryptsetup open --key-file /root/key "$1" "$2"
}
encrypted /dev/vdc site-data
encrypted /dev/vdd site-db
vgcreate -q data /dev/vda; vgcreate -q db /dev/vdb
vgcreate -q cdata /dev/mapper/site-data; vgcreate -q cdb /dev/mapper/site-db
for name in plain dmcrypt db; do lvcreate -q -y -L 1500M -n $name data; done
for name in plain dmcrypt data; do lvcreate -q -y -L 1500M -n $name db; done
lvcreate -q -y -L 1500M -n data cdata; lvcreate -q -y -L 1500M -n db cdb
cd /root/campaign
OSDS=0 VOLUMES='data/plain --block.db db/plain
data/dmcrypt --dmcrypt --block.db db/dmcrypt
cdata/data --block.db db/data
data/db --block.db cdb/db' sh stock.sh 'osd_memory_target = 900000000'
"""
#: By OSD: the claim of it that holds.
TRUE = ("plain", "both", "data", "db")
CLAIMS: Mapping[str, Any] = {
    "plain": Luks.absent(),
    "both": Luks(),
    "data": Luks(devices=("data",)),
    "db": Luks(devices=("db",)),
}
_FALSE = {
    ("plain", "both"): "below which is no dm-crypt",
    ("plain", "data"): "below which is no dm-crypt",
    ("both", "plain"): "which is encrypted",
    ("both", "data"): "its db device is on",
    ("both", "db"): "its data device is on",
    ("data", "plain"): "which is encrypted",
    ("db", "plain"): "which is encrypted",
}


class _OnNode:
    """What `discover` needs of a Remote, by the lab's own ssh."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    def run(self, scripts: Mapping[str, str], what: str, limit_s: float) -> dict[str, str]:
        return {
            host: access.run(self.lab, self.lab.head, f"set -eu\nSUDO=\n(\n{script}\n)")
            for host, script in scripts.items()
        }


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    load_of_cell = {"vol_size": 16, "iodepth": 4, "time": 5, "op_size": 65536}
    files: dict[str, Path | str] = {
        "cbt.py": CBT_SCRIPT,
        "cbt_crypto": Path(cbt_crypto.__file__).parent,
        "stock.sh": SCRIPT,
        **campaigns(HOST, "/root/mine", {"plain": {"As it is": {}}}, **load_of_cell),
    }
    with running_lab(f"stock-db-{os.getpid()}", _SHAPE) as started:
        transfer.put(started, started.head, "/root/campaign", files)
        access.run(started, started.head, _MAKE)
        yield started


@pytest.fixture(scope="module")
def site(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The cluster as a campaign finds it."""
    config = tmp_path_factory.mktemp("claims") / "plain.yaml"
    config.write_text(campaigns(HOST, "/root/claims")["plain.yaml"])
    section = read_campaign(config).cluster
    remote = cast(Remote, _OnNode(lab))
    found = discover(remote, site_of(section), section)
    remote.run({HOST: "mkdir -p /root/claims/ceph/run"}, "", 60)
    remote.run(found.pid_files, "", 60)
    return found.site


def judged(lab: Lab, site: Site, osd: Osd, overlay: Any) -> Any:
    alone = replace(site, osds=(osd,))
    look = _OnNode(lab).run(overlay.probe(alone), "", 60)
    return overlay.judge(alone, look, look)


def test_each_osd_is_what_it_is_and_nothing_else(lab: Lab, site: Site) -> None:
    assert [osd.id for osd in site.osds] == [0, 1, 2, 3]
    assert all(osd.db_device for osd in site.osds)
    verdicts = {
        (TRUE[osd.id], claim): judged(lab, site, osd, overlay)
        for osd in site.osds
        for claim, overlay in CLAIMS.items()
    }
    print(json.dumps({str(key): verdict.reason for key, verdict in verdicts.items()}, indent=1))
    for (truth, claim), verdict in verdicts.items():
        assert verdict.proved == (truth == claim), (truth, claim, verdict.reason)
        assert _FALSE.get((truth, claim), "") in verdict.reason


def test_where_its_database_is_stands_in_the_evidence(lab: Lab, site: Site) -> None:
    for osd in site.osds:
        verdict = judged(lab, site, osd, DbDevice.absent())
        assert verdict.proved and "that they were deployed with" in verdict.reason
        assert yaml.safe_dump(dict(verdict.evidence)).count("block.db: /dev/") == 1


def test_a_campaign_refuses_what_is_mixed(lab: Lab) -> None:
    said = access.run(lab, lab.head, run_script("plain", "/root/campaign", "python3 cbt.py"))
    assert said.startswith("plain: refused"), said
    assert "which is encrypted" in said

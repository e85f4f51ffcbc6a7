"""Clusters with a block.db of its own, made by ceph-volume in a virtual machine: each as it is.

One after another: plain; dmcrypt, which encrypts data and DB alike; and data or DB alone on volumes
that are on what cryptsetup opened. Of each, one claim holds and every other is refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

import pytest
import yaml
from real_labs import running_lab
from stock_clusters import SCRIPT, campaigns, run_script

import cbt_crypto
from cbt_crypto.cluster_overlays.base import Overlay, Verdict
from cbt_crypto.cluster_overlays.db_device import DbDevice
from cbt_crypto.cluster_overlays.luks.overlay import Luks
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.site import Site
from cbt_crypto.lab import access
from cbt_crypto.lab import run as transfer
from cbt_crypto.lab.run import CBT_SCRIPT
from cbt_crypto.lab.shape import Kind, Lab, Shape
from cbt_crypto.plan.file import read_campaign
from cbt_crypto.plan.layout import site_of
from cbt_crypto.run.targets.existing import discover

pytestmark = [pytest.mark.lab, pytest.mark.timeout(3600)]

HOST = "node0"
_SHAPE = Shape(kind=Kind.VM, nodes=1, disks=4, disk_size=4 << 30, memory=4 << 30, cpus=2)
#: What a cluster is -> the words for ceph-volume behind --data.
VOLUMES = {
    "plain": "data/plain --block.db db/plain",
    "both": "data/dmcrypt --dmcrypt --block.db db/dmcrypt",
    "data": "cdata/data --block.db db/data",
    "db": "data/db --block.db cdb/db",
}
_MAKE = f"""
for disk in /dev/vd?; do wipefs -qa "$disk"?* "$disk"; partx -d "$disk" 2>/dev/null || :; done
head -c 32 /dev/urandom > /root/key
encrypted() {{
    cryptsetup luksFormat -q --pbkdf pbkdf2 --pbkdf-force-iterations 1000 "$1" /root/key
    cryptsetup open --key-file /root/key "$1" "$2"
}}
encrypted /dev/vdc site-data
encrypted /dev/vdd site-db
vgcreate -q data /dev/vda; vgcreate -q db /dev/vdb
vgcreate -q cdata /dev/mapper/site-data; vgcreate -q cdb /dev/mapper/site-db
for name in plain dmcrypt db; do lvcreate -q -y -L 1200M -n $name data; done
for name in plain dmcrypt data; do lvcreate -q -y -L 1200M -n $name db; done
lvcreate -q -y -L 1200M -n data cdata; lvcreate -q -y -L 1200M -n db cdb
cd /root/campaign
OSDS=0 VOLUMES='{VOLUMES["plain"]}' sh stock.sh 'osd_memory_target = 900000000' \
    'mon_allow_pool_size_one = true' 'osd_pool_default_size = 1'
"""
_ADD = """
old=$(ceph osd ls)
ceph-volume lvm create --bluestore --no-systemd --data WORDS > /root/volume.log 2>&1
new=$(ceph osd ls | grep -vx "$old")
(cd / && ceph-osd -i "$new" > /dev/null 2>&1)
echo "$old" > /root/old
"""
#: A pool of one copy moves to the OSD that stays.
_REMOVE = """
old=$(cat /root/old)
ceph osd out "$old"
for n in $(seq 90); do
    ! ceph osd safe-to-destroy "$old" || break
    sleep 1
done
kill "$(pgrep -fx "ceph-osd -i $old")"
while pgrep -fx "ceph-osd -i $old"; do sleep 0.2; done
ceph osd purge "$old" --yes-i-really-mean-it
umount /var/lib/ceph/osd/ceph-"$old"
"""
#: Each is what the campaign of its name says, too.
CLAIMS: Mapping[str, Luks] = {
    "plain": Luks.absent(),
    "both": Luks(),
    "data": Luks(devices=("data",)),
    "db": Luks(devices=("db",)),
}
_SAID = {
    "plain": {}, "both": {"luks": {}}, "data": {"luks": {"devices": ["data"]}},
    "db": {"luks": {"devices": ["db"]}}, "mixed": {}, "false": {"luks": {}},
}  # fmt: skip
_FALSE = {
    ("plain", "both"): "below which is no dm-crypt",
    ("plain", "data"): "below which is no dm-crypt",
    ("both", "plain"): "which is encrypted",
    ("both", "data"): "its db device is on",
    ("both", "db"): "its data device is on",
    ("data", "plain"): "which is encrypted",
    ("data", "both"): "below which is no dm-crypt",
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
    load_of_cell = {"vol_size": 16, "iodepth": 4, "time": 4, "op_size": 65536}
    claims = {name: {"As it is": said} for name, said in _SAID.items()}
    files: dict[str, Path | str] = {
        "cbt.py": CBT_SCRIPT,
        "cbt_crypto": Path(cbt_crypto.__file__).parent,
        "stock.sh": SCRIPT,
        **campaigns(HOST, "/root/mine", claims, **load_of_cell),
    }
    with running_lab(f"stock-db-{os.getpid()}", _SHAPE) as started:
        transfer.put(started, started.head, "/root/campaign", files)
        access.run(started, started.head, _MAKE)
        yield started


def found(lab: Lab, folder: Path) -> Site:
    """The cluster as a campaign finds it."""
    config = folder / "plain.yaml"
    config.write_text(campaigns(HOST, "/root/claims")["plain.yaml"])
    section = read_campaign(config).cluster
    remote = cast(Remote, _OnNode(lab))
    cluster = discover(remote, site_of(section), section)
    remote.run({HOST: "mkdir -p /root/claims/ceph/run"}, "", 60)
    remote.run(cluster.pid_files, "", 60)
    return cluster.site


def judged(lab: Lab, site: Site, overlay: Overlay) -> Verdict:
    look = _OnNode(lab).run(overlay.probe(site), "", 60)
    return overlay.judge(site, look, look)


def campaign(lab: Lab, name: str) -> str:
    """How the campaign of this name ended, and what its proofs say."""
    return access.run(lab, lab.head, run_script(name, "/root/campaign", "python3 cbt.py"))


def test_each_cluster_is_what_it_is_and_nothing_else(lab: Lab, tmp_path: Path) -> None:
    for truth, words in VOLUMES.items():
        if truth != "plain":
            access.run(lab, lab.head, _ADD.replace("WORDS", words))
            if truth == "both":
                said = campaign(lab, "mixed")
                assert said.startswith("mixed: refused") and "which is encrypted" in said, said
            access.run(lab, lab.head, _REMOVE)
        site = found(lab, tmp_path)
        (osd,) = site.osds
        assert osd.db_device
        for claim, overlay in CLAIMS.items():
            verdict = judged(lab, site, overlay)
            print(truth, claim, verdict.proved, verdict.reason, flush=True)
            assert verdict.proved == (truth == claim), (truth, claim, verdict.reason)
            assert _FALSE.get((truth, claim), "") in verdict.reason
        verdict = judged(lab, site, DbDevice.absent())
        assert verdict.proved and "that they were deployed with" in verdict.reason
        assert yaml.safe_dump(dict(verdict.evidence)).count("block.db: /dev/") == 1
        said = campaign(lab, truth)
        print(said, flush=True)
        assert said.startswith(f"{truth}: proved"), said
        if truth == "data":
            said = campaign(lab, "false")
            assert said.startswith("false: refused") and _FALSE["data", "both"] in said, said

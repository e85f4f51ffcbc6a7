"""Devices of rbd-nbd in a virtual machine: librbd encrypts them, or not, and the proof knows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from luks_campaigns import cells, run_file, section
from real_labs import running_lab

from cbt_crypto.lab import access
from cbt_crypto.lab.shape import Kind, Lab, Shape

pytestmark = [pytest.mark.lab, pytest.mark.timeout(3600)]

NAME = f"rbd-nbd-{os.getpid()}"
SHAPE = Shape(kind=Kind.VM, nodes=1, disks=2, disk_size=2**31, memory=3 * 2**30, cpus=2)
CONFIGURATIONS: dict[str, Any] = {
    "plain": {},
    "librbd": {"rbd_encryption": {"by": "librbd"}},
    "dm-crypt": {"rbd_encryption": {"sector_size": 4096}},
}
LOAD = {"vol_size": 16, "iodepth": 4, "time": 5, "op_size": 4096, "mode": "randwrite"}
#: rbd without the options of the encryption, or with a shorter key than is asked for.
WITHOUT = r"""cat > /root/rbd-without <<'RBD'
#!/bin/sh
for word; do
    shift
    case $word in io-timeout=*) word=${word%%,encryption*} ;; esac
    set -- "$@" "$word"
done
exec rbd "$@"
RBD
sed 's/io-timeout.*;;/aes-256) word=aes-128 ;;/' /root/rbd-without > /root/rbd-shorter
chmod 755 /root/rbd-without /root/rbd-shorter"""
#: Of somebody else, on the same cluster: without our mark, or a cookie of ours.
STRANGER = """conf=/var/lib/cbt-crypto/ceph/ceph.conf
rbd -c $conf create rbd/theirs --size 16 2> /dev/null
env -u CBT_CRYPTO_MARK rbd -c $conf device map -t nbd rbd/theirs 2> /dev/null"""
KILL = """kill -KILL $(cat /root/campaign/pid)
ours=$(grep -l '^cbt-crypto-' /sys/block/nbd*/backend)
kill -KILL $(cat "${ours%backend}pid")"""
CLEANUP = """cd /root/campaign
python3 -c 'from cbt_crypto.cli import cbt_crypto; cbt_crypto()' cleanup --yes /root/archive 2>&1"""
LEFT = """cat /sys/block/nbd*/backend 2> /dev/null || :
ls -d /var/lib/cbt-crypto /run/cbt-crypto /dev/shm/cbt-crypto 2> /dev/null || :
dmsetup ls | grep -v '^No devices' || :
ps --ppid 2 --deselect -o comm= | grep -E 'ceph|fio|rbd' || :"""


def document(configurations: Any, **others: Any) -> dict[str, Any]:
    settings = {"osd_memory_target": "900M"}
    cluster = section(configurations=configurations, settings=settings, rebuild="needed", **others)
    return {"cluster": cluster, "benchmarks": {"rbd_nbd": LOAD}}


def proof_of(cell: dict[str, Any]) -> dict[str, Any]:
    (found,) = [o for o in cell["proof"]["overlays"] if o["overlay"] == "rbd_encryption"]
    return dict(found)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with running_lab(NAME, SHAPE) as started:
        yield started


def test_each_place_is_proved_by_what_is_in_the_image(lab: Lab, tmp_path: Path) -> None:
    run_file(lab.name, tmp_path / "archive", document(CONFIGURATIONS))
    assert access.run(lab, lab.head, LEFT) == ""
    seen = {cell["configuration"]: proof_of(cell) for cell in cells(tmp_path / "archive")}
    assert set(seen) == set(CONFIGURATIONS)
    for name, proof in seen.items():
        assert proof["proved"], name
        (served,) = proof["evidence"]["served"].values()
        stored = 2**24 if name == "plain" else 2**25
        assert (served["stored"], served["size"]) == (stored, stored >> (name == "librbd"))
        assert bool(served["options"]) is (name == "librbd")
        header = {
            "offset": 2**24, "cipher": "aes-xts-plain64", "key_size": 512, "sector_size": 4096,
        }  # fmt: skip
        assert served["header"] == (None if name == "plain" else header)


@pytest.mark.parametrize(
    ("rbd", "sentence"),
    [
        ("/root/rbd-without", "which rbd-nbd does not decrypt"),
        ("/root/rbd-shorter", "has key_size 256 and not 512"),
    ],
)
def test_it_fails_where_librbd_does_otherwise(
    lab: Lab, tmp_path: Path, rbd: str, sentence: str
) -> None:
    access.run(lab, lab.head, WITHOUT)
    one = document({"librbd": CONFIGURATIONS["librbd"]}, rbd_cmd=rbd)
    with pytest.raises(AssertionError, match=sentence):
        run_file(lab.name, tmp_path / "archive", one)
    (path,) = (tmp_path / "archive").glob("results/0*/id-*/cell.json")
    cell = json.loads(path.read_text())
    assert cell["state"] == "failed" and sentence in cell["reason"]
    assert access.run(lab, lab.head, LEFT) == ""


def test_after_a_kill_ours_is_unmapped_and_a_strangers_stays(lab: Lab, tmp_path: Path) -> None:
    """Also where our rbd-nbd was killed under its dm-crypt: the kernel keeps the cookie."""
    config = tmp_path / "long.yaml"
    one = document({"dm-crypt": CONFIGURATIONS["dm-crypt"]})
    one["benchmarks"]["rbd_nbd"] = {**LOAD, "time": 600}
    config.write_text(yaml.safe_dump(one))
    words = ["lab", "run", str(config), "-a", str(tmp_path / "archive"), "--name", lab.name]
    running = subprocess.Popen([sys.executable, "-m", "cbt_crypto", *words])
    try:
        access.run(
            lab, lab.head, "until grep -qs rw=[r]andwrite /proc/[0-9]*/cmdline; do sleep 1; done"
        )
        theirs = access.run(lab, lab.head, STRANGER).strip().rpartition("/")[2]
        server = access.run(lab, lab.head, f"cat /sys/block/{theirs}/pid").strip()
        access.run(lab, lab.head, KILL)
    finally:
        running.kill()
    access.run(lab, lab.head, CLEANUP)
    left = access.run(lab, lab.head, LEFT).split()
    serves = access.run(lab, lab.head, f"cat /sys/block/{theirs}/pid /proc/{server}/comm").split()
    access.run(lab, lab.head, f"kill -KILL {server}; rbd-nbd unmap /dev/{theirs} 2> /dev/null")
    assert serves == [server, "rbd-nbd"]
    assert left[1:] == ["rbd-nbd"], "theirs alone, behind its cookie"
    assert access.run(lab, lab.head, LEFT) == ""

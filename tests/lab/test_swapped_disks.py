"""Two virtual disks swap their places between a kill -9 and the next start."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from real_labs import running_lab

from cbt_crypto.lab import access, run
from cbt_crypto.lab.run import LabCampaign
from cbt_crypto.lab.shape import Kind, Lab, Shape

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1500)]

NAME = f"swapped-{os.getpid()}"
SHAPE = Shape(kind=Kind.VM, nodes=1, disks=2, disk_size=2 << 30, memory=3 << 30, cpus=2)
HOME = "/root/campaign"
CLUSTER = {
    "head": "node0", "clients": ["node0"], "osds": ["node0"],
    "mons": {"node0": {"a": "node0"}}, "mgrs": {"node0": {"x": None}},
    "pool_profiles": {"rbd": {"pg_size": 8, "pgp_size": 8, "replication": 1}},
    "settings": {"osd_memory_target": "900M"},
    "configurations": {"LUKS": {"luks": {}}},
}  # fmt: skip
LOAD = {"vol_size": 8, "iodepth": 2, "time": 60, "ramp": 0, "op_size": 4096, "mode": "randread"}
#: As a reboot: what ran has ended, and the drives are found in another order.
SWAP = """
set -e
for pid in $(grep -lzxF 'CBT_CRYPTO_MARK=/var/lib/cbt-crypto@node0' /proc/[0-9]*/environ |
    cut -d/ -f3); do kill -9 $pid || :; done
sleep 2
for name in $(dmsetup ls --target crypt | cut -f1); do cryptsetup close $name; done
one=$(basename $(readlink -f /sys/block/vdX/device))
two=$(basename $(readlink -f /sys/block/vdY/device))
cd /sys/bus/virtio/drivers/virtio_blk
echo $one > unbind; echo $two > unbind
echo $two > bind; echo $one > bind
udevadm settle || :
"""


@pytest.fixture
def lab() -> Iterator[Lab]:
    with running_lab(NAME, SHAPE) as started:
        yield started


def digest(disk: Path) -> str:
    return subprocess.check_output(["sha256sum", disk], text=True).split()[0]


def test_nothing_of_the_other_disk_is_touched(lab: Lab, tmp_path: Path) -> None:
    def on(script: str) -> str:
        return access.run(lab, lab.head, script).strip()

    mine = on("readlink -f /dev/disk/by-partlabel/osd-device-0-data")
    other = on("readlink -f /dev/disk/by-partlabel/osd-device-1-data")
    one, two = mine[len("/dev/vd")], other[len("/dev/vd")]
    config = tmp_path / "swap.yaml"
    document = {
        "cluster": {**CLUSTER, "osd_devices": [mine]},
        "benchmarks": {"rbd_single_client": LOAD},
    }
    config.write_text(yaml.safe_dump(document, sort_keys=False))
    run.put(lab, lab.head, HOME, LabCampaign(config, tmp_path).files())
    start = f"cd {HOME} && exec python3 cbt.py --no-report -a /root/archive swap.yaml 2>&1"
    command = access.command(lab, lab.head, f"echo $$ > /root/pid; {start}")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        said = ""
        for line in running.stdout:
            said += line
            if "cell 1/1" in line:
                break
        else:
            pytest.fail(said)
        time.sleep(5)
        on("kill -9 $(cat /root/pid)")
        running.terminate()
    on(f"mkfs.ext4 -q -F {other} && sync")
    serials = [on(f"cat /sys/block/vd{letter}/serial") for letter in (one, two)]
    on(SWAP.replace("vdX", f"vd{one}").replace("vdY", f"vd{two}"))
    swapped = [on(f"cat /sys/block/vd{letter}/serial") for letter in (one, two)]
    assert swapped == serials[::-1], "the disks have swapped their places"
    # What is at our path now is the other disk.
    # Read here: an emulated processor takes minutes for it.
    behind = lab.node_dir(lab.head) / "disks" / "osd-device-1"
    on("sync")
    before = digest(behind)
    again = on(f"({start}) || echo status $?")
    on("sync")
    assert digest(behind) == before
    assert again.endswith("status 2"), again
    assert serials[0] in again and serials[1] in again, again
    assert on(f"head -c 11 {other}") == "cbt-crypto:", "ours was emptied where it is now"

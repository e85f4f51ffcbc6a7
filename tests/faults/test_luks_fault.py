"""cryptsetup fails on the third of four devices: in a virtual machine, where dm-crypt is real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from fault_table import Table
from real_labs import running_lab

from cbt_crypto.lab import access
from cbt_crypto.lab.shape import Kind, Lab, Shape

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1800)]

NAME = f"faults-vm-{os.getpid()}"
SHAPE = Shape(kind=Kind.VM, nodes=1, disks=4, disk_size=1 << 30, memory=4 << 30, cpus=2)
CAMPAIGN = {
    "cluster": {
        "head": "node0", "clients": ["node0"], "osds": ["node0"], "osds_per_node": 4,
        "mons": {"node0": {"a": "node0"}}, "mgrs": {"node0": {"x": None}},
        "pool_profiles": {"rbd": {"pg_size": 8, "pgp_size": 8, "replication": 1}},
        "settings": {"osd_memory_target": "900M"},
        "configurations": {"LUKS": {"luks": {}}},
    },
    "benchmarks": {
        "rbd_single_client": {
            "vol_size": 8, "iodepth": 2, "time": 3, "ramp": 0, "op_size": 4096, "mode": "randread",
        }
    },
}  # fmt: skip
#: Stands before the real one, and fails where a bad disk would.
SHIM = r"""cat > /usr/local/bin/cryptsetup <<'SHIM'
#!/bin/sh
bad=$(readlink -f /dev/disk/by-partlabel/osd-device-2-data)
case " $* " in
    *" luksFormat "*) for word; do
        [ "$(readlink -f "$word" 2>/dev/null)" != "$bad" ] ||
            { echo "Device $word: I/O error while writing the header." >&2; exit 5; }
    done ;;
esac
exec /usr/sbin/cryptsetup "$@"
SHIM
chmod +x /usr/local/bin/cryptsetup"""
LEFT = """dmsetup table --target crypt | grep crypt || :
ls -d /var/lib/cbt-crypto /run/cbt-crypto /dev/shm/cbt-crypto 2> /dev/null || :
for disk in /dev/disk/by-partlabel/osd-device-*; do blkid -p $disk | grep -e LUKS -e ceph || :; done
ps -e -o comm= | grep -e ceph -e fio || :"""


@pytest.fixture
def lab() -> Iterator[Lab]:
    with running_lab(NAME, SHAPE) as started:
        yield started


def run(config: Path, archive: Path) -> tuple[subprocess.CompletedProcess[str], float]:
    command = [sys.executable, "-m", "cbt_crypto", "lab", "run", str(config), "--no-report"]
    command += ["-a", str(archive), "--name", NAME]
    since = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done, time.monotonic() - since


def test_the_third_of_four_devices(lab: Lab, table: Table, tmp_path: Path) -> None:
    config, archive = tmp_path / "luks.yaml", tmp_path / "archive"
    config.write_text(yaml.safe_dump(CAMPAIGN, sort_keys=False))
    access.run(lab, lab.head, SHIM)
    done, seconds = run(config, archive)
    assert done.returncode == 1, done.stdout + done.stderr
    said = next(line for line in done.stderr.splitlines() if "make the OSDs" in line)
    assert said.startswith("node0: prepare the devices: ")
    assert "I/O error while writing the header" in done.stderr
    assert access.run(lab, lab.head, LEFT) == ""
    access.run(lab, lab.head, "rm /usr/local/bin/cryptsetup")
    again, _ = run(config, archive)
    assert again.returncode == 0, again.stdout + again.stderr
    (cell,) = (json.loads(p.read_text()) for p in archive.glob("results/0*/id-*/cell.json"))
    assert cell["state"] == "finished"
    assert access.run(lab, lab.head, LEFT) == ""
    table.add(
        "cryptsetup fails on the third of four devices",
        f"{seconds:.0f} s from the command on, in an emulated machine", said,
        "no cell yet", "none", "complete, nothing left",
    )  # fmt: skip

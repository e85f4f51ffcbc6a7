"""LUKS in a lab of namespaces, by the dm-crypt of the machine below: here a virtual one.

Its root file system is the image of the nodes, so nothing is built there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from real_labs import running_lab

import cbt_crypto
from cbt_crypto.engine.choice import PROJECT
from cbt_crypto.lab import access, image, run
from cbt_crypto.lab.shape import Kind, Lab, Release, Shape

pytestmark = [pytest.mark.lab, pytest.mark.timeout(3600)]

NAME = f"nested-{os.getpid()}"
SHAPE = Shape(kind=Kind.VM, nodes=1, disks=1, disk_size=16 << 30, memory=5 << 30, cpus=2)
HOME = "/root/program"
MAIN = "from cbt_crypto.cli import cbt_crypto\ncbt_crypto(prog_name='cbt-crypto')\n"
#: A disk for the inner lab's files, where the image is the root file system, seen once more.
PREPARE = f"""
modprobe -a loop dm-crypt
mkfs.ext4 -q /dev/disk/by-partlabel/osd-device-0-data
mkdir -p /srv/cache
mount /dev/disk/by-partlabel/osd-device-0-data /srv/cache
mkdir -p /srv/cache/cbt-crypto/images/{image.key(Release.REEF.suite)}/root
cd /srv/cache/cbt-crypto/images/{image.key(Release.REEF.suite)}
touch vmlinuz
mount --bind / root
# Another user's loop device and mapping, which are to be there at the end.
truncate -s 32M /srv/cache/theirs
device=$(losetup --find --show /srv/cache/theirs)
echo secret | cryptsetup luksFormat -q --pbkdf pbkdf2 --pbkdf-force-iterations 1000 $device -
echo secret | cryptsetup open --key-file - $device theirs
"""
INSIDE = f"cd {HOME}; export XDG_CACHE_HOME=/srv/cache; "
LAB = INSIDE + "python3 main.py lab "
UP = LAB + "up --nodes 1 --disks 2 --disk-size 4G"
RUN = LAB + "run --no-report -a ARCHIVE short.yaml"
#: What there is of loop devices, mappings, mounts and bridges: all but those of the machine.
SHOW = """
losetup --list --noheadings --output BACK-FILE
dmsetup ls | cut -f 1
grep labs /proc/mounts || :
ls /sys/class/net | grep cbt- || :
ls /srv/cache/cbt-crypto/labs
"""
PROOFS = f"""python3 -c '
import glob, json
for path in glob.glob("{HOME}/archive/results/*/id-*/proof.json"):
    print(json.dumps(json.load(open(path))))'
"""
THEIRS = ["/srv/cache/theirs", "theirs"]


def short_campaign() -> str:
    """The quickstart's configurations, once each and briefly."""
    document = yaml.safe_load((PROJECT / "configs" / "quickstart.yaml").read_text())
    document["cluster"].update(iterations=1, control=False)
    del document["cluster"]["warm_up"]
    document["benchmarks"]["rbd_single_client"]["time"] = 3
    return yaml.safe_dump(document, sort_keys=False)


@pytest.fixture(scope="module")
def machine() -> Iterator[Lab]:
    with running_lab(NAME, SHAPE) as lab:
        run.put(
            lab, lab.head, HOME,
            {"cbt_crypto": Path(cbt_crypto.__file__).parent, "cbt.py": PROJECT / "cbt.py",
             "main.py": MAIN, "short.yaml": short_campaign()},
        )  # fmt: skip
        access.run(lab, lab.head, PREPARE)
        yield lab


def on(lab: Lab, script: str) -> str:
    return access.run(lab, lab.head, script).strip()


def left(lab: Lab) -> list[str]:
    return on(lab, SHOW).splitlines()


def test_the_quickstart_s_configurations_are_proved_and_down_leaves_nothing(machine: Lab) -> None:
    said = on(machine, UP)
    assert said.startswith(
        "namespace nodes: with this machine's dm-crypt, at native speed, as qemu-system-x86_64 is "
        "missing\n"
    )
    on(machine, RUN.replace("ARCHIVE", "archive"))
    proofs = [json.loads(line) for line in on(machine, PROOFS).splitlines()]
    measured = sorted(proof["configuration"] for proof in proofs)
    assert measured == ["LUKS", "Secure messenger", "Unencrypted"]
    assert all(proof["proved"] for proof in proofs)
    on(machine, LAB + "down")
    assert left(machine) == THEIRS


@pytest.mark.parametrize("step", ["loops", "mapping", "cell"])
def test_what_a_kill_leaves_goes_with_the_lab(machine: Lab, step: str) -> None:
    """Killed while it starts; with mappings just made; and in a cell with OSDs on mappings."""
    shown = {
        "loops": "losetup --list | grep -q labs",
        "mapping": "dmsetup ls | grep -q cbt-crypto-",
        "cell": "pgrep -x fio > /dev/null",
    }[step]
    if step != "loops":
        on(machine, UP)
    # Of an archive of its own: in another every cell is measured already.
    run_again = RUN.replace("ARCHIVE", f"killed-{step}") + " --only '*LUKS*'"
    command = UP if step == "loops" else run_again
    killed = f"""
    (echo $BASHPID > /root/pid; exec setsid sh -c "{command.replace('"', "")}") > /root/said 2>&1 &
    for try in $(seq 600); do {shown} && break; sleep 0.2; done
    {shown}
    for process in /proc/[0-9]*; do
        tr '\\0' ' ' < $process/cmdline 2> /dev/null | grep -q 'main.py lab' || continue
        kill -9 ${{process#/proc/}} || :
    done
    """
    on(machine, f"bash -eu <<'END' || {{ cat /root/said; exit 1; }}\n{killed}\nEND")
    on(machine, LAB + "down")
    assert left(machine) == THEIRS
    on(machine, "cryptsetup status theirs | grep -q 'is active'")


def test_another_s_mapping_on_a_data_disk_is_left_and_said(machine: Lab) -> None:
    on(machine, UP)
    loop = on(machine, "losetup --list --noheadings --output NAME,BACK-FILE | grep -m 1 labs")
    device = loop.split()[0]
    on(machine, f"echo 0 8 linear {device} 0 | dmsetup create unlike-ours")
    with pytest.raises(Exception, match=r"unlike-ours is on loop.* and is not the lab's"):
        on(machine, LAB + "down")
    on(machine, "dmsetup remove unlike-ours")
    on(machine, LAB + "down")
    assert left(machine) == THEIRS

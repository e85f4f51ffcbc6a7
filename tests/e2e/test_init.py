"""`init` on nodes whose devices carry what real tools wrote: mkfs, pvcreate, ceph-osd."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from loops import loop_device
from real_labs import namespaces, running_lab

import cbt_crypto
from cbt_crypto.engine.choice import PROJECT
from cbt_crypto.lab import access, run
from cbt_crypto.lab.shape import Lab

pytestmark = pytest.mark.e2e

NAME = f"init-test-{os.getpid()}"
_COMMAND = "from cbt_crypto.cli import cbt_crypto\ncbt_crypto(prog_name='cbt-crypto')\n"
_OSD = "11111111-2222-3333-4444-555555555555"
_SIGNATURES = f"""
mkfs.xfs -q -f {{0}}; mkdir -p /srv/data; mount {{0}} /srv/data
pvcreate -q -y {{1}}
mkdir /root/osd; cd /root/osd; ln -s {{2}} block; echo bluestore > type
printf '[global]\\nfsid = aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee\\n' > conf
ceph-osd -c conf --mkfs -i 0 --no-mon-config --osd-objectstore bluestore --osd-data /root/osd \\
    --osd-uuid {_OSD} 2>&1
"""


@pytest.fixture
def lab() -> Iterator[Lab]:
    with running_lab(NAME, namespaces(2)) as started:
        yield started


@pytest.fixture
def loops(tmp_path: Path) -> Iterator[list[str]]:
    with contextlib.ExitStack() as stack:
        files = [tmp_path / f"drive{number}" for number in range(5)]
        yield [stack.enter_context(loop_device(file, 3 << 30)) for file in files]


def test_only_free_drives_are_named_and_the_others_say_why(lab: Lab, loops: list[str]) -> None:
    names = []
    for number, device in enumerate(loops):
        minor = os.minor(os.stat(device).st_rdev)
        link = f"/dev/disk/by-id/wwn-0x500000000000000{number}"
        script = f"mkdir -p /dev/disk/by-id; mknod {device} b 7 {minor}; ln -s {device} {link}"
        access.run(lab, lab.nodes[1], script)
        names.append(link)
    access.run(lab, lab.nodes[1], _SIGNATURES.format(*loops))
    run.put(
        lab, lab.head, "/root/cc",
        {"cbt_crypto": Path(cbt_crypto.__file__).parent, "main.py": _COMMAND,
         "cbt.py": PROJECT / "cbt.py"},
    )  # fmt: skip
    before = access.run(lab, lab.nodes[1], "find /tmp /etc /var/lib -newer /root/osd/conf | sort")
    told = access.run(
        lab, lab.head, "cd /root/cc; python3 main.py init --hosts 'node[0-1]' -o my.yaml 2>&1"
    )
    why = {line.split()[1]: line for line in told.splitlines() if line.startswith("node1  loop")}
    mounted, volume, osd, *free = (why[os.path.basename(device)] for device in loops)
    assert "mounted on /srv/data" in mounted
    assert "LVM physical volume" in volume
    assert f"a Ceph OSD {_OSD}" in osd
    assert all(f"free: {name}" in line for name, line in zip(names[3:], free))
    text = access.run(lab, lab.head, "cat /root/cc/my.yaml")
    assert [name for name in names if name in text] == names[3:]
    assert "and the hosts pass its check" in told
    assert access.run(lab, lab.head, "cd /root/cc; python3 main.py check my.yaml").endswith(
        "cells\n"
    )
    after = access.run(lab, lab.nodes[1], "find /tmp /etc /var/lib -newer /root/osd/conf | sort")
    assert after == before, "init touches nothing"

"""A cluster by cephadm itself, in podman's containers on a machine with systemd: it is recognised.

Debian packages cephadm and podman. The container image is the machine's own root file system,
because no registry has one of Debian's builds. `cephadm bootstrap` makes the monitor, the manager,
keys and configuration, and ends where Reef's manager cannot load its cephadm module: Debian's
python3-cryptography is in Rust, which one interpreter of a process alone may load. So the OSDs are
by `cephadm ceph-volume` and `cephadm deploy`, the commands that this module would run over ssh.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_labs import running_lab
from rich.console import Console
from stock_clusters import CLAIMS, SCRIPT, STATE, campaigns, run_script

import cbt_crypto
from cbt_crypto.hosts.directories import cache_dir
from cbt_crypto.lab import access, image, vm
from cbt_crypto.lab import run as transfer
from cbt_crypto.lab.run import CBT_SCRIPT
from cbt_crypto.lab.shape import Kind, Lab, Release, Shape, Steps, locked

pytestmark = [pytest.mark.lab, pytest.mark.timeout(6000)]

_IMAGE = SCRIPT.with_name("cephadm_image.sh")
_CLUSTER = SCRIPT.with_name("cephadm_cluster.sh")
_SHAPE = Shape(
    kind=Kind.VM, ceph=Release.REEF, nodes=1, disks=3, disk_size=6 << 30, memory=6 << 30, cpus=2
)
_KEYS: dict[str, str] = {"ceph_cmd": "cephadm shell -- ceph", "rbd_cmd": "cephadm shell -- rbd"}
#: Also what would be true if one of an OSD's two devices were not looked at.
_CLAIMS = {**CLAIMS, "data": {"As it is": {"luks": {"devices": ["data"]}}}}
_UNITS = """
systemctl list-units --plain --no-legend 'ceph-*' | tr -s ' '
podman ps -a --format '{{.Names}}' | sort
"""


def cache() -> Path:
    """The directory in which labs find the machine's file system; made now when it is not there.

    What it was made of is in its name.
    """
    with Steps(Console(file=io.StringIO())) as steps:
        plain = image.provide(_SHAPE.ceph.suite, steps)
    key = hashlib.sha256(plain.key.encode() + _IMAGE.read_bytes()).hexdigest()[:12]
    base = cache_dir() / "cephadm" / key
    made = image.Image(base / "cbt-crypto" / "images" / plain.key)
    if not made.system.exists():
        made.directory.mkdir(parents=True, exist_ok=True)
        with locked(base.with_suffix(".lock"), f"another process makes {base}; wait until it ends"):
            _make(plain, made)
    return base


def _make(plain: image.Image, made: image.Image) -> None:
    work, unfinished = made.directory / "work", made.directory / "unfinished"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    place = (str(image.SYSTEM_START), f"{image.SYSTEM_SIZE >> 10}k")
    command = ["sh", str(_IMAGE), str(plain.root), str(work), str(unfinished), *place]
    image.run(image.isolated(command), made.directory / "log")
    image.add_partition(unfinished)
    shutil.rmtree(work)
    for name in ("root", "vmlinuz"):
        link = made.directory / name
        link.unlink(missing_ok=True)
        link.symlink_to(plain.directory / name)
    unfinished.rename(made.system)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """The machine with that cluster, two OSDs of it with their DBs on a third drive, and us."""
    if os.geteuid() != 0:
        pytest.skip("a root file system with containers needs root")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache()))
        patch.setattr(vm.Nodes, "patience_s", 1200.0)  # systemd starts much more than an init
        with running_lab(f"cephadm-{os.getpid()}", _SHAPE) as started:
            put(started)
            make(started, "bootstrap")
            make(started, "osds /dev/vda /dev/vdb --db-devices /dev/vdc")
            yield started


def put(lab: Lab) -> None:
    """This package, the campaigns, and what makes and shows the cluster."""
    files: dict[str, Path | str] = {
        "cbt.py": CBT_SCRIPT,
        "cbt_crypto": Path(cbt_crypto.__file__).parent,
        "cephadm_cluster.sh": _CLUSTER,
        "state.sh": STATE + _UNITS,
        **campaigns("node0", "/root/mine", _CLAIMS, _KEYS, vol_size=16, iodepth=4, op_size=65536),
    }
    transfer.put(lab, lab.head, "/root/campaign", files)


def make(lab: Lab, step: str) -> None:
    """One step of cephadm_cluster.sh, with what it says in the test's output."""
    log = "/root/campaign/cephadm.log"
    with timed(step):
        said = access.run(
            lab, lab.head,
            f"sh /root/campaign/cephadm_cluster.sh {step} > {log} 2>&1 || {{\n"
            f"    tail -n 60 {log}; echo {step} failed\n}}; tail -n 20 {log}",
        )  # fmt: skip
    print(said)
    assert f"{step} failed" not in said, said


def run(lab: Lab, name: str) -> str:
    with timed(f"campaign {name}"):
        said = access.run(lab, lab.head, run_script(name, "/root/campaign", "python3 cbt.py"))
    print(said)
    return said


def state(lab: Lab) -> str:
    with timed("state"):
        return access.run(lab, lab.head, "sh /root/campaign/state.sh")


@contextlib.contextmanager
def timed(what: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    print(f"{what}: {time.monotonic() - began:.0f} s", flush=True)


def test_cephadm_s_cluster_is_recognised_and_left_as_it_was(lab: Lab) -> None:
    before = state(lab)
    assert before.count("osd.") > 2
    paths = access.run(lab, lab.head, "ls -l /var/lib/ceph/*/osd.*/block.db")
    assert paths.count("->") == 2, paths
    plain, secure, luks, data = (run(lab, name) for name in _CLAIMS)
    assert plain.startswith("plain: proved"), plain
    assert "2 of 2 OSDs did not encrypt what they exchanged" in plain
    assert secure.startswith("secure: refused"), secure
    assert "its traffic is plain" in secure
    assert luks.startswith("luks: refused"), luks
    assert "below which is no dm-crypt" in luks
    assert data.startswith("data: refused"), data
    assert "below which is no dm-crypt" in data
    assert state(lab) == before

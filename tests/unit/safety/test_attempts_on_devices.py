"""Devices that only look like ours, or like nobody's: what the kernel tells of them is set up for
this process alone, in a mount namespace; disks are files on loop devices, compared afterwards."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from cbt_crypto.hosts import shell
from cbt_crypto.hosts.devices import destroy, lvm_and_md
from cbt_crypto.lab import namespace
from cbt_crypto.run import hold_on_host, locks

from .conftest import Bench, digest, run

pytestmark = pytest.mark.unit

#: What a drive says of itself, as Linux lays it out (Documentation/ABI/stable/sysfs-block).
Tree = Mapping[str, str]


def told(device: str, tree: Tree, *folders: str) -> str:
    """Shell text after which the kernel seems to say this of a device; what it said goes on."""
    folder = os.path.realpath("/sys/class/block/" + os.path.basename(device))
    lines = [f"cp -r {folder}/. $kept/ 2> /dev/null || :", f"mount -t tmpfs sys {folder}"]
    lines += [f"cp -r $kept/. {folder}/"]
    lines += [f"mkdir -p {folder}/{name}" for name in folders]
    for name, text in tree.items():
        lines += [
            f"mkdir -p $(dirname {folder}/{name})",
            f"printf '%s\\n' '{text}' > {folder}/{name}",
        ]
    return "kept=$(mktemp -d)\n" + "\n".join(lines) + "\nrm -rf $kept\n"


class Told(Bench):
    """A bench whose scripts run where the kernel says what `before` makes it say."""

    before = ""

    def sh(self, text: str) -> subprocess.CompletedProcess[str]:
        script = f"set -eu\nSUDO=\n{self.before}\n{text}"
        command = ["unshare", "--mount", "sh", "-c", script]
        return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def host(bench: Bench) -> Told:
    made = Told(bench.folder, bench.be_alone)
    made.attached = bench.attached
    return made


def nvme(number: int) -> Tree:
    """A namespace of a drive: all of them have its serial number, and an EUI each."""
    return {"device/serial": "S4EWNX0R123456", "wwid": f"eui.002538b1110{number:05x}"}


def test_namespaces_of_one_nvme_drive_are_told_apart(host: Told) -> None:
    """After a format with another layout, namespace 2 is where 1 was: same serial, same size."""
    disk, place = host.disk("mine")
    host.before = told(place, nvme(1))
    host.begin(place, wipe=True)
    run("mkfs.ext4", "-q", place)
    before = digest(disk)
    host.before = told(place, nvme(2))
    said = host.refused(destroy.claim(host.tmp_dir, [place]))
    assert "is another device now" in said and "eui.002538b111000002" in said
    host.good(destroy.empty_all(host.tmp_dir))
    assert digest(disk) == before


@pytest.mark.parametrize("kind", ["dm", "md", "bcache"])
def test_a_mapping_or_array_with_our_name_over_somebody_s_disk(host: Told, kind: str) -> None:
    """Whoever has root may name his so; and a name is no proof."""
    disk, place = host.disk("theirs")
    _, mine = host.disk("mine")
    host.begin(mine, wipe=True)
    host.good(destroy.claim(host.tmp_dir, [mine]))
    run("mkfs.ext4", "-q", place)
    before = digest(disk)
    over, node = host.disk("over")[0], host.attached[-1]
    tree = {"dm": {"dm/name": "cbt-crypto-osd.0", "dm/uuid": "CRYPT-LUKS2-0000-cbt-crypto-osd.0"},
            "md": {"md/level": "raid0", "md/uuid": "0"}, "bcache": {}}[kind]  # fmt: skip
    below, name = os.path.basename(place), os.path.basename(node)
    link = f"ln -s ../../{below} $(readlink -f /sys/class/block/{name})/slaves/{below}\n"
    host.before = told(node, tree, "slaves") + link
    contents = digest(over)
    look = host.good(destroy.look(host.tmp_dir, node, "osd_devices"))
    assert look.startswith("is on other devices, as a volume or an array is; name the device below")
    host.begin(node, wipe=True)
    host.refused(destroy.claim(host.tmp_dir, [node]))
    for text in ("prove stacked", "prove ready", "prove where"):
        host.refused(destroy.proof(host.tmp_dir) + f"{text} {node} ext4")
    host.refused(destroy.proved(host.tmp_dir, [f"make_ext4 {node} label"]))
    host.sh(destroy.proved(host.tmp_dir, [f"stop_array {node} {place}"]))
    host.sh(destroy.proved(host.tmp_dir, [f"stop_array {host.folder}/cbt-crypto-x {place}"]))
    host.sh(destroy.empty(host.tmp_dir, [node, place]))
    assert (digest(disk), digest(over)) == (before, contents)


@pytest.mark.parametrize("holder_name", ["bcache0", "dm-7", "md127", "drbd0", "cbt-crypto-x"])
def test_what_the_kernel_says_holds_it(host: Told, holder_name: str) -> None:
    disk, place = host.disk("disk")
    run("mkfs.ext4", "-q", place)
    before = digest(disk)
    host.begin(place, wipe=True)
    host.before = told(place, {}, f"holders/{holder_name}")
    assert f"is in use by {holder_name}" in host.refused(destroy.claim(host.tmp_dir, [place]))
    assert digest(disk) == before


@pytest.mark.parametrize(
    ("place_of", "what"),
    [
        ("config/nvmet/subsystems/nqn.2026-01.org.x:a/namespaces/1/device_path", "NVMe over Fab"),
        ("config/target/core/fileio_0/x/udev_path", "LIO"),
        ("scst_tgt/devices/x/filename", "SCST"),
        ("config/usb_gadget/g/functions/mass_storage.0/lun.0/file", "a USB gadget"),
    ],
)
def test_a_device_that_the_kernel_gives_to_others(host: Told, place_of: str, what: str) -> None:
    """The kernel's targets ask for no exclusive use, and no process has it open."""
    disk, place = host.disk("disk")
    before = digest(disk)
    host.begin(place, wipe=True)
    file = f"/sys/kernel/{place_of}"
    host.before = f"mount -t tmpfs sys /sys/kernel; mkdir -p {os.path.dirname(file)}\n"
    host.before += f"echo {place} > {file}\n"
    said = host.refused(destroy.claim(host.tmp_dir, [place]))
    assert f"is exported to others by {what}" in said and file in said
    assert digest(disk) == before


def test_a_volume_group_that_is_called_like_ours(bench: Bench) -> None:
    """By another user of the host: on his disk; then ours has the same name."""
    if not shutil.which("vgcreate"):
        pytest.skip("needs lvm2")
    theirs, place = bench.disk("theirs")
    mine, own = bench.disk("mine")
    name = f"cbt-crypto-{os.getpid()}"
    bench.begin(own)
    bench.good(destroy.claim(bench.tmp_dir, [own]))
    run("pvcreate", "-q", "-y", place)
    run("vgcreate", "-q", "-y", name, place)
    try:
        before = digest(theirs)
        remove = destroy.proved(bench.tmp_dir, [f"remove_group {name} {own}"])
        assert "lies not on our device alone" in bench.refused(remove)
        assert digest(theirs) == before
        bench.refused(destroy.proved(bench.tmp_dir, [f"make_group {name} {own}"]))
        assert digest(theirs) == before
        assert run("vgs", "--noheadings", "-o", "pv_name", name) == place
        bench.good(destroy.empty_all(bench.tmp_dir))
        assert digest(theirs) == before and mine.read_bytes().startswith(b"cbt-crypto: ")
    finally:
        run("vgremove", "-q", "-f", "-y", name)


def test_a_group_that_stays_keeps_no_other_one(tmp_path: Path) -> None:
    """The first group with a volume in use ended it: those after it stayed, and were not named."""
    notes, gone = tmp_path / "groups", tmp_path / "gone"
    notes.write_text("cbt-crypto-a /dev/a\ncbt-crypto-b /dev/b\n")
    functions = Path(str(lvm_and_md.__file__)).with_suffix(".sh").read_text()
    # As in destroy.sh, what is not proved ends it before anything is removed.
    remove = f"remove_group() {{ [ $1 != $stays ]; echo $1 >> {gone}; }}"
    script = f"set -e\nNOTED_GROUPS={notes}\n{functions}\n{remove}\nremove_noted"
    for stays, status, removed in (("cbt-crypto-a", 1, ["cbt-crypto-b"]), ("none", 0, ["a", "b"])):
        done = subprocess.run(["sh", "-c", f"stays={stays}\n{script}"], check=False)
        assert (done.returncode, notes.exists()) == (status, status == 1)
        assert gone.read_text().split() == [name if "-" in name else f"cbt-crypto-{name}"
                                            for name in removed]  # fmt: skip
        gone.write_text("")


# -- namespaces ----------------------------------------------------------------------------------


def test_lab_down_keeps_the_disks_of_a_lab_of_another_container(bench: Bench) -> None:
    """Its loop devices, over files of the same path there, were detached by that path."""
    bench.be_alone()
    lab = bench.folder / "lab"
    lab.mkdir()
    (lab / "disk0").write_bytes(bytes(1 << 20))
    disk = f"{lab}/disk0"
    attach = f"truncate -s 1M {disk}; losetup -f --show {disk}; exec sleep 20"
    command = ["unshare", "--mount", "sh", "-euc", f"mount -t tmpfs container {lab}; {attach}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as container:
        assert container.stdout is not None
        bench.attached.append(theirs := container.stdout.readline().strip())
        ours = run("losetup", "--find", "--show", disk)
        namespace.release(lab)
        assert run("losetup", "--noheadings", "--output", "BACK-FILE", theirs) == disk
        assert subprocess.run(["losetup", ours], capture_output=True, check=False).returncode == 1
        container.kill()


def test_a_run_in_another_network_namespace(tmp_path: Path) -> None:
    """Abstract sockets are a network namespace's own; its disks and directories are not."""
    if os.geteuid() != 0:
        pytest.skip("needs root, for a network of its own")
    (tmp_path / "hold.py").write_text(shell.program(hold_on_host))
    orders = [
        {"action": "hold", "resources": [["tmp_dir", "/x"]], "holder": {"run": run, "pid": 1}}
        for run in ("first", "second")
    ]
    hold = f"{sys.executable} -I {tmp_path}/hold.py"
    script = f"unshare --net {hold} '{json.dumps(orders[0])}'; {hold} '{json.dumps(orders[1])}'; :"
    # The first process is one of the test's own: a container's root may not look at the machine's.
    command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    first, second = done.stdout.splitlines()
    assert first == "held" and second.startswith("busy ") and '"first"' in second, done


def test_a_run_in_a_container_of_this_machine_is_alive(tmp_path: Path) -> None:
    """It counts its processes for itself; its number here is another one's, or nobody's."""
    if os.geteuid() != 0:
        pytest.skip("needs root, for processes that are counted anew")
    code = (
        "import json, sys, time\nsys.path[:0] = json.loads(sys.argv[1])\n"
        "from pathlib import Path\nfrom cbt_crypto.run.locks import this_run\n"
        "print(json.dumps(this_run(Path('/a'))), flush=True)\ntime.sleep(120)\n"
    )
    command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-c"]
    # Where this is a container itself, it does not see all processes.
    dead = True if os.readlink("/proc/self/ns/pid") == "pid:[4026531836]" else None
    with subprocess.Popen(
        [*command, code, json.dumps(sys.path)], stdout=subprocess.PIPE, text=True
    ) as inside:
        assert inside.stdout is not None
        who = json.loads(inside.stdout.readline())
        try:
            assert who["pid"] < 20 and locks.is_dead(who) is False
            assert locks.is_dead({**who, "started": 1}) is dead
        finally:
            inside.kill()
    ends = time.monotonic() + 60
    while locks.is_dead(who) is False and time.monotonic() < ends:
        time.sleep(0.2)
    assert locks.is_dead(who) is dead

"""Three virtual machines, a client with the monitor and two with OSDs: what encryption hides there,
that interrupted campaigns leave nothing, and that no key gets anywhere.

The tests use each other's campaigns, which take turns on the one lab: two configurations without
LUKS; two with it, interrupted, then killed, then run to their end.
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable

import pytest
import yaml
from real_labs import running_lab

from cbt_crypto.lab import access, run
from cbt_crypto.lab.shape import Kind, Lab, Shape

pytestmark = [pytest.mark.lab, pytest.mark.timeout(3600)]

NAME = f"three-test-{os.getpid()}"
SHAPE = Shape(kind=Kind.VM, nodes=3, disks=1, disk_size=2**30, memory=1280 * 2**20, cpus=1)
HERE = Path(__file__).parent
LUKS = {"no_read_workqueue": True, "no_write_workqueue": True}
WITHOUT_LUKS = {"Unencrypted": {}, "Secure messenger": {"secure_messenger": {}}}
WITH_LUKS = {
    "LUKS": {"luks": LUKS},
    "LUKS + secure messenger": {"luks": LUKS, "secure_messenger": {}},
}
ALL_UNITS = set(range(1 << 16))

#: What a campaign could leave on a node, a line each.
_STATE = """
sed 's/^/mount /' /proc/mounts
dmsetup ls --target crypt | grep -v 'No devices' | sed 's/^/mapping /' || :
ls -d /run/cbt-crypto/* /dev/shm/cbt-crypto* 2>/dev/null | sed 's/^/key /' || :
blkid -p -s TYPE -o value /dev/disk/by-partlabel/* | sort | uniq -c | sed 's/^/signature /' || :
ls -d /tmp/cbt* 2>/dev/null | sed 's/^/file /' || :
grep -lz '^CBT_CRYPTO_MARK=' /proc/[0-9]*/environ 2>/dev/null | while read -r file; do
    echo "process $(tr '\\0' ' ' < ${file%environ}cmdline)"
done
pgrep -f '^python3 .* - .*"action": "hold"' | sed 's/.*/keeper process/' || :
pgrep -l 'ceph|fio|collectl|pdsh|ssh$' | sed 's/^[0-9]*/process/' || :
"""
#: The keys of a node's mappings: those in its tmpfs, and those that encrypt, each as a line of
#: hexadecimal digits. Who may read the former comes first.
_KEYS = """
stat -c '%a %U %n' /run/cbt-crypto /run/cbt-crypto/*
umask 077
for key in /run/cbt-crypto/*; do
    device=$(cryptsetup status "${key##*/}" | sed -n 's/^ *device: *//p')
    cryptsetup luksDump --batch-mode --dump-volume-key --key-file "$key" \
        --volume-key-file /dev/shm/volume-key "$device" > /dev/null
    for file in "$key" /dev/shm/volume-key; do od -An -v -tx1 "$file" | tr -d ' \\n'; echo; done
    rm /dev/shm/volume-key
done
"""
#: All that was written to a node since it booted, except where the keys are.
_WRITTEN = """
cd / && find tmp root etc var run dev/shm -type f -newer run/sshd -not -path 'run/cbt-crypto/*' \
    -print0 | tar --create --null --files-from - || :
"""
#: Say yes when a client measures, and when an OSD is about to be made on its mapping.
_MEASURES = "pgrep -ax fio | grep -q time_based && echo yes || :"
_DEPLOYS = "[ ! -e /run/cbt-crypto ] || ! pgrep -x ceph-osd > /dev/null || echo yes"


def cbt_crypto(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "cbt_crypto", *words]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip


@dataclass
class Machines:
    """The lab, and what was seen of it."""

    lab: Lab
    directory: Path
    wire: Any
    secrets: set[bytes] = field(default_factory=set)
    printed: list[str] = field(default_factory=list)

    def each(self, script: str, first: int = 0) -> list[str]:
        """What a script prints on every node at once."""
        with ThreadPoolExecutor() as pool:
            return list(pool.map(lambda n: access.run(self.lab, n, script), self.lab.nodes[first:]))

    def state(self) -> list[list[str]]:
        return [sorted(set(text.splitlines())) for text in self.each(_STATE)]

    def start(self, name: str, configurations: dict[str, Any]) -> subprocess.Popen[str]:
        """A campaign whose client writes its pattern before it measures."""
        path = self.directory / f"{name}.yaml"
        cluster = {
            "head": "node0", "clients": ["node0"], "osds": ["node1", "node2"],
            "mons": {"node0": {"a": "node0"}}, "mgrs": {"node0": {"x": None}},
            "pool_profiles": {"rbd": {"pg_size": 8, "pgp_size": 8, "replication": 2}},
            "settings": {"osd_memory_target": "900M"},
            "deploy_timeout": 600, "rebuild": "needed", "control": False,
            "configurations": configurations,
        }  # fmt: skip
        client = {
            "cmd_path": "/root/pattern_client.py", "vol_size": 16, "iodepth": 4, "time": 6,
            "op_size": 4096, "mode": "randwrite",
        }  # fmt: skip
        document = {
            "cluster": cluster,
            "benchmarks": {"rbd_single_client": client},
            "monitoring_profiles": {"collectl": {"nodes": ["osds"]}},
        }
        path.write_text(yaml.safe_dump(document, sort_keys=False))
        archive = self.archive(name)
        words = ("lab", "run", str(path), "-a", str(archive), "--name", NAME, "--no-report")
        return cbt_crypto(*words)

    def archive(self, name: str) -> Path:
        return self.directory / f"{name} archive"

    def ended(self, running: subprocess.Popen[str]) -> str:
        """What a campaign printed, when it has ended."""
        text = running.communicate(timeout=1500)[0]
        self.printed.append(text)
        return text

    def wait_for(self, answer: str, node: int, running: subprocess.Popen[str]) -> None:
        """Wait until a script says yes on a node, while a campaign is running."""
        deadline = time.monotonic() + 900
        while access.run(self.lab, self.lab.nodes[node], answer).strip() != "yes":
            if running.poll() is not None or time.monotonic() > deadline:
                running.kill()
                pytest.fail(f"waited in vain: {answer}: {self.ended(running)}")
            time.sleep(0.5)

    def note_keys(self) -> list[str]:
        """Note the keys of the OSD nodes; return who may read them."""
        rights = []
        for text in self.each(_KEYS, first=1):
            for line in text.splitlines():
                if " " in line:
                    rights.append(line)
                else:
                    self.secrets.add(bytes.fromhex(line))
        return rights

    def written(self, node: int) -> Iterator[tuple[str, bytes]]:
        """Path and content of every file that was written on a node."""
        command = access.command(self.lab, self.lab.nodes[node], _WRITTEN)
        packed = subprocess.run(command, capture_output=True, check=False).stdout
        with tarfile.open(fileobj=io.BytesIO(packed), mode="r|") as tar:
            for member in tar:
                file = tar.extractfile(member) if member.isfile() else None
                if file:
                    yield member.name, file.read()


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory, watch: Any) -> Iterator[Machines]:
    with running_lab(NAME, SHAPE) as lab:
        for node in lab.nodes:
            run.put(lab, node, "/root/recorder", {"recorder.py": HERE / "process_recorder.py"})
        client = {"pattern_client.py": (HERE / "pattern_client.py").read_text()}
        run.put(lab, lab.head, "/root/client", client)
        access.run(lab, lab.head, "ln -s client/pattern_client.py /root/pattern_client.py")
        with watch.Wire(lab) as wire:
            machines = Machines(lab, tmp_path_factory.mktemp("three"), wire)
            machines.each("setsid python3 /root/recorder/recorder.py /dev/shm/processes "
                          "< /dev/null > /dev/null 2>&1 &")  # fmt: skip
            yield machines


@pytest.fixture(scope="module")
def untouched(machines: Machines) -> list[list[str]]:
    """The nodes' state before the first campaign."""
    return machines.state()


@dataclass
class Ran:
    """A campaign that ran to its end: its cells by configuration, and the nodes afterwards."""

    status: int
    output: str
    archive: Path
    state: list[list[str]]
    #: What is on the disk of each OSD: units by pattern.
    disks: list[dict[str, set[int]]]
    #: Bytes that had been on the wire when it ended.
    heard: int

    def cells(self) -> dict[str, Path]:
        """Configuration -> the directory of its cell."""
        found = {}
        for path in self.archive.glob("results/*/id-*/cell.json"):
            found[json.loads(path.read_text())["configuration"]] = path.parent
        return found


def _ran(machines: Machines, running: subprocess.Popen[str], name: str, watch: Any) -> Ran:
    output = machines.ended(running)
    heard = machines.wire.bytes
    disks = [
        machines.lab.node_dir(node) / "disks" / "osd-device-0" for node in machines.lab.nodes[1:]
    ]
    units = [watch.units_in(watch.pieces(disk)) for disk in disks]
    return Ran(running.returncode, output, machines.archive(name), machines.state(), units, heard)


@pytest.fixture(scope="module")
def without_luks(machines: Machines, untouched: Any, watch: Any) -> Ran:
    return _ran(machines, machines.start("without", WITHOUT_LUKS), "without", watch)


@dataclass
class Interrupted:
    """A campaign with LUKS that was ended midway: the nodes before that, and after."""

    live: list[list[str]]
    after: list[list[str]]
    output: str
    #: Who may read the keys, and which files hold one as well.
    rights: list[str] = field(default_factory=list)
    holding_keys: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def interrupted(machines: Machines, without_luks: Ran) -> Interrupted:
    """Ended by Ctrl-C, while the OSDs were made."""
    running = machines.start("with", WITH_LUKS)
    machines.wait_for(_DEPLOYS, 1, running)
    live = machines.state()
    machines.note_keys()
    running.send_signal(signal.SIGINT)
    output = machines.ended(running)
    return Interrupted(live, machines.state(), output)


@pytest.fixture(scope="module")
def killed(machines: Machines, interrupted: Interrupted, watch: Any) -> Interrupted:
    """Ended by kill -9, while it measured."""
    running = machines.start("with", WITH_LUKS)
    machines.wait_for(_MEASURES, 0, running)
    live, rights = machines.state(), machines.note_keys()
    holding = [
        f"node{node}: {path}"
        for node in range(3)
        for path, content in machines.written(node)
        if watch.holds(content, machines.secrets)
    ]
    access.run(machines.lab, machines.lab.head, "kill -9 $(cat /root/campaign/pid)")
    output = machines.ended(running)
    return Interrupted(live, machines.state(), output, rights, holding)


@pytest.fixture(scope="module")
def with_luks(machines: Machines, killed: Interrupted, watch: Any) -> Ran:
    running = machines.start("with", WITH_LUKS)
    machines.wait_for(_MEASURES, 0, running)
    machines.note_keys()
    return _ran(machines, running, "with", watch)


def _lines(state: list[list[str]], word: str) -> list[list[str]]:
    """Of each node's state, the lines that begin with that word."""
    return [[line for line in lines if line.startswith(f"{word} ")] for lines in state]


def test_two_configurations_through_pdsh_on_three_machines(
    without_luks: Ran, machines: Machines
) -> None:
    assert without_luks.status == 0, without_luks.output
    cells = without_luks.cells()
    assert list(sorted(cells)) == sorted(WITHOUT_LUKS)
    for directory in cells.values():
        proof = json.loads((directory / "proof.json").read_text())
        assert all(verdict["proved"] for verdict in proof["overlays"])
        names = {path.name for path in directory.iterdir()}
        assert {"json_output.0.node0", "collectl.node1", "collectl.node2"} <= names
    assert (
        "2 of 2 OSDs encrypted every byte" in (cells["Secure messenger"] / "proof.json").read_text()
    )
    (recorded,) = machines.each("cat /dev/shm/processes")[:1]
    assert re.search(r"pdsh\0[^\n]*\0node1.node2\0", recorded)
    assert re.search(r"\nssh\0-x\0[^\n]*\0node2\0", recorded)


@pytest.mark.parametrize(
    ("configuration", "on_disk", "on_wire"),
    [
        ("Unencrypted", True, True),
        ("Secure messenger", True, False),
        ("LUKS", False, True),
        ("LUKS + secure messenger", False, False),
    ],
)
def test_where_a_known_pattern_is_found(
    configuration: str, on_disk: bool, on_wire: bool, machines: Machines, without_luks: Ran,
    with_luks: Ran,
) -> None:  # fmt: skip
    ran = with_luks if configuration in WITH_LUKS else without_luks
    assert ran.status == 0, ran.output
    name = ran.cells()[configuration].name
    found = [disk.get(name, set()) for disk in ran.disks]
    assert found == ([ALL_UNITS] * 2 if on_disk else [set()] * 2)
    # A unit that is on the border of two packets is in neither as a whole.
    seen = machines.wire.units.get(name, set())
    assert (len(seen) > 0.9 * len(ALL_UNITS)) if on_wire else not seen


def test_the_wire_was_listened_to_while_nothing_was_found(
    machines: Machines, without_luks: Ran, with_luks: Ran
) -> None:
    wire = machines.wire
    patterns = 2 * 4 * 2**20  # to the first OSD and from there to the second
    for ran, plain in ((without_luks, "Unencrypted"), (with_luks, "LUKS")):
        assert ran.heard - wire.bytes_until[ran.cells()[plain].name] > patterns


def test_nothing_is_left_after_a_run(
    untouched: list[list[str]], without_luks: Ran, with_luks: Ran
) -> None:
    assert without_luks.state == untouched
    assert with_luks.state == untouched


def test_nothing_is_left_after_ctrl_c(untouched: list[list[str]], interrupted: Interrupted) -> None:
    for word in ("mapping", "key", "signature"):
        assert [len(lines) for lines in _lines(interrupted.live, word)] == [0, 1, 1], word
    for word in ("process", "keeper", "file"):
        assert all(_lines(interrupted.live, word)), word
    assert "interrupted" in interrupted.output
    assert interrupted.after == untouched


def test_nothing_is_left_after_kill_9_and_a_second_run(
    untouched: list[list[str]], killed: Interrupted, with_luks: Ran
) -> None:
    for word in ("mapping", "key"):
        assert [len(lines) for lines in _lines(killed.after, word)] == [0, 1, 1], word
    for lines in _lines(killed.after, "process"):
        assert any("ceph" in line for line in lines)
    assert with_luks.status == 0, with_luks.output
    assert sorted(with_luks.cells()) == sorted(WITH_LUKS)
    assert with_luks.state == untouched


def test_keys_are_root_s_in_memory(killed: Interrupted) -> None:
    assert [line.split()[:2] for line in sorted(killed.rights)] == [
        ["600", "root"], ["600", "root"], ["700", "root"], ["700", "root"],
    ]  # fmt: skip


def test_no_key_is_anywhere_else(
    killed: Interrupted, with_luks: Ran, machines: Machines, watch: Any
) -> None:
    # Three deployments on two nodes: a key each in tmpfs, and one each that encrypts.
    assert len(machines.secrets) == 12
    assert {len(secret) for secret in machines.secrets} == {64}
    assert killed.holding_keys == []
    for node in range(3):
        written = dict(machines.written(node))
        assert b"ceph-" in written["dev/shm/processes"]
        assert [path for path, text in written.items() if watch.holds(text, machines.secrets)] == []
    assert watch.files_with(with_luks.archive, machines.secrets) == []
    assert not watch.holds("".join(machines.printed).encode(), machines.secrets)


@pytest.mark.parametrize(
    "spelled",
    [
        lambda key: key.hex(),
        lambda key: key.hex().upper(),
        lambda key: base64.b64encode(key).decode(),
        lambda key: base64.b64encode(b"x" + key).decode(),
    ],
)
def test_the_search_finds_a_key_that_is_planted(
    spelled: Callable[[bytes], str], with_luks: Ran, machines: Machines, watch: Any, tmp_path: Path
) -> None:
    secret = next(iter(machines.secrets))
    (tmp_path / "fio.log").write_text(f"a log with {spelled(secret)} in it")
    (tmp_path / "other.log").write_text("a log without")
    assert watch.files_with(tmp_path, [secret]) == ["fio.log"]
    (tmp_path / "fio.log").write_bytes(b"raw" + secret)
    assert watch.files_with(tmp_path, [secret]) == ["fio.log"]


def test_the_search_finds_a_key_of_a_command_line_and_an_environment(
    with_luks: Ran, machines: Machines, watch: Any
) -> None:
    in_arguments, in_environment = sorted(machines.secrets)[:2]
    plant = f"""
        timeout 60 sh -c 'sleep 30' {in_arguments.hex()} < /dev/null > /dev/null 2>&1 &
        KEY={in_environment.hex()} timeout 60 sleep 30 < /dev/null > /dev/null 2>&1 &
        sleep 3
    """
    access.run(machines.lab, machines.lab.nodes[1], plant)
    written = dict(machines.written(1))
    for secret in (in_arguments, in_environment):
        assert [path for path, text in written.items() if watch.holds(text, [secret])] == [
            "dev/shm/processes"
        ]

"""What is unmapped and closed on a client is ours, whatever has its name or number by now."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

import pytest

from cbt_crypto.benchmarks.base import ClusterCommands, Volume
from cbt_crypto.benchmarks.rbd import OfKernel, RbdKrbd, RbdNbd
from cbt_crypto.hosts import rados_client_on_host, shell
from cbt_crypto.hosts.devices import rbd_images
from cbt_crypto.hosts.site import VolumeEncryption

pytestmark = pytest.mark.unit

FSID, OTHER = "11111111-2222-3333-4444-555555555555", "99999999-2222-3333-4444-555555555555"
LUKS = VolumeEncryption("luks", ("--type", "luks2"), header_mb=16)
LIBRBD = VolumeEncryption("librbd", ("--cipher-alg", "aes-256"), header_mb=16, by_librbd=True)
#: Ours of a conf that names neither: as upstream's engine writes it, and owners of clusters do.
NO_FSID = "[global]\n    mon_host = 10.0.0.1\n"


class Client:
    """A host with mapped images, as its kernel tells, and programs that note their calls."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tmp_dir = root / "tmp"
        self.tmp_dir.mkdir()
        self.conf = root / "ceph.conf"
        self.conf.write_text(NO_FSID)
        (root / "bin").mkdir()
        self.calls = root / "calls"
        self.program("cryptsetup", "")
        self.program("modprobe", "")
        self.program("blkid", "exit 2")
        self.program("rbd", "")
        self.cluster_says(f"{FSID} crc secure")

    def cluster_says(self, answer: str) -> None:
        """What librados tells a client there."""
        asks = f"*rados_cluster_fsid*{self.conf}*) echo {answer!r} ;;"
        self.program("python3", f'case "$*" in {asks} *) exec {sys.executable} "$@" ;; esac')

    def program(self, name: str, body: str) -> None:
        path = self.root / "bin" / name
        path.write_text(f'#!/bin/sh\necho {name} "$@" >> {self.calls}\n{body}\n')
        path.chmod(0o755)

    def maps(self, number: int, image: str = "ours") -> None:
        """rbd maps an image there."""
        folder = f"{self.root}/sys/bus/rbd/devices/{number}"
        self.program("rbd", f'[ "$1" = device ] || echo {image} > {folder}/name')

    def mapped(self, number: int, fsid: str, image: str, mode: str = "crc") -> Path:
        folder = self.root / f"sys/bus/rbd/devices/{number}"
        folder.mkdir(parents=True)
        info = f"10.0.0.1:3300 name=admin,key=client.admin,ms_mode={mode},x=1 rbd {image} -"
        for name, text in {
            "cluster_fsid": fsid, "pool": "rbd", "name": image, "config_info": info,
        }.items():  # fmt: skip
            (folder / name).write_text(f"{text}\n")
        holders = self.root / f"sys/block/rbd{number}/holders"
        holders.mkdir(parents=True)
        return holders

    def served(self, number: int, cookie: str, sectors: int = 131072) -> Path:
        """rbd-nbd, or another server, serves an image there."""
        folder = self.root / f"sys/block/nbd{number}"
        (folder / "holders").mkdir(parents=True)
        (folder / "size").write_text(f"{sectors}\n")
        if cookie:
            (folder / "backend").write_text(f"{cookie}\n")
        return folder / "holders"

    def cookie(self, image: str = "ours", fsid: str = FSID) -> str:
        """What this campaign gives rbd-nbd."""
        return f"{rbd_images.mapping_prefix(str(self.tmp_dir))}/{fsid}/rbd/{image}"

    def serves(self, number: int) -> None:
        """rbd has rbd-nbd serve an image there, under the cookie that it is told."""
        folder = f"{self.root}/sys/block/nbd{number}"
        self.program(
            "rbd",
            f"""case "$*" in
*" unmap "*) rm {folder}/backend ;;
*" map "*) while [ "$1" != --cookie ]; do shift; done; echo "$2" > {folder}/backend ;;
esac""",
        )

    def carries(self, holders: Path, name: str) -> None:
        (holders / "dm-0/dm").mkdir(parents=True)
        (holders / "dm-0/dm/name").write_text(f"{name}\n")

    def note(self, image: str, fsid: str = FSID) -> None:
        (self.tmp_dir / "mapped").mkdir(exist_ok=True)
        (self.tmp_dir / "mapped" / image).write_text(f"{fsid} rbd {image}\n")

    def run(self, text: str) -> subprocess.CompletedProcess[str]:
        text = text.replace("SYS=/sys", f"SYS={self.root}/sys")
        script = f"set -eu\nSUDO=\nPATH={self.root}/bin:$PATH\n{text}"
        return subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)

    def called(self, program: str) -> list[str]:
        lines = self.calls.read_text().splitlines() if self.calls.exists() else []
        return [line for line in lines if line.startswith(f"{program} ")]

    def remove(self) -> subprocess.CompletedProcess[str]:
        return self.run(rbd_images.detach_all(str(self.tmp_dir)))

    def measure(
        self, text: str, filesystem: Any = None, formats: bool = False,
        by: type[OfKernel] = RbdKrbd, encryption: Optional[VolumeEncryption] = None,
    ) -> subprocess.CompletedProcess[str]:  # fmt: skip
        """A script of a scenario, with our image attached."""
        scenario = by(configuration="A", vol_size=64, filesystem=filesystem)
        volume = Volume(
            "ours", "rbd", "c0", 64, tmp_dir=str(self.tmp_dir), conf=str(self.conf),
            encryption=encryption,
        )  # fmt: skip
        commands = ClusterCommands("ceph", f"rbd -c {self.conf}", "env")
        return self.run(scenario.attached({"c0": text}, [volume], commands, formats)["c0"])

    def attach(self, formats: bool = False) -> subprocess.CompletedProcess[str]:
        images = [rbd_images.Image("rbd", "ours", LUKS)]
        rbd = f"rbd -c {self.conf}"
        text = rbd_images.attach(images, str(self.tmp_dir), str(self.conf), rbd, formats)
        return self.run(text)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    client = Client(tmp_path)
    yield client
    client.remove()  # keys that a test made


def test_what_a_note_names_and_the_kernel_confirms_is_unmapped(client: Client) -> None:
    client.note("ours")
    holders = client.mapped(3, FSID, "ours")
    client.carries(holders, f"{rbd_images.mapping_prefix(str(client.tmp_dir))}-ours")
    client.mapped(4, FSID, "theirs")
    client.mapped(5, OTHER, "ours")
    done = client.remove()
    assert done.returncode == 0, done.stderr
    assert client.called("rbd") == ["rbd device unmap -o noudev /dev/rbd3"]
    (closed,) = client.called("cryptsetup")
    assert closed.startswith("cryptsetup close cbt-crypto-")
    assert not (client.tmp_dir / "mapped").exists()


def test_the_note_of_an_earlier_cluster_finds_its_own_image(client: Client) -> None:
    """ceph.conf is of another cluster by now."""
    client.note("ours", OTHER)
    client.mapped(3, FSID, "ours")
    client.mapped(5, OTHER, "ours")
    assert client.remove().returncode == 0
    assert client.called("rbd") == ["rbd device unmap -o noudev /dev/rbd5"]


def test_a_mapping_of_somebody_elses_on_it_is_left(client: Client) -> None:
    client.note("ours")
    client.carries(client.mapped(3, FSID, "ours"), "vg-of-somebody")
    done = client.remove()
    assert done.returncode != 0
    assert "/dev/rbd3 carries vg-of-somebody, which is not ours" in done.stderr
    assert client.called("rbd") == client.called("cryptsetup") == []


def test_without_notes_nothing_is_looked_at(client: Client) -> None:
    client.mapped(3, FSID, "ours")
    assert client.remove().returncode == 0
    assert not client.calls.exists()


def test_what_is_not_empty_is_not_formatted(client: Client) -> None:
    client.mapped(3, FSID, "other")
    client.program("blkid", "echo /dev/rbd3: TYPE=ext4")
    client.maps(3)
    done = client.attach(formats=True)
    assert done.returncode != 0
    assert "rbd/ours is not empty: /dev/rbd3: TYPE=ext4" in done.stderr
    assert client.called("cryptsetup") == []


@pytest.mark.parametrize(("asked", "spoken"), [("secure", "crc"), ("crc", "secure")])
def test_a_kernel_that_speaks_otherwise_is_not_measured(
    client: Client, asked: str, spoken: str
) -> None:
    client.cluster_says(f"{FSID} {asked}")
    client.mapped(3, FSID, "other", spoken)
    client.maps(3)
    done = client.attach()
    assert f"the kernel does not speak ms_mode={asked} for rbd/ours" in done.stderr
    assert f"ms_mode={asked}," in client.called("rbd")[0]
    assert client.called("cryptsetup") == []


def test_the_cluster_says_what_its_fsid_is(client: Client) -> None:
    """The file has none; its note is found again, and what it names is unmapped."""
    client.mapped(3, FSID, "other")
    client.maps(3)
    client.program("cryptsetup", 'echo "no memory" >&2; exit 4')
    done = client.attach()
    assert done.stderr.strip().endswith("no memory")
    assert (client.tmp_dir / "mapped/ours").read_text() == f"{FSID} rbd ours\n"
    assert client.remove().returncode == 0
    assert client.called("rbd")[-1] == "rbd device unmap -o noudev /dev/rbd3"


@pytest.mark.parametrize(("told", "mode"), [("secure", "secure"), ("crc secure", "crc")])
def test_the_monitors_mode_counts_where_the_file_has_none(
    client: Client, told: str, mode: str
) -> None:
    client.cluster_says(f"{FSID} {told}")
    client.mapped(3, FSID, "other", mode)
    client.maps(3)
    client.attach()
    assert f"ms_mode={mode}," in client.called("rbd")[0]


def test_nothing_is_noted_or_mapped_of_a_cluster_that_does_not_answer(client: Client) -> None:
    client.cluster_says("")
    done = client.attach()
    assert done.returncode != 0
    assert f"the cluster of {client.conf} does not tell its fsid" in done.stderr
    assert client.called("rbd") == []
    assert list((client.tmp_dir / "mapped").iterdir()) == []


def test_librados_itself_says_why_it_is_not_let_in(client: Client) -> None:
    """The real one, of this machine."""
    done = subprocess.run(
        [sys.executable, "-c", shell.program(rados_client_on_host),
         json.dumps({"conf": f"{client.root}/none", "user": "admin", "names": ["fsid"]})],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == ""
    reasons = ("No such file or directory", "librados.so.2: cannot open")
    assert any(reason in done.stderr for reason in reasons)


@pytest.mark.parametrize("note", ["", " ", f"{FSID} rb", f"{FSID} rbd ou", f"{FSID} rbd\n"])
def test_a_note_that_was_never_finished_blocks_nothing(client: Client, note: str) -> None:
    client.mapped(3, FSID, "theirs")
    client.note("ours")
    (client.tmp_dir / "mapped/ours").write_text(note)
    (client.tmp_dir / "mapped/ours.new").write_text(note)
    done = client.remove()
    assert (done.returncode, done.stderr) == (0, "")
    assert client.called("rbd") == []
    assert not (client.tmp_dir / "mapped").exists()


def test_a_note_is_whole_before_it_has_its_name(client: Client) -> None:
    """A disk that is full leaves none, and nothing is mapped."""
    client.program("mv", 'echo "mv: No space left on device" >&2; exit 1')
    done = client.attach()
    assert "No space left" in done.stderr
    assert client.called("rbd") == []
    assert not (client.tmp_dir / "mapped/ours").exists()
    assert client.remove().returncode == 0


@pytest.mark.parametrize(("text", "status"), [("echo measured", 0), ("exit 7", 7), ("false", 1)])
def test_volumes_are_detached_however_the_script_ends(
    client: Client, text: str, status: int
) -> None:
    client.mapped(3, FSID, "other")
    client.maps(3)
    done = client.measure(text)
    assert done.returncode == status, done.stderr
    assert client.called("rbd")[1:] == ["rbd device unmap -o noudev /dev/rbd3"]
    assert list((client.tmp_dir / "mapped").iterdir()) == []


def mounts(client: Client) -> None:
    """Fake programs; what is mounted is noted in a file."""
    client.mapped(3, FSID, "other")
    client.maps(3)
    for program in ("mkfs.ext4", "mkfs.xfs"):
        client.program(program, "")
    client.program("mount", f"touch {client.root}/mounted")
    client.program("mountpoint", f"[ -e {client.root}/mounted ]")
    client.program("umount", f"rm {client.root}/mounted")


@pytest.mark.parametrize(("kind", "other"), [("ext4", "xfs"), ("xfs", "ext4")])
def test_a_file_system_is_made_in_a_new_image_alone(client: Client, kind: str, other: str) -> None:
    mounts(client)
    place = f"{client.tmp_dir}/mnt/ours"
    done = client.measure("echo measured", kind, formats=True)
    assert (done.returncode, done.stdout) == (0, "measured\n"), done.stderr
    assert [call.split()[-1] for call in client.called(f"mkfs.{kind}")] == ["/dev/rbd3"]
    assert client.called(f"mkfs.{other}") == []
    assert client.called("mount") == [f"mount -t {kind} /dev/rbd3 {place}"]
    assert client.called("umount") == [f"umount {place}"]
    client.measure("echo measured", kind)
    assert len(client.called(f"mkfs.{kind}")) == 1
    assert len(client.called("umount")) == len(client.called("mount")) == 2


@pytest.mark.parametrize("is_ours", [False, True])
def test_no_file_system_is_made_over_what_is_not_new_and_ours(
    client: Client, is_ours: bool
) -> None:
    """The number is another image's by now; or it is ours, and carries something."""
    mounts(client)
    if is_ours:
        client.program("blkid", "echo /dev/rbd3: TYPE=ext4")
    else:
        # What was just mapped is looked for; then somebody takes its number.
        taken = f"echo theirs > {client.root}/sys/bus/rbd/devices/3/name"
        client.program("ln", f'case "$*" in *.device) {taken} ;; esac')
    done = client.measure("echo measured", "ext4", formats=True)
    assert (done.returncode, done.stdout) == (1, "")
    wanted = "rbd/ours is not empty" if is_ours else "/dev/rbd3 is not rbd/ours of the cluster"
    assert wanted in done.stderr
    assert client.called("mkfs.ext4") == client.called("mount") == []


@pytest.mark.parametrize(("text", "status"), [("exit 7", 7), ("false", 1)])
def test_a_file_system_is_unmounted_however_the_script_ends(
    client: Client, text: str, status: int
) -> None:
    mounts(client)
    assert client.measure(text, "xfs").returncode == status
    calls = client.calls.read_text().splitlines()
    ended = [call.split()[0] for call in calls if call.startswith(("umount", "rbd device unmap"))]
    assert ended == ["umount", "rbd"]
    assert list((client.tmp_dir / "mapped").iterdir()) == []


def test_a_mounted_image_is_unmapped_when_everything_is_detached(client: Client) -> None:
    """As after a kill: the note tells of the image, and the kernel of the mount."""
    mounts(client)
    client.note("ours")
    (client.root / "sys/bus/rbd/devices/3/name").write_text("ours\n")
    (client.root / "mounted").touch()
    assert client.remove().returncode == 0
    assert client.called("umount") == [f"umount {client.tmp_dir}/mnt/ours"]
    assert client.called("rbd") == ["rbd device unmap -o noudev /dev/rbd3"]


def test_volumes_are_detached_where_attaching_them_fails(client: Client) -> None:
    client.mapped(3, FSID, "other", mode="secure")
    client.maps(3)
    done = client.measure("echo measured")
    assert (done.returncode, done.stdout) == (1, "")
    assert "the kernel does not speak ms_mode=crc" in done.stderr
    assert client.called("rbd")[1:] == ["rbd device unmap -o noudev /dev/rbd3"]


def test_a_volume_that_cannot_be_detached_fails_the_script(client: Client) -> None:
    client.carries(client.mapped(3, FSID, "other"), "vg-of-somebody")
    client.maps(3)
    done = client.measure("echo measured")
    assert (done.returncode, done.stdout) == (1, "measured\n")
    assert "carries vg-of-somebody, which is not ours" in done.stderr


@pytest.mark.parametrize("mark", ["ours", "theirs"])
def test_what_a_killed_run_has_mounted_is_unmounted(tmp_path: Path, mark: str) -> None:
    """Of its clients that still use it only those that carry our mark end."""
    place = tmp_path / "own/mnt/cbt-kernelrbdfio-c0"
    place.mkdir(parents=True)
    text = f"""set -eu
SUDO=
export CBT_CRYPTO_MARK=ours
mount -t tmpfs none {place}
CBT_CRYPTO_MARK={mark} sh -c 'cd {place}; exec sleep 60' &
user=$!
sleep 0.3
bad=0
( {rbd_images.detach_all(str(tmp_path / "own"))} ) || bad=1
echo bad $bad
! grep -q {place} /proc/mounts || echo mounted
! kill $user 2> /dev/null || echo alive
"""
    done = subprocess.run(["unshare", "--mount", "sh", "-c", text],
                          capture_output=True, text=True, check=False)  # fmt: skip
    expected = {"ours": "bad 0\n", "theirs": "bad 1\nmounted\nalive\n"}
    assert done.stdout == expected[mark], done.stderr


def test_of_network_block_devices_those_with_our_cookie_are_unmapped(client: Client) -> None:
    """As after a kill: also what rbd-nbd no longer serves. A stranger's has another, or none."""
    client.note("ours")
    holders = client.served(1, client.cookie())
    client.carries(holders, f"{rbd_images.mapping_prefix(str(client.tmp_dir))}-ours")
    others = [
        "",
        "cbt-crypto-00000000-client/x",
        client.cookie("theirs"),
        client.cookie("ours", OTHER),
    ]
    for number, cookie in enumerate(others, 2):
        client.served(number, cookie)
    done = client.remove()
    assert done.returncode == 0, done.stderr
    assert client.called("rbd") == ["rbd device unmap -t nbd /dev/nbd1"]
    assert len(client.called("cryptsetup")) == 1
    assert not (client.tmp_dir / "mapped").exists()


def test_what_somebody_laid_over_our_network_block_device_is_left(client: Client) -> None:
    client.note("ours")
    client.carries(client.served(1, client.cookie()), "vg-of-somebody")
    done = client.remove()
    assert done.returncode != 0
    assert "/dev/nbd1 carries vg-of-somebody, which is not ours" in done.stderr
    assert client.called("rbd") == client.called("cryptsetup") == []


@pytest.mark.parametrize("encryption", [None, LUKS, LIBRBD])
def test_rbd_nbd_serves_an_image_while_it_is_measured(
    client: Client, encryption: Optional[VolumeEncryption]
) -> None:
    client.served(2, "")
    client.serves(2)
    link = client.tmp_dir / "mapped/ours.device"
    done = client.measure(f"readlink {link}", by=RbdNbd, encryption=encryption)
    over = f"/dev/mapper/{rbd_images.mapping_prefix(str(client.tmp_dir))}-ours"
    opened = over if encryption is LUKS else "/dev/nbd2"
    assert (done.returncode, done.stdout) == (0, f"{opened}\n"), done.stderr
    mapped, unmapped = client.called("rbd")
    assert mapped.startswith(f"rbd -c {client.conf} device map -t nbd --cookie {client.cookie()}")
    assert ("encryption-format=luks2,encryption-passphrase-file=/" in mapped) is (
        encryption is LIBRBD
    )
    assert unmapped == "rbd device unmap -t nbd /dev/nbd2"
    assert len(client.called("cryptsetup")) == (1 if encryption is LUKS else 0)


def test_a_kernel_that_keeps_no_cookie_is_not_measured(client: Client) -> None:
    """It could not be told later whose device that is."""
    client.program("sleep", "")
    client.served(2, "")
    done = client.measure("echo measured", by=RbdNbd)
    assert (done.returncode, done.stdout) == (1, "")
    assert "rbd-nbd needs Linux 5.14" in done.stderr


@pytest.mark.parametrize(
    ("diff", "why"),
    [
        (":", ""),
        ("echo 0 4194304 data", "rbd/ours is not empty: it has objects"),
        ("echo no answer >&2; exit 5", "no answer"),
    ],
)
def test_librbd_formats_an_image_without_objects_alone(client: Client, diff: str, why: str) -> None:
    client.served(2, "")
    client.serves(2)
    rbd = (client.root / "bin/rbd").read_text().partition("\n")[2].partition("\n")[2]
    client.program("rbd", f'case "$*" in *" diff "*) {diff} ;; esac\n{rbd}')
    done = client.measure("echo measured", formats=True, by=RbdNbd, encryption=LIBRBD)
    formatted = [call for call in client.called("rbd") if " encryption format " in call]
    if why:
        assert (done.returncode, done.stdout, formatted) == (1, "", [])
        assert why in done.stderr
        return
    assert done.stdout == "measured\n", done.stderr
    (call,) = formatted
    key = f"{rbd_images.mapping_prefix(str(client.tmp_dir))}-ours"
    assert "encryption format --cipher-alg aes-256 rbd/ours luks2 /" in call
    assert call.endswith(key)
    (mapped,) = (call for call in client.called("rbd") if " map " in call)
    assert f"/{key}" in mapped

"""What is unmapped and closed on a client is ours, whatever has its name or number by now."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cbt_crypto.hosts.devices import krbd
from cbt_crypto.hosts.site import VolumeEncryption

pytestmark = pytest.mark.unit

FSID, OTHER = "11111111-2222-3333-4444-555555555555", "99999999-2222-3333-4444-555555555555"
LUKS = VolumeEncryption("luks", ("--type", "luks2"))


class Client:
    """A host with mapped images, as its kernel tells, and programs that note their calls."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tmp_dir = root / "tmp"
        self.tmp_dir.mkdir()
        self.conf = root / "ceph.conf"
        self.conf.write_text(f"[global]\n    fsid = {FSID}\n    ms_client_mode = crc\n")
        (root / "bin").mkdir()
        self.calls = root / "calls"
        self.program("cryptsetup", "")
        self.program("modprobe", "")
        self.program("blkid", "exit 2")
        self.program("rbd", "")

    def program(self, name: str, body: str) -> None:
        path = self.root / "bin" / name
        path.write_text(f'#!/bin/sh\necho {name} "$@" >> {self.calls}\n{body}\n')
        path.chmod(0o755)

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
        return self.run(krbd.remove(str(self.tmp_dir), str(self.conf)))

    def attach(self, formats: bool = False) -> subprocess.CompletedProcess[str]:
        images = [("rbd", "ours", LUKS)]
        rbd = f"rbd -c {self.conf}"
        text = krbd.attach(images, str(self.tmp_dir), str(self.conf), rbd, formats)
        return self.run(text)


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(tmp_path)


def test_what_a_note_names_and_the_kernel_confirms_is_unmapped(client: Client) -> None:
    client.note("ours")
    holders = client.mapped(3, FSID, "ours")
    client.carries(holders, krbd.mapping(str(client.tmp_dir), "ours"))
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
    client.program("rbd", f"echo ours > {client.root}/sys/bus/rbd/devices/3/name")
    done = client.attach(formats=True)
    assert done.returncode != 0
    assert "rbd/ours is not empty: /dev/rbd3: TYPE=ext4" in done.stderr
    assert client.called("cryptsetup") == []


@pytest.mark.parametrize(("asked", "spoken"), [("secure", "crc"), ("crc", "secure")])
def test_a_kernel_that_speaks_otherwise_is_not_measured(
    client: Client, asked: str, spoken: str
) -> None:
    client.conf.write_text(f"[global]\nfsid = {FSID}\nms client mode = {asked}\n")
    client.mapped(3, FSID, "other", spoken)
    client.program("rbd", f"echo ours > {client.root}/sys/bus/rbd/devices/3/name")
    done = client.attach()
    assert f"the kernel does not speak ms_mode={asked} for rbd/ours" in done.stderr
    assert f"ms_mode={asked}," in client.called("rbd")[0]
    assert client.called("cryptsetup") == []

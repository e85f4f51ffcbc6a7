"""A site with two OSD hosts, a stand-in for a daemon, and a way to run a hook's script here."""

from __future__ import annotations

import json
import os
import shlex
import socket
import struct
import subprocess
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Callable

import pytest

from cbt_crypto.hosts import shell
from cbt_crypto.hosts.devices import destroy
from cbt_crypto.hosts.site import Osd, Site

DATA = Path(__file__).parents[1] / "data" / "overlays"


#: As if every device were ours: tests/unit/safety has the proof itself, on real devices.
_AGREES = """
prove() {
    case $1 in
        ready) echo 11111111-2222-4333-8444-555555555555 ;;
        where) case $2 in *theirs*) ;; *) echo "$2" ;; esac ;;
        is-stacked) return 1 ;;
    esac
}
"""
_WIPE = 'wipe_node() { wipefs -q -a "$2"; }\n'


@pytest.fixture(autouse=True)
def proof_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    def proved(tmp_dir: str, calls: Iterable[str]) -> str:
        text = shell.calling(destroy.__file__, _AGREES + _WIPE + "\n".join(calls))
        script = f"PATH=$PATH:/usr/sbin:/sbin\nSUDO=\n{text}"
        return f"$SUDO sh -euc {shlex.quote(script)}"

    monkeypatch.setattr(destroy, "proof", lambda tmp_dir: _AGREES)
    monkeypatch.setattr(destroy, "proved", proved)


def make_osd(number: int, host: str, **changes: object) -> Osd:
    run = f"/tmp/cbt/run/osd.{number}"
    fields: dict[str, object] = {
        "id": number,
        "host": host,
        "device": f"/dev/disk/by-partlabel/osd-device-{number}-data",
        "data_dir": f"/tmp/cbt/osd.{number}",
        "admin_socket": f"{run}.asok",
        "pid_file": f"{run}.pid",
    }
    return Osd(**{**fields, **changes})  # type: ignore[arg-type]


def make_site(*osds: Osd, **changes: object) -> Site:
    fields: dict[str, object] = {
        "tmp_dir": "/tmp/cbt",
        "conf": "/tmp/cbt/ceph.conf",
        "head": "node0",
        "clients": ("node0", "node1"),
        "osds": osds,
        "mons": ("node0",),
        "mgrs": ("node0",),
    }
    return Site(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.fixture
def osd() -> Callable[..., Osd]:
    return make_osd


@pytest.fixture
def site_of() -> Callable[..., Site]:
    return make_site


@pytest.fixture
def site() -> Site:
    """Two OSDs on node2 and two on node3; node0 and node1 are the clients."""
    return make_site(*(make_osd(number, f"node{2 + number // 2}") for number in range(4)))


@pytest.fixture
def one_host() -> Site:
    """Two OSDs on node0, which is every role: the site of the captured outputs."""
    return make_site(make_osd(0, "node0"), make_osd(1, "node0"), clients=("node0",))


@pytest.fixture
def two() -> Site:
    """The site of luks' captured outputs: two OSDs on node0, the first with a DB device."""
    disk = "/dev/disk/by-id/virtio-osd-device-"
    return make_site(
        make_osd(
            0, "node0", device=f"{disk}0", db_device=f"{disk}2", data_dir="/tmp/cbt/ceph/osd.0"
        ),
        make_osd(1, "node0", device=f"{disk}1", data_dir="/tmp/cbt/ceph/osd.1"),
        clients=("node0",),
    )


@pytest.fixture
def data() -> Path:
    return DATA


@pytest.fixture
def sh() -> Callable[[str], str]:
    """Run a hook's script as an engine does; what it printed."""

    def run(text: str) -> str:
        script = f"set -eu\nSUDO=\n{text}"
        done = subprocess.run(["sh", "-c", script], check=False, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), script
        return done.stdout

    return run


class Daemon:
    """Answers each request with the next of its payloads, the last one again and again."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.payloads = [b"{}"]
        self.requests: list[object] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            with peer:
                request = b""
                while not request.endswith(b"\0"):
                    request += peer.recv(4096)
                self.requests.append(json.loads(request[:-1]))
                payload = self.payloads[0]
                if len(self.payloads) > 1:
                    self.payloads.pop(0)
                peer.sendall(struct.pack(">I", len(payload)) + payload)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path / "osd.0.asok")
    yield made
    made.close()


class Tools:
    """Stand-ins for the programs that touch devices, first on PATH; they log their arguments."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("run", "shm", "mapper"):
            (folder / name).mkdir()
        self.make("stat", "echo tmpfs")
        self.make("cryptsetup", "")
        self.make("wipefs", "")
        self.make("blkid", "")
        self.make("dmsetup", "")

    def make(self, name: str, text: str) -> None:
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        log = f'echo "{name} $*" >> {self.folder}/log'
        path.write_text(f"#!/bin/sh\n{log}\n{text}\n")
        path.chmod(0o755)

    def script(self, text: str) -> str:
        """The script, in this folder's directories instead of the machine's."""
        for real, ours in (("/run", "run"), ("/dev/shm", "shm"), ("/dev/mapper", "mapper")):
            text = text.replace(real, f"{self.folder}/{ours}")
        return text

    @property
    def calls(self) -> list[list[str]]:
        log = self.folder / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        return [line.split() for line in lines]

    def keys(self) -> list[Path]:
        return sorted((self.folder / "run").rglob("*-osd*"))


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return Tools(tmp_path)

"""What watches a lab from this machine: its packets, its disks, and what must be in neither."""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import BinaryIO

import pytest

from cbt_crypto.lab import vm
from cbt_crypto.lab.shape import Lab

#: One unit of what pattern_client.py writes, up to its number.
UNIT = re.compile(rb"known-pattern:(id-[0-9a-f]{16}):(\d{6}):")
#: Of a file of frames as libpcap has them: its header's length, and what is before each frame.
_PCAP_HEADER, _FRAME = 24, struct.Struct("=IIII")
_MARK = b"known-pattern:"
_PIECE = 8 << 20
_LONGEST = 256


def pieces(path: Path) -> Iterator[bytes]:
    """What a file holds where it is not a hole; each piece begins with the end of the one before.

    So nothing of up to 256 bytes is cut in two.
    """
    with path.open("rb") as file:
        end, kept = 0, b""
        while True:
            try:
                start = os.lseek(file.fileno(), end, os.SEEK_DATA)
            except OSError:
                return
            kept = kept if start == end else b""
            hole = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            end = min(hole, start + _PIECE)
            piece = kept + os.pread(file.fileno(), end - start, start)
            yield piece
            kept = piece[-_LONGEST:]


def units_in(texts: Iterable[bytes]) -> dict[str, set[int]]:
    """Pattern's name -> the numbers of its units that are there."""
    found: dict[str, set[int]] = defaultdict(set)
    for text in texts:
        if _MARK in text:
            for name, number in UNIT.findall(text):
                found[name.decode()].add(int(number))
    return found


class Wire:
    """Reads what passes the first node of a lab of virtual machines, which all frames do."""

    def __init__(self, lab: Lab) -> None:
        """Has the first node's QEMU write its frames to a file from now on."""
        directory = lab.node_dir(lab.head)
        self._file = directory / "frames"
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.connect(f"/proc/self/fd/{os.open(directory, os.O_PATH)}/{vm.MONITOR}")
            properties = {"qom-type": "filter-dump", "id": f"dump{time.monotonic_ns()}",
                          "netdev": "wire0", "file": str(self._file)}  # fmt: skip
            said = monitor.makefile("rw")
            said.readline()
            for command in (
                {"execute": "qmp_capabilities"},
                {"execute": "object-add", "arguments": properties},
            ):
                said.write(json.dumps(command) + "\n")
                said.flush()
                assert "return" in json.loads(said.readline())
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        #: Pattern's name -> the numbers of its units that were in a frame.
        self.units: dict[str, set[int]] = defaultdict(set)
        #: Bytes of all frames so far; and how many they were when a pattern was last seen.
        self.bytes = 0
        self.bytes_until: dict[str, int] = {}

    def __enter__(self) -> Wire:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _listen(self) -> None:
        with self._file.open("rb") as file:
            file.seek(_PCAP_HEADER)
            while frame := self._next(file):
                self.bytes += len(frame)
                for name, numbers in units_in([frame]).items():
                    self.units[name] |= numbers
                    self.bytes_until[name] = self.bytes

    def _next(self, file: BinaryIO) -> bytes:
        """The next frame; none when this has ended and all were read."""
        start = file.tell()
        while True:
            was_ended = self._ended.is_set()
            header = file.read(_FRAME.size)
            length = _FRAME.unpack(header)[2] if len(header) == _FRAME.size else 0
            frame = file.read(length)
            if length and len(frame) == length:
                return frame
            file.seek(start)
            if was_ended:
                return b""
            time.sleep(0.1)


def forms_of(secret: bytes) -> list[bytes]:
    """What a piece of a secret looks like in raw, hexadecimal and base64 text.

    Base64 of bytes depends on what stands before them, so there are three of it.
    """
    forms = []
    for piece in (secret[:18], secret[-18:]):
        forms += [piece, piece.hex().encode(), piece.hex().upper().encode()]
        # Without the first and the last digits, which stand for neighbours too.
        forms += [base64.b64encode(b"\0" * shift + piece)[4:20] for shift in range(3)]
    return forms


def holds(text: bytes, secrets: Iterable[bytes]) -> bool:
    """Whether a text holds one of the secrets in any form."""
    return any(form in text for secret in secrets for form in forms_of(secret))


def files_with(directory: Path, secrets: Iterable[bytes]) -> list[str]:
    """The files below a directory that hold one of the secrets."""
    secrets = list(secrets)
    return [
        str(path.relative_to(directory))
        for path in sorted(directory.rglob("*"))
        if path.is_file() and holds(path.read_bytes(), secrets)
    ]


@pytest.fixture(scope="session")
def watch() -> SimpleNamespace:
    """The names above, for tests."""
    return SimpleNamespace(
        Wire=Wire, pieces=pieces, units_in=units_in, files_with=files_with, holds=holds
    )

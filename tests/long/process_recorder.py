"""Runs on a lab's node: records the command line and environment of every process that starts.

    python3 process_recorder.py FILE

The kernel tells of each program that is executed, so that short ones are not missed; looking
through /proc again and again would take an emulated CPU away from what is measured.
"""

import contextlib
import os
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

_NETLINK_CONNECTOR, _CN_IDX_PROC, _CN_VAL_PROC = 11, 1, 1
_PROC_CN_MCAST_LISTEN, _PROC_EVENT_EXEC = 1, 2
#: Headers of netlink and of the connector, before its event: kind, CPU, time, process, thread.
_HEADERS = struct.calcsize("=IHHII") + struct.calcsize("=IIIIHH")


def executed() -> Iterator[int]:
    """Ids of processes, each when it has begun to execute a program."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_CONNECTOR) as kernel:
        kernel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        kernel.bind((os.getpid(), _CN_IDX_PROC))
        asked = struct.pack("=I", _PROC_CN_MCAST_LISTEN)
        message = struct.pack("=IIIIHH", _CN_IDX_PROC, _CN_VAL_PROC, 0, 0, len(asked), 0) + asked
        header = struct.pack("=IHHII", 16 + len(message), 3, 0, 0, os.getpid())
        kernel.send(header + message)
        while True:
            event = kernel.recv(4096)[_HEADERS:]
            kind, _, _, process = struct.unpack_from("=IIQI", event)
            if kind == _PROC_EVENT_EXEC:
                yield process


def record(path: str) -> None:
    with open(path, "ab", buffering=0) as file:
        for process in executed():
            with contextlib.suppress(OSError):
                files = [Path(f"/proc/{process}/{name}") for name in ("cmdline", "environ")]
                file.write(b"".join(path.read_bytes() for path in files) + b"\n")


if __name__ == "__main__":
    record(sys.argv[1])

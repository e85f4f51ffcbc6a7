#!/usr/bin/python3
"""Stands before fio on a lab's client: writes a pattern through RBD before it measures.

4 MiB in units of 64 bytes, each of which says what it is, so that any piece of the pattern is
known again wherever it turns up. It is named after the cell whose directory this is started in.
"""

import hashlib
import os
import sys

UNITS, UNIT = 1 << 16, 64


def pattern(name: str) -> bytes:
    units = (f"known-pattern:{name}:{number:06d}:".encode() for number in range(UNITS))
    return b"".join(unit + hashlib.sha256(unit).hexdigest()[: UNIT - len(unit)].encode()
                    for unit in units)  # fmt: skip


def write(name: str, data: bytes) -> None:
    import rados  # noqa: PLC0415
    import rbd  # noqa: PLC0415

    # It connects as it is entered.
    with (
        rados.Rados(conffile=os.environ["CEPH_CONF"], name="client.admin") as cluster,
        cluster.open_ioctx("rbd") as pool,
    ):
        rbd.RBD().create(pool, name, len(data))
        with rbd.Image(pool, name) as image:
            image.write(data, 0)
            image.flush()
            if image.read(0, len(data)) != data:
                sys.exit("the pattern is not read back as it was written")


if __name__ == "__main__":
    if "--time_based" in sys.argv:
        cell = os.path.basename(os.getcwd())
        write(cell, pattern(cell))
    os.execvp("fio", ["fio", *sys.argv[1:]])

#!/usr/bin/python3
"""Stands before fio on a lab's client: writes a pattern to a mapped volume before fio measures it.

The pattern is that of pattern_client.py, shorter, and named after the cell whose directory this is
started in. How much of it is in the image's objects, as RADOS gives them, is told in `objects`.
"""

import hashlib
import json
import os
import re
import subprocess
import sys

UNITS, UNIT = 1 << 13, 64
#: Writes straight to the device take whole blocks of it.
BLOCK = 1 << 19


def pattern(name: str) -> bytes:
    units = (f"known-pattern:{name}:{number:06d}:".encode() for number in range(UNITS))
    return b"".join(unit + hashlib.sha256(unit).hexdigest()[: UNIT - len(unit)].encode()
                    for unit in units)  # fmt: skip


def write(device: str, data: bytes) -> None:
    with open(device, "r+b", buffering=0) as file:
        for at in range(0, len(data), BLOCK):
            file.write(data[at : at + BLOCK])
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        file.seek(0)
        read = b""
        while len(read) < len(data):
            read += file.read(BLOCK)
        if read[: len(data)] != data:
            sys.exit("the pattern is not read back as it was written")


def in_objects(image: str, conf: str, name: str) -> int:
    """How many units of the pattern stand in the image's objects."""
    import rados  # noqa: PLC0415

    info = subprocess.run(["rbd", "-c", conf, "info", "--format", "json", f"rbd/{image}"],
                          stdout=subprocess.PIPE, check=True).stdout  # fmt: skip
    prefix = json.loads(info)["block_name_prefix"]
    numbers = set()
    with (
        rados.Rados(conffile=conf, name="client.admin") as cluster,
        cluster.open_ioctx("rbd") as pool,
    ):
        for item in pool.list_objects():
            if item.key.startswith(f"{prefix}."):
                text = pool.read(item.key, length=8 << 20)
                found = re.findall(rb"known-pattern:%s:(\d{6}):" % name.encode(), text)
                numbers.update(map(int, found))
    return len(numbers)


def main() -> None:
    (link,) = (word.partition("=")[2] for word in sys.argv if word.startswith("--filename="))
    folder, _, file = link.rpartition("/")
    cell = os.path.basename(os.getcwd())
    write(link, pattern(cell))
    conf = f"{os.path.dirname(folder)}/ceph/ceph.conf"
    with open("objects", "w") as told:
        image = file[: -len(".device")]
        json.dump({"units": in_objects(image, conf, cell), "of": UNITS, "image": image}, told)


if __name__ == "__main__":
    if "--time_based" in sys.argv:
        main()
    os.execvp("fio", ["fio", *sys.argv[1:]])

"""Note which block devices a measuring process has open. Runs on hosts: Python 3.6 alone."""

import json
import os
import stat
import sys
import time
from typing import Any, Dict, List

from cbt_crypto.hosts.devices.layers_on_host import opened
from cbt_crypto.hosts.trust_on_host import is_believed


def devices_of(pid: str, folder: str) -> List[str]:
    """The block devices that a process has open, and those of its files below `folder`."""

    def counts(target: str, status: os.stat_result) -> bool:
        return stat.S_ISREG(status.st_mode) and target.startswith(folder + "/")

    return opened(pid, counts)


def find_process(program: str, mark: bytes, folder: str) -> Dict[str, Any]:
    """The process of that name and mark which has devices open, and these; empty when none has."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm", errors="replace") as file:
                comm = file.read().strip()
            if comm != program[:15] or not is_believed(pid):
                continue
            with open(f"/proc/{pid}/environ", "rb") as file:
                if mark not in file.read().split(b"\0"):
                    continue
            devices = devices_of(pid, folder)
        except OSError:
            continue
        if devices:
            return {"program": comm, "pid": int(pid), "devices": devices}
    return {}


def main(asked: Dict[str, Any]) -> None:
    """Wait up to `seconds` for our process `program`, by `mark`, to open a device; write `note`."""
    mark = f"CBT_CRYPTO_MARK={asked['mark']}".encode()
    ends = time.monotonic() + asked["seconds"]
    process = {}  # type: Dict[str, Any]
    while not process and time.monotonic() < ends:
        process = find_process(asked["program"], mark, asked["folder"])
        if not process:
            time.sleep(0.05)
    with open(asked["note"], "w") as file:
        json.dump(process, file)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

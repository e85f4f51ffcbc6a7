"""Block devices by their numbers, "major:minor", as the kernel names them. Runs on the hosts.

Its source is sent to them with the modules that import it, so it needs nothing but Python 3.6.
"""

import os
import stat
from typing import Callable, List, Optional


def number(device: int) -> str:
    """ "254:0" of a device as `stat` returns it."""
    return f"{os.major(device)}:{os.minor(device)}"


def number_at(path: str) -> Optional[str]:
    """The number of the block device that a path leads to; None where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return number(status.st_rdev) if stat.S_ISBLK(status.st_mode) else None


def opened(
    pid: str, counts: Callable[[str, os.stat_result], bool] = lambda target, status: False
) -> List[str]:
    """The block devices that a process has open, and those of its open files that `counts` takes.

    `counts` is given a file's path, as the process opened it, and its status. Raises OSError when
    the process has ended, or is not ours to look at.
    """
    devices = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        link = f"/proc/{pid}/fd/{name}"
        try:
            status, target = os.stat(link), os.readlink(link)
        except FileNotFoundError:
            continue  # closed meanwhile
        if stat.S_ISBLK(status.st_mode):
            devices.add(number(status.st_rdev))
        elif counts(target, status):
            devices.add(number(status.st_dev))
    return sorted(devices)

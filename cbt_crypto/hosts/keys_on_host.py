"""The directory for keys, in memory and root's alone. Runs on hosts: Python 3.6 alone."""

import contextlib
import os
import stat
import subprocess
import sys
from typing import List

from cbt_crypto.hosts.trust_on_host import distrust

#: Where a tmpfs is wanted, the first that is one.
KEY_MOUNTS = ("/run", "/dev/shm")
KEY_DIRECTORIES = tuple(mount + "/cbt-crypto" for mount in KEY_MOUNTS)
NO_TMPFS = (
    f"neither {' nor '.join(KEY_MOUNTS)} is a tmpfs, so there is no place for keys; mount one"
)


def make_key_directory() -> str:
    """Make the directory unless it is there. Exits with a sentence where there can be none."""
    for mount, directory in zip(KEY_MOUNTS, KEY_DIRECTORIES):
        if _file_system(mount) in ("tmpfs", "ramfs"):
            # What is there is ours from before, or was put there by others.
            with contextlib.suppress(FileExistsError):
                os.mkdir(directory, 0o700)
            if not is_ours_alone(directory):
                raise SystemExit(f"{directory} is not root's alone; remove it")
            return directory
    raise SystemExit(NO_TMPFS)


def _file_system(mount: str) -> str:
    pipe = subprocess.PIPE
    done = subprocess.run(["stat", "-f", "-c", "%T", mount], stdout=pipe, stderr=pipe, check=False)
    return done.stdout.decode().strip()


def key_directories() -> List[str]:
    """The key directories that exist on this host and are root's alone."""
    return [directory for directory in KEY_DIRECTORIES if is_ours_alone(directory)]


def is_ours_alone(directory: str) -> bool:
    """Whether it is a directory, no link, that only we may read: anybody may write to /dev/shm."""
    try:
        status = os.lstat(directory)
    except OSError:
        return False
    is_closed = stat.S_ISDIR(status.st_mode) and stat.S_IMODE(status.st_mode) == 0o700
    return is_closed and not distrust(status, (os.geteuid(),))


if __name__ == "__main__":
    print(make_key_directory() if sys.argv[1] == "make" else " ".join(key_directories()))

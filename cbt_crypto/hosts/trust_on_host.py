"""What is believed of files, processes and mounts that other users may have made or named.

Runs on hosts and here: Python 3.6 alone.
"""

import contextlib
import grp
import os
import pwd
import re
import stat
from typing import Collection, Iterator, List, Optional, Set

_GROUP_AND_OTHERS, _GROUP = 0o022, 0o020
#: The user `ceph` in containers, as Ceph's images have it.
_CEPH_IN_CONTAINERS = 167


def owners() -> Set[int]:
    """Root, and the user that the campaign runs as: what it does as root knows him by this."""
    return {0, int(os.environ.get("CBT_CRYPTO_UID") or os.geteuid())}


def ceph_users() -> Set[int]:
    """Whose processes may be daemons of Ceph: the user ceph's too."""
    users = {*owners(), _CEPH_IN_CONTAINERS}
    with contextlib.suppress(KeyError):
        users.add(pwd.getpwnam("ceph").pw_uid)
    return users


def is_believed(pid: str, users: Collection[int] = (), proc: str = "/proc") -> bool:
    """Whether a process is one of `users`, by default `owners`; not of one that has ended.

    Anybody may give his processes our mark or any name. Of a setuid program its caller counts.
    """
    try:
        with open(f"{proc}/{pid}/status", "rb") as file:
            uid = re.findall(rb"^Uid:\s*(\d+)", file.read(), re.MULTILINE)
    except OSError:
        return False
    return bool(uid) and int(uid[0]) in (users or owners())


def mounts(path: str = "/proc/self/mountinfo") -> Iterator[List[str]]:
    """The fields of each mount; people may name one with any byte but a blank and a newline."""
    with open(path, "rb") as file:
        for line in file:
            yield [os.fsdecode(field) for field in line.rstrip(b"\n").split(b" ")]


def is_private(group: int, owners: Collection[int]) -> bool:
    """Whether a group is root's, or one of `owners`' alone, as many systems make one for each."""
    if group == 0:
        return True
    with contextlib.suppress(KeyError):
        name, _, _, members = grp.getgrgid(group)
        members += [one.pw_name for one in pwd.getpwall() if one.pw_gid == group]
        return set(members) <= {name} and pwd.getpwnam(name).pw_uid in owners
    return False


def distrust(
    status: os.stat_result,
    owners: Collection[int],
    is_way: bool = False,
    is_group_ours: bool = False,
    groups: Collection[int] = (),
) -> Optional[str]:
    """Why somebody but `owners` may write to what has this status, or None; a link is its owner's.

    For a directory on the way (`is_way`), the sticky bit is enough. With `is_group_ours`, a group
    may write that is private to one of them, or one of `groups`.
    """
    if status.st_uid not in owners:
        return f"belongs to uid {status.st_uid}"
    if stat.S_ISLNK(status.st_mode) or (is_way and status.st_mode & stat.S_ISVTX):
        return None
    open_to = status.st_mode & _GROUP_AND_OTHERS
    is_ours = not open_to
    if open_to == _GROUP and is_group_ours:
        # Asked here alone: a directory service may take long to list its users.
        is_ours = status.st_gid in groups or is_private(status.st_gid, owners)
    return None if is_ours else "can be written to by others"

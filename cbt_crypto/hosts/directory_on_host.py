"""Make, judge and remove a campaign's own directory. Runs on hosts: Python 3.6 alone.

A directory decides something only if it is ours, open to nobody else, and reached by no link.
"""

import contextlib
import os
import re
import shutil
import stat
import sys
from typing import Any, Callable, Collection, Dict, List

from cbt_crypto.hosts.trust_on_host import distrust, mounts, owners

#: Left in a directory that is ours, so that we never empty one that is somebody else's. One that
#: was there before stays: the marker has its mode.
MARKER = ".cbt-crypto"
#: As Linux follows.
_MOST_LINKS = 40


class Refused(Exception):
    """What stands against touching a directory, as one sentence for people."""


def check_above(path: str, users: Collection[int] = ()) -> None:
    """Raise Refused when somebody else could put another directory in this one's place."""
    parent = path
    while parent != "/":
        parent = os.path.dirname(parent)
        status = os.lstat(parent)
        if stat.S_ISLNK(status.st_mode):
            raise Refused(path + " is reached through a link; name the directory itself")
        if distrust(status, users or owners(), is_way=True):
            raise Refused(
                f"{path} can be replaced by those who may write to {parent}; name another tmp_dir"
            )


def check_way(path: str) -> None:
    """Raise Refused when somebody else could have this path, or a link on it, lead elsewhere."""
    place, rest, links = "/", path.split("/"), 0
    while rest:
        name = rest.pop(0)
        wrong = distrust(os.lstat(place), owners(), is_way=True)
        step = os.path.normpath(os.path.join(place, name))
        if name and wrong:
            raise Refused(f"leads through {place}, where others may write; name it another way")
        if not os.path.islink(step):
            place = step
            continue
        links += 1
        if distrust(os.lstat(step), owners()) or links > _MOST_LINKS:
            raise Refused(f"leads through {step}, another user's link; name it another way")
        target = os.readlink(step)
        place = "/" if target.startswith("/") else place
        rest = target.split("/") + rest


def check_directory(path: str, users: Collection[int] = ()) -> None:
    """Raise Refused unless the directory is of one of `users`, by default `owners`, alone."""
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        raise Refused(path + " is a link; name the directory itself as tmp_dir")
    if not stat.S_ISDIR(status.st_mode):
        raise Refused(path + " is not a directory; name another tmp_dir")
    wrong = distrust(status, users or owners())
    if wrong:
        raise Refused(f"{path} {wrong}; remove it, or name another tmp_dir")
    check_above(path, users)


def check(path: str) -> None:
    """For what is there: ours and marked, or empty; and in no other directory of that kind."""
    above = os.path.dirname(path)
    while above != "/":
        marker = os.path.join(above, MARKER)
        if os.path.lexists(marker) and os.lstat(marker).st_uid in owners():
            raise Refused(f"{path} is within {above}, another campaign's; name another tmp_dir")
        above = os.path.dirname(above)
    if not os.path.lexists(path):
        above = path
        while not os.path.lexists(above):
            above = os.path.dirname(above)
        check_above(above + "/x")
        return
    check_directory(path)
    if not os.path.lexists(path + "/" + MARKER) and os.listdir(path):
        raise Refused(path + " is not empty and was not made by a campaign; name another tmp_dir")


def make(path: str) -> None:
    """The directory, marked, open to its owner alone. Safe to repeat."""
    check(path)
    owner = max(owners())
    missing = []  # type: List[str]
    above = path
    while not os.path.lexists(above):
        missing.append(above)
        above = os.path.dirname(above)
    for each in reversed(missing):
        os.mkdir(each, 0o755)
        os.chmod(each, 0o755)
        os.chown(each, owner, -1)
    # By its descriptor: somebody may have put another one there since it was looked at.
    made = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    if os.fstat(made).st_uid not in owners():
        raise Refused(path + " is not ours; name another tmp_dir")
    before = stat.S_IMODE(os.fstat(made).st_mode)
    is_kept = not missing and not os.path.lexists(path + "/" + MARKER)
    os.fchmod(made, 0o700)
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    marker = os.open(MARKER, flags, 0o600, dir_fd=made)
    os.fchown(marker, owner, -1)
    if is_kept:
        os.write(marker, oct(before).encode())
    os.close(marker)
    os.close(made)
    check_directory(path)


def mounts_below(path: str) -> List[str]:
    """Where something is mounted below the directory, a bind mount included."""
    below = []
    for fields in mounts():
        mount = fields[4]
        for code in ("040", "011", "012", "134"):
            mount = mount.replace("\\" + code, chr(int(code, 8)))
        if mount.startswith(path + "/"):
            below.append(mount)
    return below


def remove(path: str, part: str = "") -> None:
    """Remove what is below the directory or its `part`; follow no link, remove nothing mounted."""
    if not os.path.lexists(path):
        return
    check_directory(path)
    try:
        with open(path + "/" + MARKER, errors="replace") as file:
            mode = file.read()
    except FileNotFoundError:
        if not os.listdir(path):
            return
        raise Refused(path + " was not marked by this campaign, so it is left alone") from None
    target = os.path.normpath(os.path.join(path, part))
    if target != path and not target.startswith(path + "/"):
        raise Refused(target + " is not below " + path)
    if os.path.realpath(os.path.dirname(target)) != os.path.dirname(target):
        raise Refused(target + " is reached through a link")
    mounted = mounts_below(target) + (
        [target] if target != path and os.path.ismount(target) else []
    )
    if mounted:
        raise Refused(f"{mounted[0]} is mounted below {path}; unmount it")
    if target == path and (mode or os.path.ismount(path)):
        # A power cut may leave zeros in it.
        owned = int(mode, 8) if re.fullmatch("0o[0-7]{1,4}", mode) else 0o700
        # The marker last: what fails midway can be repeated.
        for name in sorted(os.listdir(path), key=MARKER.__eq__):
            _remove(os.path.join(path, name))
        os.chmod(path, owned)
    else:
        _remove(target)


def _remove(path: str) -> None:
    while os.path.lexists(path):
        # Two names of one host meet here: the other may just have removed a part of it.
        with contextlib.suppress(FileNotFoundError):
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)


def make_without(path: str, part: str) -> None:
    """Make the directory, and remove a part of it."""
    make(path)
    remove(path, part)


def main(arguments: List[str]) -> int:
    """An action, the directory, and of those that remove a part of it."""
    actions: Dict[str, Callable[..., Any]] = {
        "check": check, "check-way": check_way, "make": make, "remove": remove,
        "make-without": make_without,
    }  # fmt: skip
    try:
        actions[arguments[0]](*arguments[1:])
    except Refused as error:
        print(error, file=sys.stderr)
    except OSError as error:
        print(f"{error.filename or arguments[1]}: {error.strerror}", file=sys.stderr)
    else:
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Bring directories from hosts as tar streams that nobody need trust; as a program, from many.

Only regular files and directories are written, below a new folder, without setuid bits.
"""

from __future__ import annotations

import json
import os
import resource
import secrets
import shlex
import shutil
import subprocess
import sys
import tarfile
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, BinaryIO, Optional, cast

from cbt_crypto.errors import HostError
from cbt_crypto.hosts import shell

#: Seconds in which the results of one cell must have come, or a directory must be made or emptied.
COLLECT_S = 300
#: What a login shell may print before the stream, in bytes.
_GREETING = 64 << 10
_COPY = 1 << 20
#: Files of one host, and levels of its directories.
_MOST_FILES, _MOST_LEVELS = 200_000, 32
#: Memory of the program: the extended headers of a tar are read whole.
_MEMORY = 2 << 30
_DIRECTORY_MODE, _MODES = 0o755, 0o755
#: What tarfile raises for a stream that is torn; of a thousand long names in a row, the last.
_TORN = (tarfile.TarError, EOFError, ValueError, OverflowError, MemoryError, RecursionError)


class Unfit(Exception):
    """What is wrong with a stream, in a few words."""


def script(path: str, mark: str) -> str:
    """Shell text that prints the mark and a tar of a file or directory, called by its own name."""
    folder, name = os.path.split(path.rstrip("/"))
    # Without -f it would write to $TAPE. 1 says that a file grew while it was read.
    return (
        f"echo; echo {mark}; tar -c -f - -C {shlex.quote(folder or '/')} -- {shlex.quote(name)}; "
        "[ $? -le 1 ]"
    )


def order(host: str, ssh: Sequence[str], remote: str, target: str) -> dict[str, Any]:
    """What `main` is told of one host; `ssh` is all that comes before the command there."""
    mark = f"@cbt-crypto-files-{secrets.token_hex(8)}"
    command = f"exec sh -c {shlex.quote(script(remote, mark))}"
    return {"label": host, "argv": [*ssh, command], "mark": mark, "target": target}


def program() -> list[str]:
    """The command line of this module as a program, which reads orders as JSON."""
    return shell.own_program(__name__)


def place(arrived: Path, host: str, local: Path, taken: set[str]) -> None:
    """Move what came of a host's directory into another: `a` as `a.host`. Raises HostError.

    `taken` has the names of what came of other hosts: `a.b` of host c is named as `a` of b.c.
    """
    for entry in sorted(arrived.iterdir()):
        target = local / f"{entry.name}.{host}"
        if target.name in taken:
            raise HostError(host, f"keep {entry.name[:60]!r}", "another host has sent that", "")
        taken.add(target.name)
        try:
            if target.is_dir():
                shutil.rmtree(target)
            entry.replace(target)
        # The host chose the name, which may be too long with its own behind.
        except OSError as error:
            raise HostError(host, f"keep {entry.name[:60]!r}", str(error.strerror), "") from error


def after_mark(stream: BinaryIO, mark: str) -> None:
    """Read past the line that is the mark. Raises Unfit where it does not come."""
    read = 0
    while read < _GREETING:
        line = stream.readline(_GREETING)
        read += len(line)
        if line == f"{mark}\n".encode():
            return
        if not line:
            break
    raise Unfit("nothing came")


def unpack(stream: BinaryIO, target: Path, most: float) -> list[str]:
    """Write a tar's files below the new `target`, without the top directory's name.

    Returns links, pipes and devices left out. Unfit: a stream torn, straying or above `most` bytes.
    """
    left_out: list[str] = []
    top, come = None, 0
    try:
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            for count, member in enumerate(tar):
                words = [word for word in member.name.split("/") if word not in ("", ".")]
                if ".." in words or member.name.startswith("/") or len(words) > _MOST_LEVELS:
                    raise Unfit(f"a name that leads elsewhere: {member.name[:200]!r}")
                if count >= _MOST_FILES:
                    raise Unfit(f"more than {_MOST_FILES} files")
                top = words[0] if top is None and words else top
                if not words or words[0] != top:
                    raise Unfit(f"a second directory at its top: {member.name[:200]!r}")
                come += abs(member.size)
                if come > most:
                    raise Unfit(f"more than {most / 2**20:.0f} MiB, its part of the free space")
                if not _write(tar, member, target.joinpath(*words[1:])):
                    left_out.append(member.name)
    except _TORN as error:
        raise Unfit(f"a damaged stream ({error})") from error
    if top is None:
        raise Unfit("nothing came")
    return left_out


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> bool:
    if member.isdir():
        path.mkdir(_DIRECTORY_MODE, parents=True, exist_ok=True)
        return True
    if not member.isreg() or member.issparse():
        return False
    content = tar.extractfile(member)
    if content is None:
        return False
    path.parent.mkdir(_DIRECTORY_MODE, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, member.mode & _MODES | 0o600), "wb") as file:
        while chunk := content.read(_COPY):
            file.write(chunk)
    if 0 < member.mtime < 1 << 33:
        os.utime(path, (member.mtime, member.mtime))
    return True


def fetch(argv: Sequence[str], mark: str, target: Path, hosts: int = 1) -> Optional[str]:
    """Run a command that prints the mark and a tar, and unpack it; why it failed, or None.

    At most half of the free space is filled, by all of the hosts at once.
    """
    target.parent.mkdir(_DIRECTORY_MODE, parents=True, exist_ok=True)
    most = shutil.disk_usage(target.parent).free / 2 / hosts
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    errors = cast(IO[bytes], process.stderr)
    said: deque[bytes] = deque(maxlen=2)
    reader = threading.Thread(target=lambda: said.extend(iter(lambda: errors.read(4096), b"")))
    reader.start()
    problem = None
    try:
        with cast(IO[bytes], process.stdout) as stream:
            after_mark(cast(BinaryIO, stream), mark)
            unpack(cast(BinaryIO, stream), target, most)
            # To its end, or tar there would fail at a closed pipe.
            while stream.read(_COPY):
                pass
    except Unfit as error:
        problem = str(error)
    except OSError as error:
        problem = f"{error.filename or target}: {error.strerror}"
    if problem is not None:
        process.kill()
    status = process.wait()
    reader.join()
    words = b"".join(said)[-600:].decode(errors="replace").strip()
    if problem is not None or status != 0:
        # A part of what a host has is not taken for all of it.
        shutil.rmtree(target, ignore_errors=True)
        target.unlink(missing_ok=True)
        return ": ".join(filter(None, (problem or f"exit status {status}", words)))
    return None


def main(asked: Sequence[dict[str, Any]]) -> int:
    """Fetch each of them at once: `label`, `argv`, `mark` and `target`. Prints what failed."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    problems: dict[str, Optional[str]] = {}

    def one(order: dict[str, Any]) -> None:
        problems[order["label"]] = "it failed"
        problems[order["label"]] = fetch(
            order["argv"], order["mark"], Path(order["target"]), len(asked)
        )

    threads = [threading.Thread(target=one, args=(order,)) for order in asked]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for label, problem in problems.items():
        if problem is not None:
            print(f"{label}: {problem}", file=sys.stderr)
    return int(any(problems.values()))


if __name__ == "__main__":
    sys.exit(main(json.load(sys.stdin)))

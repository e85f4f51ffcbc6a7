"""Whether all that a cell left on the hosts has arrived in the archive, whole."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from cbt_crypto.errors import HostError
from cbt_crypto.hosts.remote import Remote

#: Host -> path below the cell's directory there -> bytes.
Sizes = Mapping[str, Mapping[str, int]]


def sizes(remote: Remote, hosts: Sequence[str], run_dir: str) -> Sizes:
    """What is in `run_dir` on each host. Raises HostError."""
    script = f"find {shlex.quote(run_dir)} -type f -printf '%s %P\\n'"
    outputs = remote.run(dict.fromkeys(hosts, script), "list the results", 60)
    return {host: _parsed(text) for host, text in outputs.items()}


def check(wanted: Sizes, archive_dir: Path) -> None:
    """Raise HostError for the first file that is missing in the archive, or shorter there.

    A copy that a full disk or a broken connection cut short must not become a number.
    """
    for host, files in wanted.items():
        for name, size in files.items():
            first, slash, rest = name.partition("/")
            path = archive_dir / f"{first}.{host}{slash}{rest}"
            arrived = path.stat().st_size if path.is_file() else -1
            if arrived < size:
                what = "is missing" if arrived < 0 else f"has {arrived} of {size} bytes"
                raise HostError(host, f"copy {name} from it", f"{what} in the archive", "")


def _parsed(text: str) -> dict[str, int]:
    found = {}
    for line in text.splitlines():
        size, _, name = line.partition(" ")
        if size.isdigit() and name:
            found[name] = int(size)
    return found

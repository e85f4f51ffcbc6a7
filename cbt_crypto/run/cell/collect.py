"""Whether all that a cell left on the hosts has arrived in the archive, whole."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Optional

from cbt_crypto.errors import HostError, RunError
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.plan.cells import Cell

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
    sizes = {}
    for line in text.splitlines():
        size, _, name = line.partition(" ")
        if size.isdigit() and name:
            sizes[name] = int(size)
    return sizes


class Collector:
    """At most one cell is under way. `failed` is called where files could not be brought."""

    def __init__(self, failed: Callable[[Cell, str], None]) -> None:
        """Start no thread yet. `failed` gets a cell and the reason why its files did not come."""
        self._failed = failed
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="collect")
        self._under_way: Optional[tuple[Cell, Future[None]]] = None

    def submit(self, cell: Cell, collect: Callable[[], None]) -> None:
        """Collect a cell, when the one before it is there."""
        self.wait()
        self._under_way = (cell, self._pool.submit(collect))

    def wait(self) -> None:
        """Return when nothing is under way. The main thread alone calls this, and `failed`."""
        if self._under_way is None:
            return
        cell, future = self._under_way
        self._under_way = None
        try:
            future.result()
        except RunError as error:
            self._failed(cell, str(error))

    def close(self) -> None:
        """Wait, and end the thread."""
        try:
            self.wait()
        finally:
            self._pool.shutdown()

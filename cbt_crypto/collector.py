"""Brings a finished cell's files to the archive while the next one is being prepared and run."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Optional

from cbt_crypto.errors import RunError
from cbt_crypto.plan.cells import Cell


class Collector:
    """At most one cell is under way. `failed` is called where files could not be brought."""

    def __init__(self, failed: Callable[[Cell, str], None]) -> None:
        """Starts nothing yet."""
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

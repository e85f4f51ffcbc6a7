"""Upstream's `monitoring`, which ends also when what is monitored does not end well."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


class Monitoring:
    """Upstream's module; a name that is not here is upstream's own."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    @contextlib.contextmanager
    def monitor(self, directory: str) -> Iterator[None]:
        """The profiles run while the block does."""
        upstream = self._module.monitor(directory)
        upstream.__enter__()
        try:
            yield
        except BaseException:
            self._module.stop(directory)
            raise
        upstream.__exit__(None, None, None)

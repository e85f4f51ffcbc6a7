"""One fio process on one client: what a single user of a cluster can get."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from cbt_crypto.benchmarks.rbd import RbdFio


class RbdSingleClient(RbdFio):
    """One fio process on the first client, with many IOs in flight."""

    name: ClassVar[str] = "rbd_single_client"

    volumes_per_client: int = Field(1, ge=1, le=1000, description="volumes on the client")
    iodepth: int = Field(128, ge=1, le=65536, description="IOs in flight per fio process")

    def active_clients(self, clients: Sequence[str]) -> tuple[str, ...]:
        """The first client of the file alone; the others idle."""
        return tuple(clients[:1])


class RbdSingleClientSync(RbdSingleClient):
    """One fio process on the first client; each IO waits for the one before it."""

    name: ClassVar[str] = "rbd_single_client_sync"

    iodepth: int = Field(1, ge=1, le=65536, description="IOs in flight per fio process")

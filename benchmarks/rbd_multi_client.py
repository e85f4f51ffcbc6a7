"""Many fio processes on every client: what the whole cluster can do."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from cbt_crypto.benchmarks.rbd import RbdFio


class RbdMultiClient(RbdFio):
    """Several fio processes on every client, each on its own volume, all at once."""

    name: ClassVar[str] = "rbd_multi_client"

    volumes_per_client: int = Field(
        10, ge=1, le=1000, description="volumes on each client, with a fio process each"
    )
    iodepth: int = Field(128, ge=1, le=65536, description="IOs in flight per fio process")

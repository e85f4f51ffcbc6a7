"""One fio process on one client, one IO at a time: latency, as a journal feels it."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from cbt_crypto.benchmarks.rbd_single_client import RbdSingleClient


class RbdSingleClientSync(RbdSingleClient):
    """One fio process on the first client; each IO waits for the one before it."""

    name: ClassVar[str] = "rbd_single_client_sync"

    iodepth: int = Field(1, ge=1, le=65536, description="IOs in flight per fio process")

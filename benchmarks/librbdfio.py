"""Upstream CBT's own `librbdfio`, as a scenario that runs under overlays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from cbt_crypto.benchmarks.upstream import OfUpstream


class Librbdfio(OfUpstream):
    """Upstream CBT's fio on RBD images; every option of upstream's is taken."""

    name: ClassVar[str] = "librbdfio"
    program: ClassVar[str] = "fio"
    volume_pattern: ClassVar[str] = r"--rbdname=\S*-(\d+)(?:\s|$)"
    defaults: ClassVar[Mapping[str, Any]] = {
        "time_based": True,
        "idle_monitor_sleep": 0,
        "wait_pgautoscaler_timeout": 0,
        "log_avg_msec": 1000,
        # With bins, so that percentiles of several processes can be had.
        "fio_out_format": "json+,normal",
    }

    volumes_per_client: int = Field(1, ge=1, le=1000, description="images on each client")
    vol_size: int = Field(16384, ge=4, le=1 << 30, description="MiB of each image")
    iodepth: int = Field(16, ge=1, le=65536, description="IOs in flight per fio process")
    op_size: int = Field(4194304, ge=512, le=1 << 30, description="bytes of one IO")
    mode: str = Field("write", pattern="^[a-z]+$", description="fio's rw")

    def volume_numbers(self) -> tuple[str, ...]:
        """One process for each image."""
        return tuple(str(n) for n in range(self.volumes_per_client))

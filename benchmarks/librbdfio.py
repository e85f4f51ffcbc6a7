"""Upstream CBT's own `librbdfio`, as a scenario that runs under overlays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Optional

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator
from typing_extensions import TypeGuard, override

from cbt_crypto.benchmarks.upstream import OfUpstream

_OF_WORKLOADS = ("workload", "pre_workload_script", "total_iodepth")


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

    workload: Optional[str] = Field(
        None, description="the workload's name; filled in where the section has `workloads`"
    )
    pre_workload_script: Optional[str] = Field(
        None, description="command that each client runs before each cell"
    )
    total_iodepth: Optional[int] = Field(
        None, ge=1, le=1 << 20, description="IOs in flight on each client, divided among volumes"
    )
    volumes_per_client: int = Field(1, ge=1, le=1000, description="images on each client")
    vol_size: int = Field(16384, ge=4, le=1 << 30, description="MiB of each image")
    iodepth: int = Field(16, ge=1, le=65536, description="IOs in flight per fio process")
    op_size: int = Field(4194304, ge=512, le=1 << 30, description="bytes of one IO")
    mode: str = Field("write", pattern="^[a-z]+$", description="fio's rw")

    @model_validator(mode="before")
    @classmethod
    def _depth_of_total(cls, given: Any) -> Any:
        """`iodepth` is what a volume gets of `total_iodepth`, which wins for upstream too."""
        if not isinstance(given, dict):
            return given
        total, volumes = given.get("total_iodepth"), given.get("volumes_per_client", 1)
        if not _is_count(total) or not _is_count(volumes):
            return given
        return {**given, "iodepth": total // min(volumes, total)}

    def options(self) -> dict[str, Any]:
        """Without what is nothing to upstream's object, or not set."""
        options = super().options()
        ours = {"pre_workload_script", "workload"}
        if self.total_iodepth is not None:
            ours.add("iodepth")
        return {key: value for key, value in options.items() if key not in ours}

    @model_serializer(mode="wrap")
    def _without_what_is_not_set(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """So that cells without workloads are named as before there were any."""
        options: dict[str, Any] = handler(self)
        return {k: v for k, v in options.items() if v is not None or k not in _OF_WORKLOADS}

    @property
    @override
    def needs_rbd_engine(self) -> bool:
        return True

    def before(self) -> Optional[str]:
        """What each client runs before a cell."""
        return self.pre_workload_script

    def volume_numbers(self) -> tuple[str, ...]:
        """One process for each image; upstream uses fewer where the total depth is less."""
        volumes = min(self.volumes_per_client, self.total_iodepth or self.volumes_per_client)
        return tuple(str(n) for n in range(volumes))


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0

"""Upstream CBT's own `radosbench`, as a scenario that runs under overlays."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from cbt_crypto.benchmarks.upstream import OfUpstream


class Radosbench(OfUpstream):
    """Upstream CBT's rados bench: writes, then reads what was written; its options are taken."""

    name: ClassVar[str] = "radosbench"
    program: ClassVar[str] = "rados"
    kind: ClassVar[str] = "rados_bench"
    volume_pattern: ClassVar[str] = r"--run-name\s+\S*-(\d+)(?:\s|$)"
    initialize_only_waits: ClassVar[bool] = True

    concurrent_procs: int = Field(1, ge=1, le=1000, description="processes on each client")
    concurrent_ops: int = Field(16, ge=1, le=65536, description="IOs in flight per process")
    op_size: int = Field(4194304, ge=512, le=1 << 30, description="bytes of one IO")
    write_only: bool = Field(False, description="do not read afterwards")
    readmode: Literal["seq", "rand"] = Field("seq", description="how objects are read")

    mode: Literal["write", "rw"] = Field(
        "rw", description="what it does, for the tables; `write_only` decides"
    )

    @model_validator(mode="before")
    @classmethod
    def _mode_of_write_only(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("write_only") is True:
            return {**given, "mode": "write"}
        return given

    def phases(self) -> tuple[tuple[str, str], ...]:
        """Writes, and reads unless `write_only`."""
        modes = ("write",) if self.write_only else ("write", self.readmode)
        return tuple((mode, f"{mode}/") for mode in modes)

    def is_load(self, words: str) -> bool:
        """Whether it is the load: upstream also asks rados for its version."""
        return " bench " in f" {words} "

    def volume_numbers(self) -> tuple[str, ...]:
        """One for each process."""
        return tuple(str(n) for n in range(self.concurrent_procs))

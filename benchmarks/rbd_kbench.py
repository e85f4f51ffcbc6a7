"""The tests that kbench, a benchmark for volumes of Kubernetes, runs: on one RBD volume."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from cbt_crypto.benchmarks.rbd_single_client import RbdSingleClient

#: Test -> bytes of one IO and IOs in flight.
_TESTS = {"iops": (4096, 64), "bandwidth": (128 << 10, 64), "latency": (4096, 1)}


class RbdKbench(RbdSingleClient):
    """kbench's tests: IOPS (4K, depth 64), bandwidth (128K, depth 64), latency (4K, depth 1)."""

    name: ClassVar[str] = "rbd_kbench"

    test: Literal["iops", "bandwidth", "latency"] = Field(
        "iops", description="what is tested; sets op_size and iodepth where the file does not"
    )
    op_size: int = Field(
        4096, ge=512, le=1 << 30, description="bytes of one IO; the test's own when absent"
    )
    iodepth: int = Field(
        64, ge=1, le=65536, description="IOs in flight; the test's own when absent"
    )

    @model_validator(mode="before")
    @classmethod
    def _as_the_test_has_it(cls, data: Any) -> Any:
        test = data.get("test", "iops") if isinstance(data, dict) else None
        if not isinstance(test, str) or test not in _TESTS:
            return data
        op_size, iodepth = _TESTS[test]
        return {"op_size": op_size, "iodepth": iodepth, **data}

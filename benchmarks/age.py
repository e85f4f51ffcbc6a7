"""Drives in a known state before they are measured: SNIA's SSS Performance Test 2.0.2.

A new flash drive is too fast: all of it is overwritten, then rounds run until five are alike.
"""

from __future__ import annotations

import shlex
from typing import Any, Optional

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator
from typing_extensions import Self

from cbt_crypto.benchmarks.base import ClusterCommands, Job, OpSize, Scenario, WrapClient
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.site import HostScripts, Site

#: The specification's rounds: those that must be alike, and after how many it gives up.
WINDOW, MOST_ROUNDS = 5, 25
#: Bytes of its sequential writes.
_SEQUENTIAL_BYTES = 128 << 10
_RANDOM_BYTES = 4096
_OPTIONS = (
    "precondition", "precondition_random", "precondition_op_size", "steady_state",
    "steady_state_rounds", "recovery", "scrub", "deep_scrub", "compressible", "clients",
    "filesystem",
)  # fmt: skip


class Aged(Scenario):
    """Options by which what is measured is written over, and in a steady state, before."""

    precondition: Optional[int] = Field(
        None, ge=1, le=100,
        description="times the filled volumes, or the measured part of the drive, are "
        "overwritten in sequence by 128 KiB; SNIA's PTS has 2",
    )  # fmt: skip
    precondition_random: Optional[int] = Field(
        None, ge=1, le=100, description="times they are then overwritten in random order"
    )
    precondition_op_size: Optional[OpSize] = Field(
        None, description="bytes of one of these random writes; else 4096"
    )
    steady_state: Optional[int] = Field(
        None, ge=1, le=86_400,
        description="seconds of a round: before each cell its workload runs in rounds until the "
        "IOPS of five differ by at most 20 % of their mean, and their slope by 10 % (SNIA's PTS: "
        "60)",
    )  # fmt: skip
    steady_state_rounds: Optional[int] = Field(
        None, ge=WINDOW, le=1000,
        description="rounds after which the cell is measured anyway, with a warning; else 25",
    )  # fmt: skip

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        if self.steady_state and self.until is not None:
            raise ValueError("steady_state does not go with a precision; give time in seconds")
        if self.steady_state_rounds and not self.steady_state:
            raise ValueError("steady_state_rounds says nothing without steady_state; leave it out")
        if self.precondition_op_size and not self.precondition_random:
            raise ValueError(
                "precondition_op_size says nothing without precondition_random; leave it out"
            )
        return self

    @model_serializer(mode="wrap")
    def _without_what_is_not_asked(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A cell that asks for none of this is the one of archives that do not know it."""
        options: dict[str, Any] = handler(self)
        return {
            key: value for key, value in options.items() if key not in _OPTIONS or value is not None
        }

    @property
    def passes(self) -> int:
        """How often what is measured is written over beside its prefill."""
        return (self.precondition or 0) + (self.precondition_random or 0)

    @property
    def slowest_fill_mb_per_s(self) -> float:
        """Small writes in random order take longer."""
        return 0.1 if self.precondition_random else 1.0

    @property
    def contents(self) -> str:
        """What tells volumes that are written over so from others, as part of their names."""
        if not self.passes:
            return ""
        random = f"r{self.precondition_random}x{self._random_bytes}"
        return f"-p{self.precondition or 0}{random if self.precondition_random else ''}"

    @property
    def overwrites(self) -> tuple[Job, ...]:
        """What each fio of the preconditioning does, one after another."""
        jobs: list[Job] = []
        if self.precondition:
            jobs.append({"rw": "write", "bs": _SEQUENTIAL_BYTES, "loops": self.precondition})
        if self.precondition_random:
            bs, loops = self._random_bytes, self.precondition_random
            jobs.append({"rw": "randwrite", "bs": bs, "loops": loops})
        return tuple(jobs)

    @property
    def _random_bytes(self) -> int:
        return self.precondition_op_size or _RANDOM_BYTES

    @property
    def most_rounds(self) -> int:
        """Rounds after which the steady state is not waited for any more; 0 where it is not."""
        return (self.steady_state_rounds or MOST_ROUNDS) if self.steady_state else 0

    @property
    def settling_s(self) -> int:
        """Seconds that the fewest rounds take."""
        return WINDOW * (self.steady_state or 0)

    def round_scripts(
        self, site: Site, directory: str, commands: ClusterCommands, wrap: WrapClient
    ) -> HostScripts:
        """The cell's own workload for the seconds of a round; each client prints its IOPS."""
        load = self.model_copy(update={"time": self.steady_state, "ramp": 0})
        folder = shlex.quote(directory)
        scripts = load.measure(site, directory, commands, wrap)
        iops = shell.call(__file__, "print_iops")
        return {
            host: f"mkdir -p {folder}\nrm -f {folder}/*\n{text}\n{iops}\nrm -f {folder}/*"
            for host, text in scripts.items()
        }

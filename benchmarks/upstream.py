"""Benchmarks that upstream CBT runs by itself, named in a campaign's file by upstream's names.

Their options are upstream's, passed on as they are; here is only what a campaign must know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Optional

from pydantic import ConfigDict, model_validator
from typing_extensions import Self

from cbt_crypto.benchmarks.base import ClientProcess, Scenario
from cbt_crypto.hosts.site import Site


class OfUpstream(Scenario):
    """A benchmark of upstream CBT's own: it needs a checkout, named by `--cbt`."""

    model_config = ConfigDict(extra="allow", frozen=True, populate_by_name=True, strict=True)

    #: The program that loads the cluster.
    program: ClassVar[str]
    #: How its results are read: `results.process_output`.
    kind: ClassVar[str] = "fio"
    #: What upstream waits for by default, turned off unless the file says otherwise.
    defaults: ClassVar[Mapping[str, Any]] = {}
    #: In a command line of `program`: the number that upstream puts into file names.
    volume_pattern: ClassVar[str]
    #: Whether upstream's `initialize` makes nothing.
    initialize_only_waits: ClassVar[bool] = False

    @model_validator(mode="after")
    def _one_value_each(self) -> Self:
        for key, value in (self.model_extra or {}).items():
            if isinstance(value, dict) and key != "prefill":
                raise ValueError(f"{key} is a mapping; give one value, or a list of values")
        return self

    def options(self) -> dict[str, Any]:
        """The options for upstream's object."""
        options = self.model_dump(mode="json", exclude={"configuration"})
        return {**self.defaults, **options}

    def before(self) -> Optional[str]:
        """What each client runs before a cell; None for nothing."""
        return None

    def phases(self) -> tuple[tuple[str, str], ...]:
        """What one run does, one after another: a word of the command line, and the folder."""
        return (("", ""),)

    def is_load(self, words: str) -> bool:
        """Whether a process of `program` with these arguments loads the cluster."""
        return True

    def volume_numbers(self) -> tuple[str, ...]:
        """The numbers that upstream gives to the processes of each client."""
        raise NotImplementedError

    def required_programs(self) -> Sequence[str]:
        """The one that loads the cluster."""
        return (self.program,)

    def processes(self, site: Site) -> tuple[ClientProcess, ...]:
        """All processes, on every client."""
        return tuple(ClientProcess(h, n) for h in site.clients for n in self.volume_numbers())

"""Benchmarks that upstream CBT runs by itself, named in a campaign's file by upstream's names.

Their options are upstream's, passed on as they are; here is only what a campaign must know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Optional

from pydantic import ConfigDict, Field, model_validator
from typing_extensions import Self, override

from cbt_crypto.archive.documents import KEPT
from cbt_crypto.benchmarks.base import ClientProcess, Scenario
from cbt_crypto.hosts.site import Site


class OfUpstream(Scenario):
    """A benchmark of upstream CBT's own: it needs a checkout, named by `--cbt`."""

    model_config = ConfigDict(extra="allow", frozen=True, populate_by_name=True, strict=True)

    #: The program that loads the cluster, and the option that gives the path of another.
    program: ClassVar[str]
    program_option: ClassVar[str] = "cmd_path"
    #: How its results are read: `results.process_output`.
    kind: ClassVar[str] = "fio"
    #: What upstream waits for by default, turned off unless the file says otherwise.
    defaults: ClassVar[Mapping[str, Any]] = {}
    #: What upstream's object has besides its options.
    attributes: ClassVar[Mapping[str, Any]] = {}
    #: Options that are mappings for upstream.
    mappings: ClassVar[tuple[str, ...]] = ("prefill",)
    #: In a command line of `program`: the number that upstream puts into file names.
    volume_pattern: ClassVar[str]
    #: Of the files with results, before the number: upstream makes JSON of it where it can.
    results: ClassVar[str] = "json_output"
    #: Whether upstream's `initialize` makes nothing, and whether `prefill` is another step.
    initialize_only_waits: ClassVar[bool] = False
    fills_apart: ClassVar[bool] = False
    #: Whether `program` is started by upstream on clients, and its ending is noted.
    is_noted: ClassVar[bool] = True

    @model_validator(mode="after")
    def _one_value_each(self) -> Self:
        for key, value in (self.model_extra or {}).items():
            if isinstance(value, dict) and key not in self.mappings:
                raise ValueError(f"{key} is a mapping; give one value, or a list of values")
        return self

    @property
    def path(self) -> str:
        """The program, where the file gives a path; else its name."""
        return str((self.model_extra or {}).get(self.program_option, self.program))

    def options(self) -> dict[str, Any]:
        """The options for upstream's object."""
        options = self.model_dump(mode="json", exclude={"configuration"})
        return {**self.defaults, **options}

    def before(self) -> Optional[str]:
        """What each client runs before a cell; None for nothing."""
        return None

    def guard(self, tmp_dir: str) -> str:
        """Shell text that fails on a client whose devices must not be overwritten."""
        return ""

    def after(self, tmp_dir: str) -> str:
        """Shell text that tears down on clients what upstream leaves there."""
        return ""

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
        return (self.path,)

    @property
    @override
    def needs_rbd_engine(self) -> bool:
        return False

    def processes(self, site: Site) -> tuple[ClientProcess, ...]:
        """All processes, on every client."""
        return tuple(ClientProcess(h, n) for h in site.clients for n in self.volume_numbers())


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


class Kept(OfUpstream):
    """A benchmark whose output is kept in the archive, and not read: the report says so."""

    kind: ClassVar[str] = KEPT
    mappings: ClassVar[tuple[str, ...]] = ("prefill", "auth", "workloads")
    volume_pattern: ClassVar[str] = "()"

    def volume_numbers(self) -> tuple[str, ...]:
        """One for all processes of a client."""
        return ("",)


class Hsbench(Kept):
    """Upstream CBT's hsbench on gateways that are there: S3."""

    name: ClassVar[str] = "hsbench"
    program: ClassVar[str] = "hsbench"
    fills_apart: ClassVar[bool] = True


class Getput(Kept):
    """Upstream CBT's getput on gateways that are there: Swift."""

    name: ClassVar[str] = "getput"
    program: ClassVar[str] = "getput"


class Elbencho(Kept):
    """Upstream CBT's elbencho on gateways that are there: S3. Only later checkouts have it."""

    name: ClassVar[str] = "elbencho"
    program: ClassVar[str] = "elbencho"


class Cosbench(Kept):
    """Upstream CBT's COSBench on gateways that are there, by the controller that it names."""

    name: ClassVar[str] = "cosbench"
    #: What asks the controller, which has no program of its own on clients.
    program: ClassVar[str] = "curl"
    is_noted: ClassVar[bool] = False

"""The JSON files of ours in an archive, as `docs/archive.md` specifies them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Annotated, Any, Optional, TypeVar, Union

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from cbt_crypto.archive.files import Malformed, check_values, first_fault

#: The newest layout that this version reads.
FORMAT = 1
#: Of one plan: months of measuring. What somebody sent may have millions.
MOST_CELLS = 20_000
#: The largest plan.json, in bytes: each takes some 80 of memory before it is a report.
PLAN_LIMIT = 16 << 20
#: What a kernel counts; Python cannot divide whatever JSON can hold.
Whole = Annotated[int, Field(gt=-(2**64), lt=2**64)]
Count = Annotated[int, Field(ge=0, lt=2**64)]
#: No figure and no time is further from nothing; what is made of some of them is a number, too.
LARGEST = 1e30
Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
#: Dimensions that cannot be the compared one: their values are different kinds of workload.
NEVER_COMPARED = ("scenario", "mode")
#: A value of a dimension, as it stands in the campaign's file.
Scalar = Union[bool, int, float, str, None]


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False, defer_build=True)


class _OfFormat(_Document):
    format: int


class Baseline(_Document):
    """The value of one dimension that counts as 100 %."""

    dimension: str = "configuration"
    value: Scalar

    @field_validator("dimension")
    @classmethod
    def _dimension_is_compared(cls, value: str) -> str:
        if value in NEVER_COMPARED:
            raise ValueError(f"the values of {value} are different workloads")
        return value


class PlannedCell(_Document):
    """One cell that the campaign is to measure, once."""

    id: str
    path: str
    iteration: int = Field(0, ge=0, lt=10**8)
    scenario: str
    configuration: str
    parameters: Mapping[str, Any] = {}


#: Factor -> level -> the overlays that make it.
Matrix = Mapping[str, Mapping[str, Any]]


#: Configurations that a matrix makes at most.
MOST_CROSSED = 64


def can_be_crossed(matrix: Matrix) -> bool:
    """Return whether it has factors and levels enough, and no more than can be measured."""
    levels = [len(of_factor) for of_factor in matrix.values()]
    return len(levels) > 1 and min(levels) > 1 and math.prod(levels) <= MOST_CROSSED


def crossed(matrix: Matrix) -> dict[str, tuple[str, ...]]:
    """Configuration -> its level of each factor, which name it; the last factor varies fastest."""
    return {", ".join(levels): levels for levels in itertools.product(*matrix.values())}


class PlanDocument(_OfFormat):
    """plan.json: every cell in the order they are to run."""

    title: str = ""
    baseline: Optional[Baseline] = None
    configurations: Mapping[str, Any] = {}
    matrix: Matrix = {}
    cells: tuple[PlannedCell, ...] = Field((), max_length=MOST_CELLS)
    order: str = "sequential"
    #: The campaign's file, as it was read.
    document: Mapping[str, Any] = {}

    @field_validator("matrix")
    @classmethod
    def _matrix_is_one(cls, value: Matrix) -> Matrix:
        """What somebody sent may cross to more configurations than there is memory for."""
        if value and not can_be_crossed(value):
            raise ValueError(f"must make 4 to {MOST_CROSSED} configurations of two factors or more")
        return value

    @property
    def own_baseline(self) -> Optional[Baseline]:
        """The file's; the first configuration in archives of old; None without cells."""
        if self.baseline is None and self.cells:
            return Baseline(value=self.cells[0].configuration)
        return self.baseline

    @property
    def cluster(self) -> Mapping[str, Any]:
        """The file's section of the cluster, with what watches its hosts; empty if not known."""
        told = self.document.get("cluster")
        watchers = {"monitoring_profiles": self.document.get("monitoring_profiles")}
        return {**told, **watchers} if isinstance(told, Mapping) else {}


#: The kind of a process whose output is in the archive and is not read.
KEPT = "kept"


class Process(_Document):
    """One client process of a cell and where its output is, relative to the cell."""

    host: str
    volume: str
    kind: str = "fio"
    exit_status: Optional[int] = None
    json_file: str = Field(alias="json")
    logs: Optional[str] = None


class BlockRead(_Document):
    """What the campaign read of a block when it decided whether to measure another."""

    warmup_s: Number = Field(0.0, ge=0)
    iops: Mapping[str, Number] = {}
    clat_ns_mean: Mapping[str, Number] = {}


class Layer(_Document):
    """A block device that an OSD had open, or one below it, and what passed it."""

    device: str
    mapping: Optional[str] = None
    read_bytes: Count
    written_bytes: Count


class Moved(_Document):
    """What a process had read from storage, and written."""

    read_bytes: Whole
    written_bytes: Whole


class OsdStorage(_Document):
    """What one OSD read and wrote while clients ran, ramp included, by opened device and below."""

    host: str
    counters: Mapping[str, Whole] = {}
    devices: tuple[tuple[Layer, ...], ...] = ()
    process: Optional[Moved] = None
    cpu_ms: Optional[Count] = None
    #: The time that this is of, of an OSD that idled.
    seconds: Optional[Number] = Field(None, gt=0)


class SlowOp(_Document):
    """An operation that an OSD took long for, by its host's clock; `what` is Ceph's kind of it."""

    osd: str
    host: str
    began: Number
    seconds: Number = Field(ge=0)
    what: str


class Overwritten(_Document):
    """What was written to one drive, or an OSD's file, since the deployment."""

    written_bytes: Count
    size_bytes: int = Field(gt=0, lt=2**64)


class SteadyState(_Document):
    """The rounds of load before a cell, and how alike the last of them were, in percent."""

    reached: bool
    round_s: Number = Field(gt=0)
    iops: tuple[Number, ...] = Field((), max_length=1000)
    range_percent: Optional[Number] = None
    slope_percent: Optional[Number] = None


class Caches(_Document):
    """What was done to the OSDs' caches before a cell."""

    state: str
    faults: tuple[str, ...] = ()


class Recovery(_Document):
    """An OSD that was taken out during a cell and came back; times by the head's clock."""

    osd: int
    out_at: Number
    clean_after_out_s: Number = Field(ge=0)
    in_at: Number
    clean_after_in_s: Number = Field(ge=0)

    @property
    def spans(self) -> tuple[tuple[float, float], ...]:
        """When it went on: (from, seconds)."""
        return (self.out_at, self.clean_after_out_s), (self.in_at, self.clean_after_in_s)


class Scrub(_Document):
    """Placement groups that were scrubbed under a cell's workload; times by the head's clock.

    `groups` of them said themselves that they were scrubbed since `scrub_at`.
    """

    groups: int = Field(ge=1)
    scrub_at: Number
    scrubbed_after_s: Number = Field(ge=0)

    @property
    def spans(self) -> tuple[tuple[float, float], ...]:
        """When it went on: (from, seconds)."""
        return ((self.scrub_at, self.scrubbed_after_s),)


class Beside(_Document):
    """What a cluster of others was busy with: placement groups, and the time that this is of."""

    seconds: Number = Field(gt=0)
    scrubbing: int = Field(0, ge=0)
    recovering: int = Field(0, ge=0)


class CellDocument(_OfFormat):
    """cell.json: how the measurement of one cell went."""

    id: str
    iteration: int = Field(0, ge=0, lt=10**8)
    scenario: str
    configuration: str
    parameters: Mapping[str, Any] = {}
    state: str
    reason: Optional[str] = None
    started: Optional[Number] = None
    ended: Optional[Number] = None
    clients: tuple[str, ...] = ()
    osd_hosts: tuple[str, ...] = ()
    clock_offset_s: Mapping[str, Number] = {}
    processes: tuple[Process, ...] = ()
    deployment: Optional[str] = None
    block: Optional[BlockRead] = None
    rate_iops: Optional[Number] = Field(None, gt=0)
    caches: Optional[Caches] = None
    storage: Mapping[str, OsdStorage] = {}
    #: Counter of `perf dump` -> what the measured OSDs counted together.
    osd_perf: Mapping[str, Number] = {}
    slow_ops: tuple[SlowOp, ...] = Field((), max_length=10_000)
    group: Optional[str] = None
    #: Which slices of the drives the group had: the number of the planned deployment.
    slices: int = 0
    #: OSDs of other groups on the same cluster.
    idle: Mapping[str, OsdStorage] = {}
    #: Drive -> what had been written to it before the cell.
    overwritten: Mapping[str, Overwritten] = {}
    steady_state: Optional[SteadyState] = None
    recovery: Optional[Recovery] = None
    scrub: Optional[Scrub] = None
    beside: Optional[Beside] = None


class OverlayProof(_Document):
    """What one overlay's proof said in one cell."""

    overlay: str
    present: bool = True
    options: Mapping[str, Any] = {}
    proved: bool
    reason: str = ""
    evidence: Any = None


class Proof(_OfFormat):
    """proof.json: whether a configuration was in force; not `required` with `proof: none`."""

    configuration: str
    proved: bool
    required: bool = True
    overlays: tuple[OverlayProof, ...] = ()
    #: Client -> its busiest thread, in archives of before there were recordings.
    clients: Mapping[str, Any] = {}

    @property
    def holds(self) -> bool:
        """Whether the cell may be published."""
        return self.proved or not self.required


class RecordedHost(_Document):
    """One host of environment.json; what else is recorded of it is kept as it is."""

    model_config = ConfigDict(extra="allow")

    roles: tuple[str, ...] = ()
    emulated: bool = False


#: What of a host may be upgraded between two starts of a campaign: keys of environment.json.
UPGRADED = ("ceph", "kernel", "openssl", "fio", "cryptsetup", "cbt-crypto")
#: What else of it may be changed, and how reports call that.
CHANGED = {"cpu_model": "CPU", "threads": "threads", "memory_bytes": "memory", "smt": "SMT",
           "governor": "governor", "tuned": "TuneD profile", "cstates": "C-states",
           "mitigations": "mitigations", "command_line": "kernel command line",
           "networks": "network cards", "monitoring": "monitoring_profiles"}  # fmt: skip


class Environment(_OfFormat):
    """environment.json: where the campaign ran; what else is recorded is kept as it is."""

    model_config = ConfigDict(extra="allow")

    hosts: Mapping[str, RecordedHost] = {}


#: Ten years: what is longer is no prediction, and no date either.
_LONGEST_S = 3.2e8


class PredictionDocument(_OfFormat):
    """prediction.json: what the campaign was to take, in seconds, with a chance of 80 %."""

    like: str = ""
    seconds: float = Field(ge=0, le=_LONGEST_S)
    low: float = Field(ge=0, le=_LONGEST_S)
    high: float = Field(ge=0, le=_LONGEST_S)


class TakenStep(_Document):
    """One step of timeline.json: when it began, and how long it took."""

    started: Number = Field(0.0, ge=0)
    seconds: float = Field(0.0, ge=0, le=_LONGEST_S)


class TimelineDocument(_OfFormat):
    """timeline.json: the steps that were taken to their end."""

    steps: tuple[TakenStep, ...] = Field((), max_length=10 * MOST_CELLS)


#: Any of the documents above.
AnyDocument = TypeVar("AnyDocument", bound=_OfFormat)


def parse_document(kind: type[AnyDocument], data: bytes) -> AnyDocument:
    """Validate one document. Raises Malformed that names the key which is wrong."""
    check_values(data)
    try:
        document = kind.model_validate_json(data)
    except ValidationError as error:
        wrong = ": ".join(first_fault(error))
        raise Malformed(f"is not as docs/archive.md has it: {wrong}") from None
    if document.format > FORMAT:
        raise Malformed(
            f"has format {document.format}, newer than the {FORMAT} that this version reads"
        )
    return document

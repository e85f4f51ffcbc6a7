"""What one block measured after its warm-up, from fio's logs on the host that collected them.

It tells when to stop, and where the warm-up ends, which the report takes from cell.json.
"""

from __future__ import annotations

import contextlib
import glob
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    ValidationError,
    model_serializer,
    model_validator,
)
from typing_extensions import Self

from cbt_crypto.archive.files import Malformed
from cbt_crypto.archive.folder import Folder
from cbt_crypto.results import repetition
from cbt_crypto.results.readers.fio_log import DIRECTIONS, EPOCH_FROM_MS, read_entries
from cbt_crypto.results.repetition import FEWEST_PAIRS, FIRST, interval

#: More than 0, and less than 100.
PERCENT = r"^(0\.[0-9]{0,3}[1-9]|[1-9][0-9]?(\.[0-9]{1,4})?)%$"

#: What a percent may be asked of, by the report's keys.
Asked = Literal["iops", "clat_ns_mean"]


class MeasureUntil(BaseModel):
    """Measure a workload in blocks of seconds until the percentages are known well enough."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    precision: Annotated[str, StringConstraints(pattern=PERCENT)] = Field(
        description="largest distance from a percentage to the ends of its 95 % interval, e.g. 1%"
    )
    min: int = Field(30, ge=1, le=2_592_000, description="least seconds to measure")
    max: int = Field(300, ge=1, le=2_592_000, description="most seconds to measure")
    block: int = Field(10, ge=2, le=86_400, description="seconds of one block")
    warmup: Optional[int] = Field(
        None, ge=0, le=43_200,
        description="seconds left out at the start of every block, whatever they hold; default: "
        "a fifth of the block",
    )  # fmt: skip
    metrics: Optional[list[Asked]] = Field(
        None, min_length=1,
        description="the figures whose percentages are to be known: iops, clat_ns_mean; default: "
        "iops, and both where the scenario has a rate",
    )  # fmt: skip

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.block <= self.max or not self.min <= self.max:
            raise ValueError("max must be at least min, and at least one block")
        if self.warmup_s > self.block / 2:
            raise ValueError("warmup must be at most half of a block")
        return self

    @model_serializer(mode="wrap")
    def _as_asked(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without what is not asked for, as archives have it that were written before."""
        written: dict[str, Any] = handler(self)
        if self.metrics is None:
            del written["metrics"]
        return written

    @property
    def warmup_s(self) -> float:
        """Seconds that are left out of each block, the same under every configuration."""
        return float(self.block // 5 if self.warmup is None else self.warmup)

    @property
    def half(self) -> float:
        """`precision` as half the width of an interval of logarithms."""
        return math.log1p(float(self.precision.rstrip("%")) / 100)

    @property
    def fewest(self) -> int:
        """The number of blocks that are measured in any case."""
        return math.ceil(self.min / self.block)

    def fewest_of(self, turns: int) -> int:
        """The blocks that are measured in any case, where each deployment adds `turns` blocks."""
        return turns * max(FIRST, math.ceil(self.fewest / turns))

    @property
    def most(self) -> int:
        """The number of blocks after which a cell ends, precise or not."""
        return math.ceil(self.max / self.block)


def until_of(parameters: Mapping[str, Any]) -> Optional[MeasureUntil]:
    """What a cell's parameters say, wherever they come from; None for a fixed time."""
    value = parameters.get("time")
    if not isinstance(value, Mapping):
        return None
    with contextlib.suppress(ValidationError):
        return MeasureUntil.model_validate(dict(value))
    return None


def asked_of(parameters: Mapping[str, Any]) -> tuple[Asked, ...]:
    """The figures whose percentages decide when a cell ends that has such parameters.

    At a rate the file sets the IOPS, which say nothing: then it is the latency that differs. The
    IOPS count all the same, as a configuration may not reach the rate.
    """
    until = until_of(parameters)
    if until is not None and until.metrics is not None:
        return tuple(until.metrics)
    return ("iops",) if parameters.get("rate", "max") == "max" else ("iops", "clat_ns_mean")


#: The report reads the same logs more finely; what just reaches the precision here does so there.
MARGIN = 0.98


@dataclass(frozen=True)
class Measured:
    """One block's figures, its deployment, and with groups side by side that one's number."""

    deployment: Optional[str]
    figures: Mapping[str, float]
    slices: Optional[int] = None


@dataclass
class LoadPace:
    """One workload under all configurations. `together` are those that take turns on one cluster.

    `blocks`: configuration -> round -> what was measured. `turns`: on each deployment, where more
    may follow, else None. `beside`: all configurations stand on each of these.
    """

    until: MeasureUntil
    baseline: str
    together: Sequence[Sequence[str]]
    blocks: dict[str, dict[int, Measured]] = field(default_factory=dict)
    turns: Optional[int] = None
    beside: bool = False

    @property
    def fewest(self) -> int:
        """The rounds that are measured in any case."""
        return self.until.fewest if self.turns is None else self.until.fewest_of(self.turns)

    def note(self, configuration: str, turn: int, measured: Measured) -> None:
        """A block was measured."""
        self.blocks.setdefault(configuration, {})[turn] = measured

    def is_settled(self, configuration: str, turn: int) -> bool:
        """Whether the block of that round (from 0) is not needed any more."""
        if turn < self.fewest:
            return False
        if self.turns is not None:
            return self._is_settled(configuration, turn - turn % self.turns)
        group = self._group(configuration)
        if len(group) > 1 and turn < FEWEST_PAIRS:
            return False
        if configuration != self.baseline or len(group) == 1:
            return self.half(configuration) <= MARGIN * self.until.half
        # the baseline is measured for the others
        return all(self.is_settled(name, turn) for name in group if name != self.baseline)

    def _is_settled(self, configuration: str, begun: int) -> bool:
        others = [name for name in self.blocks if name != self.baseline]
        names = others if configuration == self.baseline else [configuration]
        return bool(names) and all(
            self.half_of_deployments(name, begun) <= MARGIN * self.until.half for name in names
        )

    def half_of_deployments(self, configuration: str, begun: int) -> float:
        """Half the interval of the logarithm of the percent, of its widest figure.

        Of the rounds before `begun`, where each deployment is one value.
        """
        blocks = self.blocks.get(configuration, {})
        baseline = self.blocks.get(self.baseline, {})
        pairs = [
            (turn, blocks[turn], baseline[turn])
            for turn in sorted(blocks)
            if turn < begun and turn in baseline
        ]
        names = {name for _, block, _ in pairs for name in block.figures}
        return max((self._half(pairs, name) for name in names), default=math.inf)

    def _half(self, pairs: Sequence[tuple[int, Measured, Measured]], figure: str) -> float:
        logs = [
            (turn, own, base, [math.log(block.figures[figure]) for block in (own, base)])
            for turn, own, base in pairs
            if min(block.figures.get(figure, 0.0) for block in (own, base)) > 0
        ]
        if self.beside:
            ratios = repetition.on_one_cluster(
                (self._planned(turn, own), own.deployment, base.deployment, values[0] - values[1])
                for turn, own, base, values in logs
            )
            is_known = len(ratios) >= FIRST
            return repetition.beside(list(ratios.values())).half if is_known else math.inf
        rounds = [(values[0], values[1]) for *_, values in logs]
        if any(own.deployment == base.deployment for _, own, base in pairs):
            rounds = [(own - base, 0.0) for own, base in rounds]
        return repetition.of_rounds(rounds).half if len(rounds) >= FIRST else math.inf

    def _planned(self, turn: int, measured: Measured) -> int:
        """The number of a deployment; where the file had other turns before, the block knows it."""
        return turn // (self.turns or 1) if measured.slices is None else measured.slices

    def half(self, configuration: str) -> float:
        """Half the interval of the logarithm of the percent, of its widest figure.

        Where the baseline is on another cluster, that of a percent between two cells which are
        both known as well as this one; what another deployment would change is not in it.
        """
        group = self._group(configuration)
        paired = self.baseline in group and configuration != self.baseline
        blocks = self.blocks.get(configuration, {})
        baseline = self.blocks.get(self.baseline, {}) if paired else None
        names = sorted({name for block in blocks.values() for name in block.figures})
        halves = (interval(_logs(blocks, baseline, name)).half for name in names)
        widest = max(halves, default=math.inf)
        return widest if paired else widest * math.sqrt(2)

    def _group(self, configuration: str) -> Sequence[str]:
        group = next((g for g in self.together if configuration in g), [configuration])
        return [name for name in group if name in self.blocks or name == configuration]


def _logs(
    blocks: Mapping[int, Measured], baseline: Optional[Mapping[int, Measured]], figure: str
) -> list[float]:
    """Logarithms of each block, or of each pair of one round on one deployment, in order."""
    logs = []
    for turn, block in sorted(blocks.items()):
        value = block.figures.get(figure, 0.0)
        if baseline is not None:
            base = baseline.get(turn)
            if base is None or base.deployment != block.deployment:
                continue
            of_base = base.figures.get(figure, 0.0)
            value = value / of_base if of_base > 0 else 0.0
        if value > 0:
            logs.append(math.log(value))
    return logs


#: Number of a direction in a log -> its name.
_NAMES = {number: name for name, number in DIRECTIONS.items()}

#: Of one block, of which each may take memory: a day's at 10 ms.
_MOST_INTERVALS = 10_000_000

#: Direction -> number of the interval -> IOPS.
_Rates = dict[str, dict[int, float]]


@dataclass(frozen=True)
class Block:
    """IOPS and mean latency by direction, `warmup_s` seconds after the start left out.

    `series` is of both directions together, an entry for each interval of the log, warm-up
    included. `clat_ns_mean` is over all IOs; it is empty where a process left no log of it.
    """

    warmup_s: float
    iops: Mapping[str, float]
    series: tuple[float, ...] = ()
    clat_ns_mean: Mapping[str, float] = field(default_factory=dict)


def read_block(
    directory: Path,
    processes: Iterable[Mapping[str, Any]],
    interval_ms: int,
    warmup_s: float = 0.0,
    latency: bool = False,
) -> Optional[Block]:
    """The block whose files are in `directory`; None where a process left no log of its IOPS.

    `processes` are those of cell.json, `interval_ms` is what a line of their logs stands for.
    `warmup_s` is left out of every block of a workload, at most half of it.
    """
    folder = Folder(directory)
    logs = [
        (process_logs, _begun(folder, process, process_logs, interval_ms))
        for process in processes
        for process_logs in [_jobs(folder, process["logs"] or "", process["host"])]
    ]
    parts = [
        _by_interval((line for path in paths for line in _lines(path)), interval_ms, begun)
        for paths, begun in logs
    ]
    lengths = (max((max(of_name) + 1 for of_name in part.values()), default=0) for part in parts)
    length = min(lengths, default=0)
    if not 0 < length <= _MOST_INTERVALS:
        return None
    names = sorted({name for part in parts for name in part})
    rates = {
        name: [sum(part.get(name, {}).get(n, 0.0) for part in parts) for n in range(length)]
        for name in names
    }
    series = tuple(sum(values) for values in zip(*rates.values()))
    cut = min(round(warmup_s * 1000 / interval_ms), length // 2)
    iops = {name: sum(values[cut:]) / (length - cut) for name, values in rates.items()}
    means: dict[str, float] = {}
    if latency:
        means = _mean_latency(logs, interval_ms, range(cut, length))
    return Block(cut * interval_ms / 1000, iops, series, means)


def _jobs(folder: Folder, logs: str, host: str) -> list[Path]:
    """Return the logs of a process; none by names that lead out of the directory."""
    logs, host = map(glob.escape, (logs, host))
    try:
        folder.path(logs)
    except Malformed:
        return []
    return sorted(folder.root.glob(f"{logs}_iops.*.log.{host}"))


def _begun(
    folder: Folder, process: Mapping[str, Any], logs: Iterable[Path], interval_ms: int
) -> int:
    """When the first interval ended, by logs or output: fio writes no line of one without IO."""
    from cbt_crypto.results.readers.fio import parse_fio_json  # noqa: PLC0415 - --plan reads none

    first = min((at for path in logs for at, _, _ in _lines(path)), default=0)
    try:
        output = parse_fio_json(folder.read(process["json"]) or b"")
    except (KeyError, Malformed):
        return first
    runtime = max(1000 * side.runtime_s for job in output.jobs for side in job.sides)
    if output.printed_epoch_s is None or first < EPOCH_FROM_MS:
        return first
    silent = first - interval_ms - (1000 * output.printed_epoch_s - runtime)
    return first - interval_ms * round(silent / interval_ms) if 0 < silent < runtime else first


def _mean_latency(
    logs: Iterable[tuple[Iterable[Path], int]], interval_ms: int, counted: range
) -> dict[str, float]:
    """By direction, weighted by `logs`, those of the IOPS; nothing unless every job tells."""
    waited: dict[str, float] = {}
    ios: dict[str, float] = {}
    for path, begun in ((path, begun) for paths, begun in logs for path in paths):
        beside = path.with_name(path.name.replace("_iops.", "_clat.", 1))
        if not beside.is_file():
            return {}
        rates = _by_interval(_lines(path), interval_ms, begun)
        for name, means in _by_interval(_lines(beside), interval_ms, begun).items():
            for number, mean in means.items():
                rate = rates.get(name, {}).get(number, 0.0) if number in counted else 0.0
                waited[name] = waited.get(name, 0.0) + rate * mean
                ios[name] = ios.get(name, 0.0) + rate
    return {name: waited[name] / ios[name] for name in sorted(waited) if ios[name]}


def _by_interval(found: Iterable[tuple[int, float, str]], interval_ms: int, begun: int) -> _Rates:
    """The sums of values by the interval, of which the first one ended at `begun`."""
    rates: _Rates = {}
    for at, value, name in found:
        by_interval = rates.setdefault(name, {})
        number = min(max(round((at - begun) / interval_ms), -1), _MOST_INTERVALS)
        by_interval[number] = by_interval.get(number, 0.0) + value
    return rates


def _lines(path: Path) -> Iterable[tuple[int, float, str]]:
    """Time in ms, IOPS and direction of each whole line; none of a file that is no log."""
    with contextlib.suppress(Malformed):
        for at, value, direction in read_entries(path):
            if direction in _NAMES:
                yield at, float(value), _NAMES[direction]

"""How long a plan will take, from what an earlier archive, or a short pilot, tells."""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median, pvariance, variance
from typing import Any, Callable, Optional

from cbt_crypto.archive import folder
from cbt_crypto.archive.documents import CellDocument, Environment
from cbt_crypto.archive.files import Malformed
from cbt_crypto.archive.folder import Folder, beyond_the_file, steps_of
from cbt_crypto.cluster_overlays.base import Transition
from cbt_crypto.errors import UsageError
from cbt_crypto.plan.allocation import TENTH, Needed, Seen, needed, spreads_of
from cbt_crypto.plan.cells import Cell
from cbt_crypto.plan.order import load_key, partners, turns_on_each, wheres
from cbt_crypto.plan.steps import Deploy, Measure, Pending, Plan, Prefill, Step
from cbt_crypto.results.repetition import FEWEST_PAIRS, FIRST, boundary
from cbt_crypto.results.until import MARGIN, MeasureUntil, asked_of, read_block
from cbt_crypto.units import about, grouped, time_text

#: Seconds on a small cluster, where no archive says better.
_CHANGE_S = {
    Transition.NONE: 0.0,
    Transition.LIVE: 1.0,
    Transition.RESTART: 10.0,
    Transition.REBUILD: 30.0,
}
_AROUND_A_CELL_S = 4.0
_PREFILL_MIB_PER_S = 100.0
#: The longest time that a line of a log stands for.
_HOUR_MS = 3_600_000
#: What two loads must have in common for the spread of one to say something of the other.
_LIKENESS = ("op_size", "mode", "iodepth", "volumes_per_client")

#: What is not known of clusters where no archive has such.
_WHERE = {
    "beside": "groups of one cluster",
    "shared": "clusters that serve the baseline and others",
    "apart": "clusters of one configuration each",
}


def work_of(step: Step) -> Counter[object]:
    """A step as numbers that add up: deployments by their kind, MiB, cells, seconds of the file."""
    if isinstance(step, Deploy):
        return Counter({step.how: 1})
    if isinstance(step, Prefill):
        return Counter({"mib": step.mib})
    return Counter({"cells": 1, "run_s": step.cell.scenario.run_s})


@dataclass(frozen=True)
class Durations:
    """What steps take, in seconds."""

    steps: list[dict[str, Any]] = field(default_factory=list)
    #: MiB/s at which the first volumes are being filled; None before that is known.
    filling: Optional[float] = None

    def of(self, step: Step) -> float:
        """The median of such steps in the archive, else what a small cluster needs."""
        return self.of_work(work_of(step))

    def of_work(self, work: Counter[object]) -> float:
        """What the steps take that were added up."""
        deploying = sum(work[how] * each for how, each in self.deploying.items())
        filling = work["mib"] / self.fill_mib_per_s
        return deploying + filling + work["cells"] * self.around_a_cell + work["run_s"]

    def of_all(self, steps: Sequence[Step]) -> float:
        """What all these steps take, with the pauses before cells."""
        pauses = sum(step.pause_s for step in steps if isinstance(step, Measure))
        return sum(map(self.of, steps)) + pauses

    @cached_property
    def deploying(self) -> Mapping[Transition, float]:
        """What each way to another configuration takes."""
        usual = {
            how: folder.usual_seconds(self.steps, "deploy", how=how.name.lower())
            for how in _CHANGE_S
        }
        return {how: _CHANGE_S[how] if s is None else s for how, s in usual.items()}

    @cached_property
    def around_a_cell(self) -> float:
        """What a cell takes beyond its ramp and time."""
        seconds = [beyond_the_file(step) for step in self.steps if step.get("step") == "measure"]
        return float(median(seconds)) if seconds else _AROUND_A_CELL_S

    @cached_property
    def fill_mib_per_s(self) -> float:
        """At which volumes are filled."""
        return folder.usual_fill_rate(self.steps) or self.filling or _PREFILL_MIB_PER_S

    @cached_property
    def by_kind(self) -> Mapping[str, list[float]]:
        """What each kind of step took beyond what the file says."""
        return grouped(
            (f"{step.get('step')} {step.get('how')}", beyond_the_file(step)) for step in self.steps
        )

    def uncertainty(self, steps: Iterable[Step]) -> float:
        """Standard deviation of what all these steps take, beyond what the file says."""
        steps = list(steps)
        counts = Counter(_kind(step) for step in steps if not isinstance(step, Prefill))
        # Seconds of small volumes say nothing of large ones; their rate is all that is known.
        total = (_SEEN * sum(self.of(step) for step in steps if isinstance(step, Prefill))) ** 2
        for kind, count in counts.items():
            seen = self.by_kind.get(kind, ())
            if len(seen) > 1:
                total += variance(seen) * (count + count**2 / len(seen))
        return math.sqrt(total)


def _kind(step: Step) -> str:
    return f"deploy {step.how.name.lower()}" if isinstance(step, Deploy) else "measure None"


@dataclass(frozen=True)
class Prediction:
    """The plan's seconds with a range of 80 %, its rounds in words, deploying and filling apart."""

    seconds: float
    low: float
    high: float
    rounds: Mapping[str, str]
    deploying: float = 0.0
    filling: float = 0.0
    fill_mib_per_s: float = 0.0


class Earlier:
    """The finished cells of an earlier archive, and what they tell of a workload's spread."""

    def __init__(self, archive: Path) -> None:
        self.archive = archive
        self.durations = Durations(steps_of(archive))
        self._cells: list[tuple[Path, CellDocument]] = []
        for path in sorted(archive.glob("results/[0-9]*/id-*/cell.json")):
            with contextlib.suppress(Malformed):
                cell = Folder(path.parent).document(path.name, CellDocument)
                if cell is not None and cell.state == "finished":
                    self._cells.append((path.parent, cell))
        if not self._cells:
            raise UsageError(f"{archive}: holds no measured cell to predict from; name another")

    @cached_property
    def is_emulated(self) -> bool:
        """Whether processors there were emulated, so that times say nothing of hardware."""
        with contextlib.suppress(Malformed):
            known = Folder(self.archive).document("results/environment.json", Environment)
            return known is not None and any(host.emulated for host in known.hosts.values())
        return False

    @cached_property
    def seen(self) -> list[Seen]:
        """How percentages differed there from one deployment to the next; read once."""
        return spreads_of(self.archive)

    def seen_of(self, cell: Cell, *metrics: str) -> tuple[list[Seen], bool]:
        """What was seen of those figures under such a workload; else under all, and False."""
        seen = [one for one in self.seen if one.metric in metrics]
        alike = [one for one in seen if _like(cell, one.scenario, one.parameters)]
        return alike or seen, bool(alike)

    def spread(self, cell: Cell, block_s: int) -> Optional[float]:
        """Standard deviation of log ratios, by pairs under such a load or neighbouring blocks."""
        alike = [
            row for row in self._cells if _like(cell, row[1].scenario, row[1].parameters)
        ] or self._cells
        pairs = _pairs([measured for _, measured in alike])
        if len(pairs) >= 3:
            return math.sqrt(variance(pairs))
        differences = [d for path, measured in alike for d in _neighbours(path, measured, block_s)]
        return math.sqrt(pvariance(differences, 0.0)) if len(differences) >= 3 else None


def predict(plan: Plan, earlier: Earlier) -> Prediction:
    """Rounds of each workload that is measured until a precision, and seconds of all steps."""
    #: Load -> the fewest rounds that it may take, those expected, and the most.
    rounds: dict[str, tuple[int, int, int]] = {}
    shown: dict[str, str] = {}
    keys = {cell.path: load_key(cell) for cell in plan.cells}
    last: dict[str, int] = {}
    together = partners(plan.campaign, list(plan.campaign.configurations))
    least = FEWEST_PAIRS if any(len(group) > 1 for group in together) else 1
    for cell in plan.cells:
        last[keys[cell.path]] = max(cell.iteration, last.get(keys[cell.path], 0))
    for cell in plan.to_measure:
        until, key = cell.scenario.until, keys[cell.path]
        if until is not None and key not in rounds:
            turns = turns_on_each(plan.campaign, cell.scenario)
            if turns is not None:
                need = _of_deployments(plan, cell, earlier, turns, 1 + last[key])
                rounds[key] = need.rounds
                shown[load_words(cell)] = need.words
                continue
            spread = earlier.spread(cell, until.block)
            count = until.most if spread is None else rounds_needed(until, spread, least)
            rounds[key] = (count, count, count)
            shown[load_words(cell)] = _shown(until, count, spread)
    of = earlier.durations.of
    taken = [_taken(plan.steps, keys, rounds, end) for end in range(3)]
    low, usual, high = map(earlier.durations.of_all, taken)
    deviations = [earlier.durations.uncertainty(taken[end]) for end in (0, 2)]
    return Prediction(
        usual,
        max(low - TENTH * deviations[0], 0.0),
        high + TENTH * deviations[1],
        shown,
        deploying=sum(of(step) for step in taken[1] if isinstance(step, Deploy)),
        filling=sum(of(step) for step in taken[1] if isinstance(step, Prefill)),
        fill_mib_per_s=earlier.durations.fill_mib_per_s,
    )


def _of_deployments(plan: Plan, cell: Cell, earlier: Earlier, turns: int, most: int) -> Needed:
    """How many rounds that cell's workload takes where deployments are added, by what was seen."""
    campaign, until = plan.campaign, cell.scenario.until
    assert until is not None
    seen, is_alike = earlier.seen_of(cell, *asked_of(cell.parameters))
    places = wheres(campaign)
    found = [
        needed(
            [one.spread for one in ([s for s in seen if s.where == where] or seen)],
            until, turns, most, FIRST,
        )
        for where in sorted(places)
    ]  # fmt: skip
    need = max(found, key=lambda one: one.rounds[1])
    words = need.words
    if seen and not is_alike:
        words += f"; no such workload there, so from the noisiest of {len(seen)} others"
    lacking = places - {one.where for one in seen}
    if seen and lacking:
        words += f"; no spread there of {' and '.join(_WHERE[one] for one in sorted(lacking))}"
    return Needed(need.rounds, words)


def rounds_needed(until: MeasureUntil, spread: float, least: int = FEWEST_PAIRS) -> int:
    """The first number of pairs whose interval is narrow enough; the most where none is."""
    for count in range(max(until.fewest, least), until.most):
        if boundary(count) * spread / math.sqrt(count) <= MARGIN * until.half:
            return count
    return until.most


def _taken(
    steps: Iterable[Step],
    keys: Mapping[str, str],
    rounds: Mapping[str, tuple[int, int, int]],
    end: int,
) -> list[Step]:
    """The steps that `rounds` of each workload take; `keys` has each cell's workload by path."""

    def is_needed(cell: Cell) -> bool:
        counts = rounds.get(keys[cell.path])
        return counts is None or cell.iteration < counts[end]

    taken: list[Step] = []
    pending = Pending()
    for step in steps:
        if not isinstance(step, Measure):
            pending.add(step)
        elif is_needed(step.cell):
            taken += [*pending.take(is_needed), step]
    return taken


def _shown(until: MeasureUntil, rounds: int, spread: Optional[float]) -> str:
    if spread is None:
        return f"{rounds} rounds at most; its spread is not known"
    reached = boundary(rounds) * spread / math.sqrt(rounds)
    if reached <= until.half:
        return f"+-{until.precision} after about {rounds} rounds of {until.block} s"
    return f"not +-{until.precision}, but about +-{100 * reached:.2g} % after all {rounds} rounds"


def in_words(prediction: Prediction, archive: Path) -> str:
    """The prediction for people."""
    usual, low, high = map(about, (prediction.seconds, prediction.low, prediction.high))
    lines = [f"  {load}: {text}" for load, text in prediction.rounds.items()]
    parts = f"{about(prediction.deploying)} of it deploying, {about(prediction.filling)} "
    first = f"Judging by {archive}, it takes about {usual}, {low} to {high} with a chance of 80 %; "
    first += f"{parts}filling volumes, at {prediction.fill_mib_per_s:.3g} MiB/s."
    return "\n".join((first, *lines))


def noted(prediction: Prediction, archive: Path) -> dict[str, Any]:
    """What the archive of a campaign keeps of it, so that its report can say how it came out."""
    seconds = {name: getattr(prediction, name) for name in ("seconds", "low", "high")}
    return {"like": archive.name, **{name: round(each, 1) for name, each in seconds.items()}}


def load_words(cell: Cell) -> str:
    """A cell's label without its configuration and round."""
    scenario, _, rest = cell.label.split(" / ", 2)
    return f"{scenario} / {rest.partition(' iteration ')[0]}"


def _like(cell: Cell, scenario: object, other: Mapping[str, Any]) -> bool:
    parameters = cell.parameters
    same = all(parameters.get(key) == other.get(key) for key in _LIKENESS)
    return same and scenario == cell.scenario.name


def _pairs(cells: Iterable[CellDocument]) -> list[float]:
    by_round: dict[Any, dict[str, float]] = {}
    for cell in cells:
        total = sum(cell.block.iops.values()) if cell.block else 0.0
        if 0 < total < math.inf and cell.deployment:
            key = (cell.deployment, cell.iteration, str(cell.parameters))
            by_round.setdefault(key, {})[cell.configuration] = math.log(total)
    ratios: dict[str, list[float]] = {}
    for logs in by_round.values():
        names = sorted(logs)
        for name in names[1:]:
            ratios.setdefault(name, []).append(logs[name] - logs[names[0]])
    means = {name: sum(values) / len(values) for name, values in ratios.items()}
    return [value - means[name] for name, values in ratios.items() for value in values]


def _neighbours(directory: Path, cell: CellDocument, block_s: int) -> list[float]:
    interval_ms = cell.parameters.get("log_avg_msec", 1000)
    if not isinstance(interval_ms, int) or not 0 < interval_ms <= _HOUR_MS:
        return []
    processes = [process.model_dump(by_alias=True) for process in cell.processes]
    block = read_block(directory, processes, interval_ms)
    if block is None:
        return []
    length = max(1, round(block_s * 1000 / interval_ms))
    series = block.series[round(block.warmup_s * 1000 / interval_ms) :]
    means = [
        sum(series[at : at + length]) / length for at in range(0, len(series) - length + 1, length)
    ]
    logs = [math.log(mean) for mean in means if mean > 0]
    return [after - before for before, after in zip(logs, logs[1:])]


#: What deployments and prefills may differ from a guess, and from what was seen, as a part of it.
_GUESSED, _SEEN = 0.5, 0.2
#: Steps of a kind that must have been seen before their own spread is believed.
_ENOUGH = 3
#: From this uncertainty on, in seconds, the time left is a range of hours.
_HOURS = 5400


@dataclass(frozen=True)
class Left:
    """Seconds that are left, give or take `uncertainty` seconds."""

    seconds: float
    uncertainty: float

    def __str__(self) -> str:
        return f"{time_text(self.seconds)} left {self.give_or_take}"

    @property
    def give_or_take(self) -> str:
        """`±4 min`, or from and to where that is hours: `(10 to 38 h)`."""
        if self.uncertainty < 90:
            return f"±{max(1, round(self.uncertainty))} s"
        if self.uncertainty < _HOURS:
            return f"±{round(self.uncertainty / 60)} min"
        low, high = self.seconds - self.uncertainty, self.seconds + self.uncertainty
        return f"({max(low, 0) / 3600:.0f} to {high / 3600:.0f} h)"


class Forecast:
    """Time left of a plan, by the file's times and its steps so far, preparation included."""

    def __init__(
        self, plan: Plan, archive: Optional[Path] = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._archive = archive
        self._now = now
        #: The work up to each cell that is left, with its own; then that behind all cells.
        self._cells: deque[Counter[object]] = deque([Counter()])
        for step in plan.steps:
            self._cells[-1].update(work_of(step))
            if isinstance(step, Measure):
                self._cells[-1].update({"pause_s": step.pause_s})
                self._cells.append(Counter())
        # Summed once: what was done is taken off, so that no cell costs more in a longer plan.
        self._all = sum(self._cells, Counter[object]())
        self._since = now()
        self._filling: Optional[float] = None
        self.learn()

    def filling(self, mib_per_s: float) -> None:
        """Volumes are being filled at that rate; nothing is known of fillings that ended."""
        self._filling = mib_per_s
        self.learn()

    def cell_done(self) -> None:
        """The first cell that was left is measured, failed, or not needed."""
        if len(self._cells) > 1:
            self._all.subtract(self._cells.popleft())
        self._since = self._now()
        self.learn()

    def learn(self) -> None:
        """Take in how long the steps took that have ended since."""
        steps = [] if self._archive is None else steps_of(self._archive)
        self._durations = Durations(steps, self._filling)

    def left(self) -> Left:
        """What is left from this moment on."""
        next_s, all_s = (
            self._durations.of_work(work) + work["pause_s"] for work in (self._cells[0], self._all)
        )
        passed = min(self._now() - self._since, next_s)
        around = all_s - self._all["pause_s"] - self._all["run_s"]
        return Left(all_s - passed, self._share() * max(0.0, around))

    def _share(self) -> float:
        """The part by which what the file does not say, such as a deployment, may be wrong."""
        by_kind = self._durations.by_kind
        if not by_kind:
            return _GUESSED
        shares = [_spread(ratios) for ratios in by_kind.values() if len(ratios) >= _ENOUGH]
        return max([_SEEN, *shares])


def _spread(values: list[float]) -> float:
    middle = median(values)
    return min(1.0, median(abs(v - middle) for v in values) / middle) if middle > 0 else 0.0

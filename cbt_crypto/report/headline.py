"""The answer in a few sentences, which every output begins with, and what limits it."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Optional

from cbt_crypto.archive.documents import CHANGED, UPGRADED
from cbt_crypto.report import text_of, wording
from cbt_crypto.report.figures.doubts import is_control
from cbt_crypto.report.figures.factors import APART
from cbt_crypto.report.figures.metric import BY_KEY, FROM_MEMORY, Metric
from cbt_crypto.report.model import Comparison, ControlState, Report, ReportCell, Section, Table
from cbt_crypto.report.why import limits_of_rows
from cbt_crypto.report.wording import mapping, roles_of
from cbt_crypto.results.cell.run import Run
from cbt_crypto.units import counted, grouped, whole

#: Names, or workloads, that are told of; the others are counted.
_MOST = 3
#: A loss known to be less than this, in percent, is an answer, and a control that is known to be
#: no further off agrees; else it is unclear.
_LITTLE = 10.0
#: From this share of reads on they are said to be from memory, in percent.
_FROM_MEMORY = 50.0
#: How a warning begins that limits what the figures are worth.
_THROTTLED = "processors throttled"
_SATURATED = ("processors saturated", "network saturated")


@dataclass(frozen=True)
class _Row:
    name: str
    load: str
    iops: Comparison
    why: tuple[str, ...] = ()

    @property
    def lost(self) -> float:
        return 100 - self.iops.percent


def headline(report: Report, archives: Mapping[Any, Report]) -> tuple[str, ...]:
    """Three to six sentences: differences, the biggest first, what costs nothing, the control.

    `archives`, where several are compared, have a control each.
    """
    rows = [row for row in _rows(report) if row.iops.differs is not None]
    # An archive that is compared has rows of its own for each workload.
    what = "rows" if any(wording.ARCHIVE in t.dimensions for t in report.tables) else "workloads"
    sentences = [*_differences(rows, what), *_undecided(rows)]
    if not rows:
        sentences = [text_of.verdicts(report)]
    tested = {f" of {name}": part for name, part in archives.items()} or {"": report}
    controls = [said for of, part in tested.items() for said in _control(part, of)]
    told = [*sentences, *_together(report), *_growth(report)]
    # What is not to be believed is not read first.
    states = {part.control().state for part in tested.values()}
    is_void = not states.isdisjoint(("differs", "too noisy"))
    first = [*_emulated(report), *(controls if is_void else ())]
    return (*first, *told, *(() if is_void else controls), *_proved(report))


def _emulated(report: Report) -> Iterator[str]:
    if note := report.emulated_note():
        yield f"{note[:1].upper()}{note[1:]}."


def _together(report: Report) -> Iterator[str]:
    """What two levels of a matrix do to one another, of the workloads where that is shown first."""
    all_of = [(effect, load_of(table, section, report.by_scenario))
              for table in report.tables for section in table.sections
              for effect in section.effects
              if effect.other == APART and effect.iops.differs is not None]  # fmt: skip
    for effect, load in sorted(all_of, key=lambda one: not one[0].iops.differs)[:_MOST]:
        iops = effect.iops
        none = "" if iops.differs else "no interaction is shown: "
        yield (
            f"{effect.name}: {none}{load} reach {iops.percent:.0f} % of what both effects, "
            f"multiplied, would give ({text_of.interval(iops, loss=False)})."
        )


#: From so many percent on a control that carries no verdict is worth a sentence.
_CONTROL_OFF = 5.0
#: Off by more, a control does not agree: it is not known.
_CONTROL_NOISY = 25.0

#: Dimensions of which more may do more.
_GROWING = ("clients", "volumes_per_client", "iodepth")


def _growth(report: Report) -> Iterator[str]:
    """From which value on throughput is not shown to grow any more, where rows are such values."""
    if report.baseline.dimension not in _GROWING:
        return
    sections = [(table, section) for table in report.tables for section in table.sections]
    for table, section in sections[:_MOST]:
        numbered = (cell for cell in section.cells if whole(cell.name) is not None)
        rows = sorted(numbered, key=lambda cell: whole(cell.name) or 0)
        steps = list(_steps(rows, section))
        grows = [step.differs and step.percent > 100 for step in steps if step is not None]
        if not rows or not rows[0].is_baseline or len(grows) < len(rows) - 1:
            continue
        last = max((n + 1 for n, more in enumerate(grows) if more), default=0)
        load = load_of(table, section, report.by_scenario)
        said = f"{load} grow significantly up to {report.named(rows[last].name)}"
        if last + 1 < len(rows):
            step = steps[last]
            assert step is not None
            said += (f"; {rows[last + 1].name} did {step.percent:.0f} % of that "
                     f"({text_of.interval(step, loss=False)})")  # fmt: skip
        yield f"{said}."


def _steps(rows: Sequence[ReportCell], section: Section) -> Iterator[Optional[Comparison]]:
    """Each row in percent of the one before it; None where that carries no verdict."""
    pairs = {(pair.name, pair.other): pair.iops for pair in section.pairs}
    for before, row in zip(rows, rows[1:]):
        step = row.comparisons.get("iops") if before.is_baseline else (
            pairs.get((row.name, before.name))
        )  # fmt: skip
        yield None if step is None or step.differs is None else step


def caveats(report: Report, metric: Metric = BY_KEY["iops"]) -> tuple[str, ...]:
    """What must be read beside any figure: the control, the proofs, and what limits the answer."""
    of = "" if metric.key == "iops" else f" of {metric.label}"
    said = (_control(report, of, metric.key), _proved(report), _emulated(report), report.limits)
    return tuple(chain.from_iterable(said))


def _rows(report: Report) -> Iterator[_Row]:
    controls = [cell for cell in report.cells if is_control(report, cell)]
    differs = report.control("osd_cpu_us_per_io").state == "differs"
    is_doubtful = differs or any(cell.why for cell in controls)
    for table in report.tables:
        if table.dimensions.get("rate", "max") == "max":
            for section, cell in table.rows:
                iops = cell.comparisons.get("iops")
                if iops is not None and not cell.is_baseline and not is_control(report, cell):
                    load = load_of(table, section, report.by_scenario)
                    yield _Row(cell.in_legend, load, iops, () if is_doubtful else cell.why)


def load_of(table: Table, section: Section, scenarios: Collection[object]) -> str:
    """`4 KiB random reads`, and what else tells it from the others of these `scenarios`."""
    size = "" if table.op_size is None else f"{wording.op_size(table.op_size)} "
    placed = ("scenario", "op_size", "mode")
    more = [wording.value_of(*one) for one in table.dimensions.items() if one[0] not in placed]
    more = [table.scenario, *more] if len(scenarios) > 1 else more
    apart = f" ({', '.join(more)})" if more else ""
    return f"{size}{section.label}{apart}"


def _differences(rows: Sequence[_Row], what: str) -> Iterator[str]:
    """A sentence for each row's name, with its greatest difference; the others are counted."""
    shown = [row for row in rows if row.iops.differs]
    shown.sort(key=lambda row: -abs(math.log(row.iops.percent / 100)))
    by_name = grouped(((row.name, row.lost > 0), row) for row in shown)
    first, others = list(by_name.values())[:_MOST], list(by_name.values())[_MOST:]
    for alike in first:
        asked = sum(row.name == alike[0].name for row in rows)
        yield f"{alike[0].name} {_difference(alike, f'{asked} {what}')}."
    rest = list(chain.from_iterable(others))
    if rest:
        costs = sum(row.lost > 0 for row in rest)
        gains = len(rest) - costs
        lost = "1 loss" if costs == 1 else f"{costs} losses" if costs else ""
        words = filter(None, (lost, counted(gains, "gain") if gains else ""))
        yield f"Also significant: {' and '.join(words)} in other rows."


def _difference(alike: Sequence[_Row], asked: str) -> str:
    """What one or several differences of a name are, the greatest first in `alike`."""
    row = alike[0]
    assert row.iops.low is not None and row.iops.high is not None
    ends = sorted((abs(100 - row.iops.low), abs(100 - row.iops.high)))
    verb, joint = ("costs", "of") if row.lost > 0 else ("adds", "to")
    most = f"{_amount(row)} % ({ends[0]:.1f} to {ends[1]:.1f}) {joint} {row.load}"
    if len(alike) == 1:
        return f"{verb} {most}"
    spread = list(dict.fromkeys((_amount(alike[-1]), _amount(row))))
    which = "the most" if spread[1:] else "such as"
    return f"{verb} {' to '.join(spread)} % in {len(alike)} of {asked}, {which} {most}"


def _amount(row: _Row) -> str:
    return f"{abs(row.lost):.{0 if abs(row.lost) >= _LITTLE else 1}f}"


def _undecided(rows: Sequence[_Row]) -> Iterator[str]:
    """A sentence for rows that cost little (with 97.5 %), and one where too little is known."""
    little = [row for row in rows if not row.iops.differs and _is_little(row)]
    unclear = [row for row in rows if not row.iops.differs and not _is_little(row)]
    for words, of in (("No cost found for", little), ("Unclear, measure more rounds for", unclear)):
        each = [
            f"{row.name}, {row.load}: "
            f"{f'less than {_most_lost(row):.1f} %' if of is little else _range(row.iops)}"
            for row in of[:_MOST]
        ]
        if of:
            more = f"; and {len(of) - _MOST} more" if len(of) > _MOST else ""
            yield f"{words} {'; '.join(each)}{more}."
    for row in unclear[:_MOST]:
        if row.why:
            yield f"A part of its CPU time is sure ({row.name}, {row.load}): {row.why[0]}"


def _is_little(row: _Row) -> bool:
    """Whether little may be lost, or gained: a row that may gain much is merely uncertain."""
    high = row.iops.high
    return _most_lost(row) <= _LITTLE and high is not None and high - 100 <= _LITTLE


def _most_lost(row: _Row) -> float:
    return 100.0 if row.iops.low is None else max(100 - row.iops.low, 0.1)


def _range(iops: Comparison) -> str:
    if iops.low is None or iops.high is None or iops.says_nothing:
        return wording.TOO_NOISY
    lost, gained = 100 - iops.low, iops.high - 100
    if lost >= 0 and gained >= 0:
        return f"{lost:.1f} % lost to {gained:.1f} % gained"
    ends, word = ((-gained, lost), "lost") if lost > 0 else ((-lost, gained), "gained")
    return f"perhaps {ends[0]:.1f} to {ends[1]:.1f} % {word}, perhaps chance"


def control_states(tables: Iterable[Table], control: Optional[str]) -> dict[str, ControlState]:
    """Figure -> what the rows of that name say of it; a figure that only others have is missing."""
    found: dict[str, list[Comparison]] = {}
    if control is None:
        return {}
    for cell in chain.from_iterable(table.cells for table in tables):
        for key, compared in cell.comparisons.items():
            found.setdefault(key, []).extend([compared] if cell.name == control else [])
    return {key: state_of(controls) for key, controls in found.items()}


def state_of(controls: Sequence[Comparison]) -> ControlState:
    """What the controls of one figure say, in all workloads."""
    if not controls:
        return ControlState("missing")
    off = [one.percent - 100 for one in controls if one.differs]
    if off:
        return ControlState("differs", max(0, -min(off)), max(0, *off))
    untold = [one.percent - 100 for one in controls if one.differs is None]
    worst = max(untold, key=abs, default=0.0)
    known = [(one.low, one.high) for one in controls if one.differs is not None]
    ends = [(low, high) for low, high in known if low is not None and high is not None]
    if not ends or abs(worst) >= _CONTROL_OFF:
        return ControlState("no verdict", max(-worst, 0), max(worst, 0))
    ends += [(100 + off, 100 + off) for off in untold]
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    # Both ways, as baseline and control might be swapped: IOPS and latencies are judged alike.
    most = max(high, 1e4 / max(low, 1e-9), 101)  # `low` of a stranger's may be 0
    if most - 100 <= _CONTROL_NOISY:
        return ControlState("agrees" if most - 100 <= _LITTLE else "open", most - 100, most - 100)
    return ControlState("too noisy", 100 - 1e4 / most, most - 100)


def fault_of(control: ControlState, key: str = "iops") -> str:
    """What makes verdicts beside such a control worth nothing, or little; empty for another."""
    lost, gained = control.loss_percent, control.gain_percent
    less, more = ("losses", "gains") if key == "iops" else ("falls", "rises")
    chance = f"{less} of up to {lost:.0f} %, and {more} of up to {gained:.0f} %, may be chance"
    again = f"the baseline, measured again, came out at {100 + gained - lost:.0f} %"
    return {
        "differs": f"DIFFERS by {max(lost, gained):.1f} % from the baseline that it repeats",
        "missing": "missing, so nothing says which differences are chance",
        "too noisy": f"too noisy: {chance}",
        "no verdict": f"without a verdict: {again}",
    }.get(control.state, "")


def forbids(control: ControlState, compared: Comparison, key: str = "iops") -> bool:
    """Whether a control allows no verdict on a difference; too noisy, it allows great ones."""
    is_noisy = control.state == "too noisy"
    return control.covers(compared) if is_noisy else bool(fault_of(control, key))


def _control(report: Report, of: str = "", key: str = "iops") -> Iterator[str]:
    control = report.control(key)
    fault, most = fault_of(control, key), control.loss_percent
    few = (cell.withheld.get(key) for cell in report.cells if is_control(report, cell))
    why = next(filter(None, few), None)
    said = {
        "differs": f"{fault}; do not trust {f'the verdicts{of}' if of else 'these verdicts'}",
        "missing": f"{why}; measure longer" if why else f"{fault}; run the campaign again",
        "too noisy": f"{fault}; measure more rounds, or longer",
        "agrees": f"agrees within {most:.0f} %",
        "open": f"no difference found, but one of up to {most:.0f} % would not show: do not rely "
        "on smaller ones. Measure more rounds, or longer",
        "no verdict": f"{fault}; run the campaign again",
    }.get(control.state)
    # Where nothing was repeated, no row has one either.
    is_far = max(most, control.gain_percent) >= _CONTROL_OFF
    if said and (control.state != "no verdict" or report.verdicts or is_far):
        yield f"Control{of}: {said}."
    elif not control.state and report.verdicts and not report.control_states:
        yield f"No control{of}: nothing tests whether the baseline repeats itself."


def _proved(report: Report) -> Iterator[str]:
    # Archives of a comparison may have cells at the same path, or the same ones.
    runs = {run.identity: run for cell in report.cells for run in cell.runs}
    # One that failed before its proof counts: it would not be missed.
    proofs = [run.proof for run in runs.values() if not run.is_missing]
    words = []
    if any(proofs):
        proved = sum(proof is not None and proof.proved for proof in proofs)
        left = f", {missing} not measured" if (missing := len(runs) - len(proofs)) else ""
        words.append(f"{proved} of {len(proofs)} cells proved{left}")
    osds = _osd_hosts(report.environment)
    if osds and not all(table.is_of_drives for table in report.tables):
        said = (_counted_hosts(report.environment), *versions(report.environment))
        words.append(", ".join(said))
    if words:
        yield f"{'; '.join(words)}."


def _osd_hosts(environment: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    hosts = mapping(environment.get("hosts")).items()
    return {name: mapping(about) for name, about in hosts if "osds" in roles_of(mapping(about))}


def _counted_hosts(environment: Mapping[str, Any]) -> str:
    """How many OSD hosts; of archives that are compared, in each: they may be the same ones."""
    # A name with an archive's before it is `archive: host`.
    by_archive = Counter(name.rpartition(": ")[0] for name in _osd_hosts(environment))
    counts = {name: counted(count, "OSD host") for name, count in by_archive.items()}
    if len(counts) < 2:
        return "".join(counts.values())
    if len(set(counts.values())) == 1:
        return f"{next(iter(counts.values()))} in each archive"
    return ", ".join(f"{count} in {name}" for name, count in counts.items())


def versions(environment: Mapping[str, Any]) -> Iterator[str]:
    """`Ceph 18.2.7` and `kernel 6.12.48`, each where all OSD hosts say the same."""
    hosts = _osd_hosts(environment).values()
    for key in ("ceph", "kernel"):
        said = {_versions_of(about, key) for about in hosts}
        if len(said) == 1 and (values := said.pop()):
            yield f"{_NAMES[key]} {' and '.join(values)}"


#: The others' versions say whose they are.
_NAMES = {"ceph": "Ceph", "kernel": "kernel", "cbt-crypto": "cbt-crypto"}


def _versions_of(about: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """The versions of one program that a host had, the oldest first: one, but after an upgrade."""
    before = about.get("before")
    then = map(mapping, before if isinstance(before, (list, tuple)) else ())
    now = {**about, **mapping(about.get("versions"))}
    said = [one for one in (each.get(key) for each in (*then, now)) if isinstance(one, str)]
    if key == "ceph":
        said = [match[1] for one in said if (match := re.match(r"ceph version ([\w.]+)", one))]
    return tuple(dict.fromkeys(one.partition(" flags")[0] for one in said))


#: After what was changed between cells.
_COMPARED = "cells of before and after are compared. Measure the older ones again with --again."


def _rebuilt(cells: Sequence[ReportCell]) -> Iterator[str]:
    """Rows whose rounds ran several builds of Ceph, which may all say one version."""
    mixed = [cell for cell in cells if any(len(ids) > 1 for ids in _builds(cell.runs).values())]
    if mixed:
        rows = f"{len(mixed)} of {len(cells)} rows"
        yield f"Ceph was built anew between the rounds of {rows}: {_COMPARED}"


def _builds(runs: Sequence[Run]) -> dict[tuple[str, str], set[str]]:
    """The build ids of each daemon's program and libraries."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for proof in (run.proof for run in runs if run.proof):
        for overlay in (one for one in proof.overlays if one.overlay == "ceph_build"):
            for daemon, about in mapping(mapping(overlay.evidence).get("daemons")).items():
                for file, build in mapping(mapping(about).get("builds")).items():
                    found[daemon, file].add(str(build))
    return found


def _upgraded(hosts: Sequence[Any]) -> Iterator[str]:
    said = [
        f"{_NAMES.get(key, '')} {' and '.join(dict.fromkeys(chain(*mixed)))}".strip()
        for key in UPGRADED
        if (mixed := [v for v in (_versions_of(mapping(h), key) for h in hosts) if len(v) > 1])
    ]
    if said:
        upgraded = f"Measured with {'; '.join(said)}: the campaign went on after an upgrade"
        yield f"{upgraded}, and {_COMPARED}"
    before = [mapping(about).get("before") for about in hosts]
    then = list(map(mapping, chain(*(b for b in before if isinstance(b, (list, tuple))))))
    if changed := [name for key, name in CHANGED.items() if any(key in one for one in then)]:
        were_changed = f"The hosts were changed ({', '.join(changed)})"
        yield f"{were_changed} before the campaign went on; {_COMPARED}"


def differing_figures(report: Report) -> list[str]:
    """Keys of figures in which the control differs; equal IOPS say nothing of CPU times."""
    found = (key for key, control in report.control_states.items() if control.state == "differs")
    return [key for key in found if key != "bandwidth_bytes_per_s"]


def limits(report: Report) -> Iterator[str]:
    """What limits the answer's validity; nothing where nothing is known to."""
    if others := [BY_KEY[key].label for key in differing_figures(report) if key != "iops"]:
        more = others[_MOST:] and [f"{len(others[_MOST:])} more"]
        named = ", ".join([*others[:_MOST], *more])
        yield f"The control differs in {named}: trust no difference in these figures."
    hosts = mapping(report.environment.get("hosts"))
    yield from _upgraded(list(hosts.values()))
    if any(mapping(about).get("osds_on_files") for about in hosts.values()):
        yield "OSDs are on files, not on drives."
    if any("clients" in roles_of(about) for about in _osd_hosts(report.environment).values()):
        yield "Clients ran on OSD hosts, and took CPU time from the OSDs."
    cells = [cell for cell in report.cells if cell.state != "missing"]
    yield from _rebuilt(cells)
    failed = [cell for cell in cells if cell.state == "failed"]
    if failed:
        yield f"{len(failed)} of {len(cells)} rows failed: {failed[0].reason}."
    reads = [cell for cell in cells if cell.direction == "read"]
    if cached := sum(cell.figures.get(FROM_MEMORY, 0.0) >= _FROM_MEMORY for cell in reads):
        yield f"Most reads came from memory in {cached} of {counted(len(reads), 'row')} of reads."
    yield from limits_of_rows([cell.limit for cell in cells])
    warned = [
        sum(any(w.startswith(words) for w in cell.warnings) for cell in cells)
        for words in (_SATURATED, _THROTTLED)
    ]
    if warned[0] and not any(cell.limit for cell in cells):
        yield f"Processors or network were saturated in {warned[0]} of {len(cells)} rows."
    if warned[1]:
        yield f"A hypervisor throttled processors in {warned[1]} of {len(cells)} rows."

"""Archives beside one another: places, before and after, and one workload over many dates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from itertools import chain
from typing import Any, Optional

from cbt_crypto.report import text_of, wording
from cbt_crypto.report.figures.doubts import CONTROL
from cbt_crypto.report.figures.group import varied
from cbt_crypto.report.figures.repeats import StandardError, differing
from cbt_crypto.report.headline import caveats, forbids, load_of, versions
from cbt_crypto.report.model import Comparison, ControlState, Report, ReportCell
from cbt_crypto.report.wording import ARCHIVE, Grid, mapping
from cbt_crypto.results.cell.run import Run
from cbt_crypto.units import counted, grouped


def ratio(one: Optional[Comparison], other: Optional[Comparison]) -> Optional[Comparison]:
    """A percent of one archive in percent of another archive's (Welch's test).

    None where one of them is unknown; without an interval where one of them has no verdict.
    """
    if one is None or other is None or other.percent <= 0:
        return None
    compared = Comparison(100 * one.percent / other.percent)
    errors = [
        max(each.errors, key=lambda error: error.half) for each in (one, other) if each.errors
    ]
    is_judged = one.p is not None and other.p is not None and len(errors) == 2
    is_known = is_judged and 0 < compared.percent < math.inf
    if not is_known or any(error.is_sequence for error in errors):
        return compared
    squares = [error.error * error.error for error in errors]
    parts = (square * square / error.degrees for square, error in zip(squares, errors))
    whole = sum(squares)
    together = StandardError(math.sqrt(whole), whole * whole / (sum(parts) or 1.0))
    times = math.exp(min(together.half, 50.0))
    return replace(
        compared,
        low=compared.percent / times,
        high=compared.percent * times,
        p=min(1.0, together.p(math.log(compared.percent / 100)) * max(one.looks, other.looks)),
        errors=(together,),
    )


def _change(
    one: ReportCell, other: ReportCell, controls: Iterable[ControlState]
) -> Optional[Comparison]:
    """The `ratio` of throughput; without a verdict where one archive's control allows none."""
    change = ratio(one.comparisons.get("iops"), other.comparisons.get("iops"))
    if change is None or not any(forbids(control, change) for control in controls):
        return change
    return replace(change, p=None)


def _judged(found: Mapping[Any, Optional[Comparison]]) -> dict[Any, Optional[Comparison]]:
    p_values = {key: one.p for key, one in found.items() if one is not None and one.p is not None}
    shown = differing(p_values)
    return {
        key: one if one is None else replace(one, differs=shown.get(key))
        for key, one in found.items()
    }


@dataclass(frozen=True)
class _Row:
    load: str
    name: str
    cells: Mapping[str, ReportCell]

    @property
    def is_baseline(self) -> bool:
        return any(cell.is_baseline for cell in self.cells.values())


#: Not what is measured, but for how long.
LENGTHS = {"time", "ramp"}


def _rows(reports: Iterable[tuple[str, Report]], apart: str = "") -> list[_Row]:
    """Rows of the same workload together; `apart` is the dimension that tells archives apart."""
    named = [(name, report, table) for name, report in reports for table in report.tables]
    told = ((c.dimensions, r.baseline.dimension) for _, r, table in named for c in table.cells)
    apart_by = {scenario: {*names} - LENGTHS for scenario, names in varied(told).items()}
    found: dict[tuple[str, str], dict[str, ReportCell]] = {}
    for name, _, table in named:
        for section in table.sections:
            # A parameter may be the same in each archive, and another one in the next.
            rest = {
                key: value
                for key, value in section.cells[0].dimensions.items()
                if key != apart and key in {*table.dimensions, *apart_by[table.scenario]}
            }
            load = load_of(replace(table, dimensions=rest), section, apart_by)
            for cell in section.cells:
                of_row = found.setdefault((load, cell.in_legend), {})
                of_row[str(table.dimensions.get(apart, name))] = cell
    return [_Row(load, name, cells) for (load, name), cells in found.items()]


def _percent(cell: Optional[ReportCell], loss: bool) -> str:
    """`81.24* (80.1 to 82.4)`, the IOPS of a baseline, or why there is neither."""
    if cell is None or cell.state != "measured":
        return "-" if cell is None else cell.state
    if cell.is_baseline:
        return f"{wording.number(cell.figures.get('iops'))} IOPS"
    iops = cell.comparisons.get("iops")
    return "-" if iops is None else text_of.in_percent(iops, loss)


def side_by_side(report: Report) -> list[Grid]:
    """Percents of several archives side by side, and what their hosts differ in."""
    places = _places(report)
    if len(places) < 2:
        return []
    first, *others = places
    rows, between = _between(report, places)
    by_load: dict[str, list[list[str]]] = {}
    for row in rows:
        texts = [_percent(row.cells.get(place), report.options.loss) for place in places]
        for place in others:
            compared = between.get((row.load, row.name, place))
            texts.append("-" if compared is None else text_of.in_percent(compared))
        by_load.setdefault(row.load, []).append([row.name, *texts])
    what = "percent lost" if report.options.loss else "percent of the baseline"
    title = f"Side by side: {what} in each archive"
    left = "left in {}, in percent of {}" if report.options.loss else "{} in percent of {}"
    heads = ["", *places, *(left.format(place, first) for place in others)]
    note = (
        "* in the last columns: the archives differ by more than chance, at 95 % over all of them."
    )
    return [Grid(title, heads, list(by_load.items()), (note,)), *_hardware(report, places)]


def _places(report: Report) -> list[str]:
    named = (table.dimensions.get(ARCHIVE) for table in report.tables)
    return list(dict.fromkeys(str(name) for name in named if name is not None))


def _between(
    report: Report, places: Sequence[str]
) -> tuple[list[_Row], dict[tuple[str, str, str], Optional[Comparison]]]:
    """Rows, and how each archive's percent compares with the first one's; IOPS of the baseline."""
    rows = _rows([("", report)], ARCHIVE)
    found: dict[tuple[str, str, str], Optional[Comparison]] = {}
    for row in rows:
        for place in places[1:]:
            one, other = row.cells.get(place), row.cells.get(places[0])
            if one is None or other is None:
                continue
            key = (row.load, row.name, place)
            if row.is_baseline:
                iops = [cell.figures.get("iops") or 0.0 for cell in (one, other)]
                found[key] = Comparison(100 * iops[0] / iops[1]) if all(iops) else None
            else:
                controls = (report.controls.get(n, ControlState()) for n in (places[0], place))
                found[key] = _change(one, other, controls)
    return rows, _judged(found)


def _hardware(report: Report, places: Sequence[str]) -> Iterator[Grid]:
    """What the hosts of the archives differ in; values that differ within an archive are listed."""
    named = mapping(report.environment.get("hosts")).items()
    found: dict[str, dict[str, list[str]]] = {}
    ciphers: dict[str, dict[str, float]] = {}
    for place in places:
        own = {str(host): about for host, about in named if str(host).startswith(f"{place}: ")}
        parts = [(part.what, part.value) for part in wording.hardware({"hosts": own})]
        for what, value in dict.fromkeys([*_versions(own), *parts]):
            found.setdefault(what, {}).setdefault(place, []).append(value)
        for cipher, speed in _ciphers(own).items():
            ciphers.setdefault(cipher, {})[place] = speed
    for cipher, speeds in ciphers.items():
        if max(speeds.values()) > _FASTER * min(speeds.values()):
            shown = {place: [wording.number(speed)] for place, speed in speeds.items()}
            found[f"measured speed of {cipher} (MiB/s)"] = shown
    rows = [
        [what, *("; ".join(sorted(of.get(place, ["-"]))) for place in places)]
        for what, of in found.items()
    ]
    unlike = [row for row in rows if len(set(row[1:])) > 1]
    alike = [row[0] for row in rows if len(set(row[1:])) == 1]
    notes = [f"Alike: {', '.join(alike)}."] if alike else []
    if rows:
        title = "Hosts differ in" if unlike else "Hardware and versions are alike"
        yield Grid(title, ["", *places], [("", unlike)], notes, len(places) + 1)


#: Two measurements of one processor's ciphers differ by less.
_FASTER = 1.25


def _ciphers(hosts: Mapping[str, Any]) -> dict[str, float]:
    """Cipher with its key -> MiB/s of encryption on the slowest host."""
    found: dict[str, float] = {}
    for _, cipher, bits, speed, *_ in chain(*wording.cipher_speeds({"hosts": hosts}).values()):
        if speed != wording.ABSENT:
            name, number = f"{cipher} {bits}", float(speed.replace(",", ""))
            found[name] = min(number, found.get(name, number))
    return found


def _versions(hosts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for about in hosts.values():
        for program, version in mapping(mapping(about).get("versions")).items():
            if version:
                yield f"version of {program}", str(version)


def sentences(report: Report) -> Iterator[str]:
    """Which differences come from the archives (labs, versions, dates), not from configurations."""
    places = _places(report)
    if len(places) < 2:
        return
    rows, between = _between(report, places)
    is_tested = {(row.load, row.name): not row.is_baseline and row.name != CONTROL for row in rows}
    for place in places[1:]:
        own = {k: v for k, v in between.items() if k[2] == place and is_tested[k[:2]]}
        judged = [one for one in own.values() if one is not None and one.differs is not None]
        shown = {k: v for k, v in own.items() if v is not None and v.differs}
        yield from _baselines(report, [row for row in rows if row.is_baseline], places[0], place)
        against = f"{place} against {places[0]}"
        if not own:
            yield f"{against}: only the baseline and the control are in both; nothing is judged."
        elif not judged:
            known = [one for one in own.values() if one is not None and one.high is not None]
            forbidden = "the control forbids it, and {} could not be seen in any case"
            why = forbidden.format(_unseen(known)) if known else "each archive needs four rounds"
            yield f"{against}: no verdict; {why}."
        elif not shown:
            words = f"{counted(len(judged), 'percentage')} of the baseline"
            unseen = f"{_unseen(judged)} of {places[0]}'s percentage could not be seen"
            yield f"{against}: none of {words} is shown to differ; {unseen}."
        else:
            key, most = max(shown.items(), key=lambda one: abs(math.log(one[1].percent / 100)))
            largest = f"{key[1]}, {key[0]}, {text_of.in_percent(most)} % of {places[0]}'s"
            yield (
                f"{against}: {len(shown)} of {counted(len(judged), 'percentage')} of the baseline "
                f"differ by more than chance: hosts, versions, dates or files may cause that. The "
                f"largest difference: {largest}."
            )
    unlike = [row[0] for grid in _hardware(report, places) for row in grid.sections[0][1]]
    if unlike:
        yield f"Their hosts differ in {', '.join(unlike)}."
    lone = [f"{row.name} ({', '.join(row.cells)})" for row in rows if len(row.cells) < len(places)]
    if lone:
        yield f"Not in every archive: {', '.join(dict.fromkeys(lone))}."


def _unseen(judged: Iterable[Comparison]) -> str:
    """Below what the intervals hide a difference, from the narrowest to the widest of them."""
    widths = sorted(100 * (one.high / one.percent - 1) for one in judged if one.high is not None)
    ends = dict.fromkeys(f"{width:.{0 if width >= 1 else 1}f}" for width in (widths[0], widths[-1]))
    return f"differences below about {' to '.join(ends)} %"


def _baselines(report: Report, rows: Iterable[_Row], first: str, place: str) -> Iterator[str]:
    """By how much what is 100 % differs itself, which no percentage of it shows."""
    found = []
    for row in rows:
        before, after = (row.cells[n].figures.get("iops") if n in row.cells else None
                         for n in (first, place))  # fmt: skip
        if before and after:
            change = 100 * (after / before - 1)
            words = f"{wording.number(before)} to {wording.number(after)} IOPS ({change:+.0f} %)"
            found.append((abs(math.log(after / before)), change, f"{words} in {row.load}"))
    if found:
        changes = [change for _, change, _ in found]
        ends = dict.fromkeys(f"{end:+.0f}" for end in (min(changes), max(changes)))
        many = f"{' to '.join(ends)} % in {len(found)} workloads, the most "
        yield (
            f"{report.baseline_name} itself, {first} to {place}: {many if found[1:] else ''}"
            f"{max(found)[2]}; such changes are not judged."
        )


@dataclass(frozen=True)
class Point:
    """One configuration under one workload in one archive of a history."""

    load: str
    configuration: str
    archive: str
    date: str
    ceph: str
    kernel: str
    iops: Optional[float]
    percent: Optional[float]
    low: Optional[float]
    high: Optional[float]
    #: The percent in percent of the first archive's, and whether that is more than chance.
    of_first_percent: Optional[float]
    changed: Optional[bool]
    #: What must be read beside the figures of that archive.
    caveats: tuple[str, ...] = ()


def history(reports: Mapping[str, Report]) -> tuple[list[Grid], list[Point]]:
    """A table for each workload: its configurations over the archives, in the order of dates."""
    rows = _rows(_dated(reports))
    changes: dict[tuple[str, str, str], Optional[Comparison]] = {}
    why: dict[str, None] = {}
    for row in rows:
        first, *others = row.cells
        for name in [] if row.is_baseline else others:
            cell, before = row.cells[name], row.cells[first]
            is_like = reports[name].baseline == reports[first].baseline
            # What both have in common says nothing of a change.
            if is_like and not _identities([cell]) & _identities([before]):
                controls = [reports[one].control() for one in (name, first)]
                change = _change(cell, before, controls)
                changes[(row.load, row.name, name)] = change
                if change is not None and change.p is None:
                    why |= dict.fromkeys(_forbidding(row, (first, name), change, reports))
    judged = _judged(changes)
    points = [
        _point(row, name, reports[name], judged.get((row.load, row.name, name)))
        for row in rows
        for name in row.cells
    ]
    by_load: dict[str, dict[str, list[list[str]]]] = {}
    for point in points:
        sections = by_load.setdefault(point.load, {})
        sections.setdefault(point.configuration, []).append(_texts(point, reports))
    heads = ["", "archive", "Ceph", "kernel", "IOPS", "% of baseline", "against the first"]
    note = (
        "% of baseline: IOPS in percent of the same archive's baseline. Against the first: how far "
        "that percentage is from the first archive's, in percent of it (72 after 80 is -10.0 %); "
        "* marks more than chance, at 95 % over all rows and archives."
    )
    notes = (note, f"No verdict: {'; '.join(why)}.") if why else (note,)
    grids = [
        Grid(f"{load} over time", heads, list(sections.items()), notes, 4)
        for load, sections in by_load.items()
    ]
    return grids, points


def _forbidding(
    row: _Row, names: Iterable[str], change: Comparison, reports: Mapping[str, Report]
) -> Iterator[str]:
    """Which of both archives allow no verdict on that change, and by what."""
    for name in names:
        own = row.cells[name].comparisons.get("iops")
        if own is not None and own.p is None:
            yield f"{name} itself has none on {row.name}"
        elif own is not None and any(error.is_sequence for error in own.errors):
            yield f"{name} has turns on one cluster, which say nothing of another day's"
        elif forbids(reports[name].control(), change):
            yield f"the control of {name} forbids it"


def _point(row: _Row, name: str, report: Report, change: Optional[Comparison]) -> Point:
    cell = row.cells[name]
    iops = cell.comparisons.get("iops")
    day = minute(_started(report))
    ends = (None, None, None) if iops is None else (iops.percent, iops.low, iops.high)
    changed = (None, None) if change is None else (change.percent, change.differs)
    said = dict(word.split(" ", 1) for word in versions(report.environment))
    known = (said.get("Ceph", ""), said.get("kernel", ""), cell.figures.get("iops"))
    point = Point(row.load, row.name, name, day, *known, *ends, *changed)
    return replace(point, caveats=caveats(report))


#: Keys of a file's cluster that change what all its rows are measured on.
_OF_ALL_ROWS = (
    *("osds_per_node", "osds_per_device", "osd_file_size", "replication", "pool_profiles", "order"),
    *("erasure_profiles", "settings", "conf_file", "auth_cipher", "neighbours", "rebuild", "turns"),
    "monitoring_profiles",
)


def files_differ(clusters: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """In what the file of an archive differs from the first one that is there."""
    (first, known), *others = [(n, of) for n, of in clusters.items() if of] or [("", {})]
    for name, cluster in others:
        keys = [key for key in _OF_ALL_ROWS if cluster.get(key) != known.get(key)]
        if keys:
            yield f"{name}: its file differs from {first}'s in {', '.join(keys)}"


def _unlike(reports: Mapping[str, Report]) -> Iterator[str]:
    """What has one name, or one column, in several archives and is not the same."""
    of_name: dict[str, Any] = {}
    of_table: dict[str, tuple[str, str]] = {}
    first = next(iter(reports.values()), None)
    yield from files_differ({name: report.cluster for name, report in reports.items()})
    for archive, report in reports.items():
        if first is not None and report.baseline != first.baseline:
            yield f"{archive}: its percentages are of {report.baseline_name}, and not compared"
        for name, overlays in report.configurations.items():
            if of_name.setdefault(name, overlays) != overlays:
                yield f"{archive}: {name} has other overlays than in the first archive that has it"
        for table in (table for table in report.tables if table.load):
            name, load = of_table.setdefault(table.title, (archive, table.load))
            if load != table.load:
                yield f"{archive}: {table.title} is {table.load}; in {name}: {load}"


def caveats_of(reports: Mapping[str, Report]) -> Iterator[str]:
    """What must be read beside the figures, each once, with the archives that it is of."""
    yield from _unlike(dict(_dated(reports)))
    found = ((sentence, name) for name, report in reports.items() for sentence in caveats(report))
    for sentence, names in grouped(found).items():
        whose = "all archives" if len(names) == len(reports) else ", ".join(names)
        yield f"{whose}: {sentence}" if len(reports) > 1 else sentence


def _texts(point: Point, reports: Mapping[str, Report]) -> list[str]:
    percent = "-"
    if point.configuration == reports[point.archive].baseline_name:
        percent = "baseline"
    elif point.percent is not None:
        percent = text_of.in_percent(Comparison(point.percent, point.low, point.high))
    of_first = ""
    if point.of_first_percent is not None:
        change = f"{point.of_first_percent - 100:+.1f}"
        told = {True: "*", False: "", None: ", no verdict"}[point.changed]
        of_first = f"{'0.0' if change[1:] == '0.0' else change} %{told}"
    place = (point.date or "-", point.archive, point.ceph, point.kernel)
    return [*place, wording.number(point.iops), percent, of_first]


def minute(epoch_s: float) -> str:
    """`2026-11-24 18:05`, in UTC; empty for what is no date."""
    if not 0 < epoch_s < 2**33:
        return ""
    return datetime.fromtimestamp(epoch_s, timezone.utc).strftime("%Y-%m-%d %H:%M")


def once(reports: Mapping[str, Report]) -> tuple[dict[str, Report], list[str]]:
    """Each campaign's report once, and a sentence for each archive that has another's runs."""
    known: dict[str, set[object]] = {}
    notes = []
    for name, report in reports.items():
        own = _identities(report.cells)
        same = next((other for other, of in known.items() if of == own), None) if own else None
        if same is not None:
            notes.append(f"{name}: is the same campaign as {same}, so it is used once")
            continue
        for other, of in known.items():
            if own & of:
                runs = f"{len(own & of)} of {counted(len(own), 'cell')}"
                notes.append(f"{name}: shares {runs} with {other}; rows with them are not compared")
        known[name] = own
    return {name: reports[name] for name in known}, notes


def _identities(cells: Iterable[ReportCell]) -> set[object]:
    """What only copies of their runs have as well."""
    return {run.identity for cell in cells for run in cell.runs if run.records}


def _dated(reports: Mapping[str, Report]) -> list[tuple[str, Report]]:
    return sorted(reports.items(), key=lambda one: _started(one[1]))


def _started(report: Report) -> float:
    runs = (run for cell in report.cells for run in cell.runs)
    return began(report.environment.get("started"), runs)


def began(told: object, runs: Iterable[Run]) -> float:
    """When a campaign did, as its environment told; by its first run where that tells nothing."""
    first = min((run.started for run in runs if run.started is not None), default=0.0)
    return next((float(a) for a in (told, first) if isinstance(a, (int, float)) and minute(a)), 0.0)

"""`compare`: several archives, each standing for one configuration, or for one place's hardware."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

from cbt_crypto.archive.documents import (
    FORMAT,
    Baseline,
    Environment,
    PlanDocument,
    PlannedCell,
    RecordedHost,
    Scalar,
)
from cbt_crypto.archive.files import Malformed, Problem
from cbt_crypto.archive.folder import Archive, Folder, open_archive
from cbt_crypto.errors import UsageError
from cbt_crypto.report import wording
from cbt_crypto.report.across import LENGTHS, began, files_differ, minute, sentences
from cbt_crypto.report.build import assemble, read_runs
from cbt_crypto.report.figures.group import baseline_of, chosen_cells
from cbt_crypto.report.model import Report, ReportOptions
from cbt_crypto.results.cell.run import Run, dimensions_of
from cbt_crypto.results.foreign import KBENCH, read_published, read_upstream
from cbt_crypto.units import counted, grouped

#: Dimensions that tell the workloads of kbench's summaries apart.
_OF_KBENCH = ("test", "op_size", "mode")
#: Dimensions that tell rows and archives apart, and those that every workload is named by.
_TOLD, _PLACED = ("configuration", wording.ARCHIVE), ("scenario", "op_size", "mode")
_UNPROVED = "its configuration is not proved: the archive is upstream CBT's"
_PUBLISHED = "its configuration is not proved: this is what somebody published"


def compare(
    archives: Mapping[str, Path], options: ReportOptions, baselines: Sequence[str] = ()
) -> Report:
    """Compare archives by name, or the configurations within each as dimension `hardware`.

    `baselines`: `ARCHIVE=NAME`, or a name for all that have none of their own here. Raises
    UsageError when one is no archive, when only some hold several, or if they share no workload.
    """
    for name, path in archives.items():
        _check_there(f"{name}={path}", path)
    parts = [(text, *text.partition("=")) for text in baselines]
    of_archive = {name: value for _, name, equals, value in parts if equals and name in archives}
    of_all = [text for text, name, equals, _ in parts if not (equals and name in archives)]
    options = replace(options, baseline=of_all[-1] if of_all else options.baseline)
    if len(archives) > 1 and all(_holds_several(path) for path in archives.values()):
        return _by_hardware(archives, options, of_archive)
    if of_archive:
        raise UsageError(
            f"--baseline {next(iter(of_archive))}=...: each archive holds one configuration, so "
            "that an archive is the baseline; give its name alone"
        )
    by_archive = {name: _runs(name, path) for name, path in archives.items()}
    if any(run.planned.scenario == KBENCH for of in by_archive.values() for run in of):
        by_archive = {name: list(_as_kbench(of)) for name, of in by_archive.items()}
    runs = [run for of_archive in by_archive.values() for run in of_archive]
    rows = {run.planned.configuration: run.campaign for run in runs}
    _check_loads({n: [run.dimensions for run in runs if run.campaign == n] for n in archives})
    environment, problems, told = _environment(archives)
    plans = {n: Folder(p).document("results/plan.json", PlanDocument) for n, p in archives.items()}
    said = _of_the_runs(by_archive, told, plans)
    plan = PlanDocument(
        format=FORMAT,
        title=" and ".join(archives),
        baseline=Baseline(value=next(iter(rows))),
        configurations={row: {} for row in rows},
        cells=tuple(run.planned for run in runs),
    )
    baseline = baseline_of(plan, options)
    chosen_keys = {(c.configuration, c.path) for c in chosen_cells(plan.cells, options, baseline)}
    chosen = [run for run in runs if (run.planned.configuration, run.planned.path) in chosen_keys]
    together = Archive(Folder(Path()), plan, environment, problems)
    report = _told_apart(assemble(together, baseline, chosen, options), rows, environment)
    return replace(report, headline=(*report.headline, *said))


def _of_the_runs(
    runs: Mapping[str, Sequence[Run]],
    told: Mapping[str, object],
    plans: Mapping[str, PlanDocument | None],
) -> list[str]:
    """When each was measured, as it `told`; which have runs in common. UsageError for all."""
    said = [f"{words}." for words in files_differ({n: p.cluster for n, p in plans.items() if p})]
    known = {n: {r.identity for r in of if r.records} for n, of in runs.items()}
    for (one, its), (other, others) in combinations(known.items(), 2):
        same = f"{len(its & others)} of {counted(len(others), 'cell')}"
        if its and its == others:
            raise UsageError(f"{one} and {other} are the same runs ({same}); name two archives")
        if its & others:
            said.append(f"{one} and {other} share runs ({same} of {other}), which say nothing.")
    starts = {name: minute(began(told.get(name), of)) for name, of in runs.items()}
    older = {n: " (older)" for n, date in starts.items() if date < next(iter(starts.values()))}
    dates = [f"{name} {date}{older.get(name, '')}" for name, date in starts.items() if date]
    return [*said, f"Measured from (UTC): {', '.join(dates)}."] if dates else said


def _check_there(label: str, path: Path) -> None:
    """Raise UsageError where there is nothing, or where an archive lacks its plan."""
    if not path.exists():
        raise UsageError(f"{label}: there is no such directory or file")
    is_archive = any((path / "results").glob("*/*/cell.json"))
    if is_archive and not (path / "results" / "plan.json").exists():
        raise UsageError(f"{label}: there is no results/plan.json; copy the whole archive again")


def _holds_several(path: Path) -> bool:
    if not (path / "results" / "plan.json").exists():
        return False
    return len({cell.configuration for cell in open_archive(path).plan.cells}) > 1


def _check_common(
    what: str, of: Mapping[str, Iterable[Any]], told: Mapping[str, str], way: str = ""
) -> None:
    """Raise UsageError where the first archive has nothing `of` this in common with another one."""
    first, *others = map(set, of.values())
    if others and first.isdisjoint(set().union(*others)):
        each = "; ".join(f"{name} has {has}" for name, has in told.items())
        raise UsageError(f"the archives have no {what} in common, so none is compared: {each}{way}")


def _check_loads(dimensions: Mapping[str, Iterable[Mapping[str, Scalar]]]) -> None:
    """`dimensions` are of the cells of each archive."""
    found = {
        name: [{k: v for k, v in cell.items() if k not in _TOLD} for cell in cells]
        for name, cells in dimensions.items()
    }
    cells = [cell for of_archive in found.values() for cell in of_archive]
    varied = [
        key
        for key in dict.fromkeys(key for cell in cells for key in cell if key not in _PLACED)
        if len({cell.get(key) for cell in cells}) > 1
    ]
    keys = (*_PLACED, *varied)
    told = {}
    for name, of_archive in found.items():
        loads = dict.fromkeys(map(_load, of_archive))
        values = {key: dict.fromkeys(str(c[key]) for c in of_archive if key in c) for key in varied}
        apart = ", ".join(f"{key} {' and '.join(of)}" for key, of in values.items() if of)
        told[name] = f"{', '.join(loads)}{f' (with {apart})' if apart else ''}"
    of = {name: [tuple(c.get(k) for k in keys) for c in cells] for name, cells in found.items()}
    # Where nothing else differs.
    is_told = varied and LENGTHS.issuperset(varied)
    way = "; cbt-crypto history shows both in one table" if is_told else ""
    _check_common("workload", of, told, way)


def _load(cell: Mapping[str, Scalar]) -> str:
    size = [] if cell.get("op_size") is None else [wording.op_size(cell["op_size"])]
    return " ".join([str(cell["scenario"]), *size, wording.mode(str(cell.get("mode", "")), "")])


def _by_hardware(
    archives: Mapping[str, Path], options: ReportOptions, of_archive: Mapping[str, str]
) -> Report:
    opened = {name: open_archive(path) for name, path in archives.items()}
    plans = {name: archive.plan for name, archive in opened.items()}
    names = {n: dict.fromkeys(c.configuration for c in plan.cells) for n, plan in plans.items()}
    _check_common("configuration", names, {name: ", ".join(has) for name, has in names.items()})
    _check_loads({name: map(dimensions_of, plan.cells) for name, plan in plans.items()})
    baselines = {
        name: _baseline_in(f"{name}={archives[name]}", plan, of_archive.get(name, options.baseline))
        for name, plan in plans.items()
    }
    joint = _joint(baselines)
    placed = {
        name: [_placed(cell, name, baselines[name], joint) for cell in plan.cells]
        for name, plan in plans.items()
    }
    configurations, unlike = _configurations(plans, baselines, joint)
    usual = {name: _baseline_in(name, plan, None) for name, plan in plans.items()}
    others = [usual[name] for name, baseline in baselines.items() if baseline != usual[name]]
    plan = next(iter(plans.values())).model_copy(
        update={
            "title": " and ".join(archives),
            "configurations": configurations,
            # A control repeats the baseline of its file; of another one it is none.
            "baseline": others[0] if others else joint,
            "cells": tuple(cell for of_archive in placed.values() for cell in of_archive),
        }
    )
    by_archive = {
        name: [
            replace(run, planned=to, dimensions=dimensions_of(to))
            for run, to in zip(read_runs(archive.folder, archive.plan.cells), placed[name])
        ]
        for name, archive in opened.items()
    }
    environment, problems, told = _environment(archives)
    said = _of_the_runs(by_archive, told, plans)
    runs = [run for of_archive in by_archive.values() for run in of_archive]
    together = Archive(Folder(Path()), plan, environment, (*problems, *unlike))
    named = {name: name for name in archives}
    usual_options = replace(options, baseline=None, only=(), anonymize=False)
    tested = _by_hardware(archives, usual_options, {}) if others else None
    report = _told_apart(assemble(together, joint, runs, options, tested), named, environment)
    return replace(report, headline=(*report.headline, *said, *sentences(report)))


def _baseline_in(label: str, plan: PlanDocument, name: str | None) -> Baseline:
    try:
        return baseline_of(plan, ReportOptions(baseline=name))
    except UsageError as error:
        raise UsageError(f"{label}: {error}") from None


def _joint(baselines: Mapping[str, Baseline]) -> Baseline:
    """What all archives call their baseline, or one name made of their names for it."""
    first, *others = baselines.values()
    if all(other == first for other in others):
        return first
    by_value = grouped((baseline.value, name) for name, baseline in baselines.items())
    named = ", ".join(f"{value} in {' and '.join(names)}" for value, names in by_value.items())
    if any(baseline.dimension != "configuration" for baseline in baselines.values()):
        raise UsageError(f"the archives' baselines differ: {named}; name one for all: --baseline")
    return Baseline(value=named)


def _called(configuration: str, baseline: Baseline, joint: Baseline) -> str:
    is_baseline = joint.dimension == "configuration" and configuration == baseline.value
    return str(joint.value) if is_baseline else configuration


def _configurations(
    plans: Mapping[str, PlanDocument], baselines: Mapping[str, Baseline], joint: Baseline
) -> tuple[dict[str, object], list[Problem]]:
    """What each name is in the first archive that has it, and where another one's differs."""
    found: dict[str, object] = {}
    unlike = []
    for name, plan in plans.items():
        for configuration, about in plan.configurations.items():
            called = _called(configuration, baselines[name], joint)
            if found.setdefault(called, about) != about:
                sentence = f"{called} has other overlays in {name} than in the first archive"
                unlike.append(Problem("", sentence))
    return found, unlike


def _told_apart(report: Report, rows: Mapping[str, str], environment: Environment | None) -> Report:
    """The report; where only `rows` (name -> archive) of some are emulated, it knows which."""
    hosts = {} if environment is None else environment.hosts
    emulated = [host for host, about in hosts.items() if about.emulated]
    only = tuple(r for r, name in rows.items() if any(h.startswith(f"{name}: ") for h in emulated))
    return report if only == tuple(rows) else replace(report, emulated_only=only)


def _placed(cell: PlannedCell, name: str, baseline: Baseline, joint: Baseline) -> PlannedCell:
    called = _called(cell.configuration, baseline, joint)
    parameters = {**cell.parameters, wording.ARCHIVE: name}
    return cell.model_copy(update={"configuration": called, "parameters": parameters})


def _runs(name: str, path: Path) -> list[Run]:
    if (path / "results" / "plan.json").exists():
        return [_renamed(run, name) for run in _runs_of_archive(name, path)]
    try:
        if (path / "results").is_dir():
            runs, why = list(read_upstream(Folder(path), name)), _UNPROVED
        else:
            runs, why = read_published(path, name), _PUBLISHED
    except Malformed as error:
        raise UsageError(f"{name}={path}: {error}") from None
    if not runs:
        raise UsageError(f"{name}={path}: there is no output of fio below results")
    problem = Problem("", why)
    return [replace(run, problems=(*run.problems, problem), campaign=name) for run in runs]


def _runs_of_archive(name: str, path: Path) -> Sequence[Run]:
    archive = open_archive(path)
    configurations = {cell.configuration for cell in archive.plan.cells}
    if len(configurations) != 1:
        raise UsageError(
            f"{name}={path}: holds {len(configurations)} configurations; compare archives of "
            "one configuration each, or two and more of several each"
        )
    return read_runs(archive.folder, archive.plan.cells)


def _renamed(run: Run, name: str) -> Run:
    planned = run.planned.model_copy(update={"configuration": name})
    dimensions = {**run.dimensions, "configuration": name}
    return replace(run, planned=planned, dimensions=dimensions, campaign=name)


def _as_kbench(runs: Sequence[Run]) -> Iterator[Run]:
    """`rbd_kbench` as kbench's own; what else differs under one workload is in the row's name."""
    told: dict[str, dict[tuple[Scalar, ...], set[Scalar]]] = {}
    ours = [run for run in runs if run.planned.scenario == "rbd_kbench"]
    for run in ours:
        load = tuple(map(run.dimensions.get, _OF_KBENCH))
        for key, value in run.dimensions.items():
            told.setdefault(key, {}).setdefault(load, set()).add(value)
    apart = [key for key, of in told.items() if any(len(values) > 1 for values in of.values())]
    for run in ours:
        words = (wording.value_of(key, run.dimensions.get(key)) for key in apart)
        name = ", ".join([run.planned.configuration, *words])
        parameters = {key: run.dimensions.get(key) for key in _OF_KBENCH}
        update = {"scenario": KBENCH, "configuration": name, "parameters": parameters}
        planned = run.planned.model_copy(update=update)
        yield replace(run, planned=planned, dimensions=dimensions_of(planned))
    yield from (run for run in runs if run.planned.scenario != "rbd_kbench")


def _environment(
    archives: Mapping[str, Path],
) -> tuple[Environment | None, tuple[Problem, ...], dict[str, object]]:
    """All hosts, what is wrong, and when each archive's campaign says that it began."""
    hosts: dict[str, RecordedHost] = {}
    problems, told = [], {}
    for name, path in archives.items():
        place = "results/environment.json"
        try:
            environment = Folder(path).document(place, Environment)
        except Malformed as error:
            problems.append(Problem("", f"{name}={path}: {error}"))
            continue
        if environment is not None:
            hosts |= {f"{name}: {host}": about for host, about in environment.hosts.items()}
            told[name] = (environment.model_extra or {}).get("started")
        elif (path / "results" / "plan.json").exists():
            missing = f"{name}={path}: there is no {place}; nothing is known of its hosts"
            problems.append(Problem("", missing))
    together = Environment(format=FORMAT, hosts=hosts) if hosts else None
    return together, tuple(problems), told

"""`compare`: several archives, each standing for one configuration, or for one place's hardware."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cbt_crypto.archive.documents import (
    FORMAT,
    Baseline,
    Environment,
    PlanDocument,
    PlannedCell,
    RecordedHost,
)
from cbt_crypto.archive.files import Malformed, Problem
from cbt_crypto.archive.folder import Archive, Folder, open_archive
from cbt_crypto.errors import UsageError
from cbt_crypto.report.across import sentences
from cbt_crypto.report.build import assemble, read_runs
from cbt_crypto.report.figures.group import baseline_of, chosen_cells
from cbt_crypto.report.model import Report, ReportOptions
from cbt_crypto.results.cell.run import Run, dimensions_of
from cbt_crypto.results.foreign import read_published, read_upstream

_UNPROVED = "its configuration is not proved: the archive is upstream CBT's"
_PUBLISHED = "its configuration is not proved: this is what somebody published"


def compare(archives: Mapping[str, Path], options: ReportOptions) -> Report:
    """Compare archives by name, or the configurations within each as dimension `hardware`.

    Raises UsageError when one is no archive, or when only some of them hold several.
    """
    for name, path in archives.items():
        _check_there(f"{name}={path}", path)
    if len(archives) > 1 and all(_holds_several(path) for path in archives.values()):
        return _by_hardware(archives, options)
    runs = [run for name, path in archives.items() for run in _runs(name, path)]
    plan = PlanDocument(
        format=FORMAT,
        title=" and ".join(archives),
        baseline=Baseline(value=next(iter(archives))),
        configurations={name: {} for name in archives},
        cells=tuple(run.planned for run in runs),
    )
    baseline = baseline_of(plan, options)
    chosen_keys = {(c.configuration, c.path) for c in chosen_cells(plan.cells, options, baseline)}
    chosen = [run for run in runs if (run.planned.configuration, run.planned.path) in chosen_keys]
    environment, problems = _environment(archives)
    together = Archive(Folder(Path()), plan, environment, problems)
    return _told_apart(assemble(together, baseline, chosen, options), archives, environment)


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


def _by_hardware(archives: Mapping[str, Path], options: ReportOptions) -> Report:
    opened = {name: open_archive(path) for name, path in archives.items()}
    cells = [
        (archive.folder, cell, _placed(cell, name))
        for name, archive in opened.items()
        for cell in archive.plan.cells
    ]
    first = next(iter(opened.values())).plan
    plan = first.model_copy(
        update={
            "title": " and ".join(archives),
            "configurations": {
                name: about
                for archive in reversed(opened.values())
                for name, about in archive.plan.configurations.items()
            },
            "cells": tuple(placed for _, _, placed in cells),
        }
    )
    baseline = baseline_of(plan, options)
    chosen = {id(cell) for cell in chosen_cells(plan.cells, options, baseline)}
    runs = [
        _replaced(run, placed)
        for archive in opened.values()
        for run, placed in _read(archive, [c for c in cells if c[0] is archive.folder], chosen)
    ]
    environment, problems = _environment(archives)
    together = Archive(Folder(Path()), plan, environment, problems)
    report = _told_apart(assemble(together, baseline, runs, options), archives, environment)
    return replace(report, headline=(*report.headline, *sentences(report)))


def _told_apart(report: Report, names: Iterable[str], environment: Environment | None) -> Report:
    """The report; where only some of the archives are of emulated hosts, it knows which."""
    hosts = {} if environment is None else environment.hosts
    emulated = [host for host, about in hosts.items() if about.emulated]
    names = tuple(names)
    only = tuple(name for name in names if any(host.startswith(f"{name}: ") for host in emulated))
    return report if only == names else replace(report, emulated_only=only)


_Placed = tuple[Folder, PlannedCell, PlannedCell]


def _read(
    archive: Archive, cells: Sequence[_Placed], chosen_ids: Container[int]
) -> Iterable[tuple[Run, PlannedCell]]:
    chosen = [(cell, placed) for _, cell, placed in cells if id(placed) in chosen_ids]
    runs = read_runs(archive.folder, [cell for cell, _ in chosen])
    return zip(runs, (placed for _, placed in chosen))


def _placed(cell: PlannedCell, name: str) -> PlannedCell:
    return cell.model_copy(update={"parameters": {**cell.parameters, "hardware": name}})


def _replaced(run: Run, placed: PlannedCell) -> Run:
    return replace(run, planned=placed, dimensions=dimensions_of(placed))


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
            f"{name}={path}: holds {len(configurations)} configurations and another one holds one;"
            " compare archives of one configuration each, or of several each"
        )
    return read_runs(archive.folder, archive.plan.cells)


def _renamed(run: Run, name: str) -> Run:
    planned = run.planned.model_copy(update={"configuration": name})
    dimensions = {**run.dimensions, "configuration": name}
    return replace(run, planned=planned, dimensions=dimensions, campaign=name)


def _environment(archives: Mapping[str, Path]) -> tuple[Environment | None, tuple[Problem, ...]]:
    hosts: dict[str, RecordedHost] = {}
    problems = []
    for name, path in archives.items():
        place = "results/environment.json"
        try:
            environment = Folder(path).document(place, Environment)
        except Malformed as error:
            problems.append(Problem("", f"{name}={path}: {error}"))
            continue
        if environment is not None:
            hosts |= {f"{name}: {host}": about for host, about in environment.hosts.items()}
        elif (path / "results" / "plan.json").exists():
            missing = f"{name}={path}: there is no {place}; nothing is known of its hosts"
            problems.append(Problem("", missing))
    return Environment(format=FORMAT, hosts=hosts) if hosts else None, tuple(problems)

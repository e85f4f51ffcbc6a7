"""`compare`: several archives, each standing for one configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cbt_crypto.archive.documents import FORMAT, Baseline, Environment, Host, PlanDocument
from cbt_crypto.archive.folder import Archive, Folder, open_archive
from cbt_crypto.archive.problem import Malformed, Problem
from cbt_crypto.errors import UsageError
from cbt_crypto.report.build import assemble, read_runs
from cbt_crypto.report.figures.selection import baseline_of, chosen_cells
from cbt_crypto.report.model import Report
from cbt_crypto.report.options import ReportOptions
from cbt_crypto.results.cell.run import Run
from cbt_crypto.results.upstream_archive import read_upstream

_UNPROVED = "its configuration is not proved: the archive is upstream CBT's"


def compare(archives: Mapping[str, Path], options: ReportOptions) -> Report:
    """Compare archives by the names given to them; `options.baseline` is one of the names.

    Raises UsageError when one is no archive, or holds several configurations.
    """
    runs = [run for name, path in archives.items() for run in _runs(name, path)]
    plan = PlanDocument(
        format=FORMAT,
        title=" and ".join(archives),
        baseline=Baseline(value=next(iter(archives))),
        configurations={name: {} for name in archives},
        cells=tuple(run.planned for run in runs),
    )
    baseline = baseline_of(plan, options)
    kept = {(c.configuration, c.path) for c in chosen_cells(plan.cells, options, baseline)}
    chosen = [run for run in runs if (run.planned.configuration, run.planned.path) in kept]
    environment, problems = _environment(archives)
    together = Archive(Folder(Path()), plan, environment, problems)
    return assemble(together, baseline, chosen, options)


def _runs(name: str, path: Path) -> list[Run]:
    if (path / "results" / "plan.json").exists():
        return [_renamed(run, name) for run in _own(name, path)]
    if not (path / "results").is_dir():
        raise UsageError(f"{name}={path}: there is no results directory, so this is no archive")
    try:
        runs = list(read_upstream(Folder(path), name))
    except Malformed as error:
        raise UsageError(f"{name}={path}: {error}") from None
    if not runs:
        raise UsageError(f"{name}={path}: there is no output of fio below results")
    return [replace(run, problems=(*run.problems, Problem("", _UNPROVED))) for run in runs]


def _own(name: str, path: Path) -> Sequence[Run]:
    archive = open_archive(path)
    configurations = {cell.configuration for cell in archive.plan.cells}
    if len(configurations) != 1:
        raise UsageError(
            f"{name}={path}: holds {len(configurations)} configurations; `cbt-crypto report`"
            " compares those of one archive"
        )
    return read_runs(archive.folder, archive.plan.cells)


def _renamed(run: Run, name: str) -> Run:
    planned = run.planned.model_copy(update={"configuration": name})
    return replace(run, planned=planned, dimensions={**run.dimensions, "configuration": name})


def _environment(archives: Mapping[str, Path]) -> tuple[Environment | None, tuple[Problem, ...]]:
    """The hosts of all archives that tell of theirs, by archive and host."""
    hosts: dict[str, Host] = {}
    for name, path in archives.items():
        try:
            found = Folder(path).document("results/environment.json", Environment)
        except Malformed as error:
            return None, (Problem("", f"{name}={path}: {error}"),)
        if found is not None:
            hosts |= {f"{name}: {host}": about for host, about in found.hosts.items()}
    return Environment(format=FORMAT, hosts=hosts) if hosts else None, ()

"""What the archive knows of a campaign: its plan, its file, and which cells are finished."""

from __future__ import annotations

import contextlib
import glob
import itertools
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from cbt_crypto.archive import files
from cbt_crypto.archive.files import Malformed, one_line, open_regular, read_json, write_json
from cbt_crypto.errors import UsageError
from cbt_crypto.hosts.secret import document_without
from cbt_crypto.hosts.site import Site
from cbt_crypto.hosts.trust_on_host import distrust
from cbt_crypto.plan.cells import Cell, select
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.file.document import printable
from cbt_crypto.plan.order import cells_of, certain_rounds, seed_of
from cbt_crypto.plan.steps import Plan


def finished_cells(archive: Path, cells: tuple[Cell, ...], again: Sequence[str] = ()) -> set[str]:
    """Paths of cells measured and proved as defined now, without patterns in `again`."""
    repeated = {cell.path for cell in select(cells, again, "--again")} if again else set()
    return {
        cell.path
        for cell in cells
        if cell.path not in repeated
        and any(_has(archive / path, cell.definition) for path in (cell.path, cell.short_path))
    }


def short_named(archive: Path, cells: Sequence[Cell]) -> list[tuple[Path, Path]]:
    """(directory, what it is called now) of the cells whose names are of 8 digits still."""
    pairs = [(archive / cell.short_path, archive / cell.path, cell) for cell in cells]
    return [
        (old, new)
        for old, new, cell in pairs
        if old.is_dir() and not os.path.lexists(new) and _has(old, cell.definition)
    ]


def _has(directory: Path, definition: str) -> bool:
    state = read_json(directory / "cell.json") or {}
    return (
        state.get("state") == "finished"
        and state.get("definition") == definition
        and _is_whole(directory, state)
    )


def _is_whole(directory: Path, state: Mapping[str, Any]) -> bool:
    """Whether the proof and all results are there: a copied archive may have a part."""
    if read_json(directory / "proof.json") is None:
        return False
    try:
        return all(
            _has_its_end(directory / process["json"], process.get("kind", "fio"))
            for process in state.get("processes") or ()
        )
    except (OSError, Malformed, ValueError, KeyError, TypeError, AttributeError):
        return False


def _has_its_end(path: Path, kind: str) -> bool:
    """It may have many MiB. fio's JSON ends with a brace on a line of its own."""
    with open_regular(path) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
        lines = file.read().rstrip().splitlines()
    is_one = len(lines) == 1 and lines[0].endswith(b"}")
    return is_one or b"}" in lines if kind == "fio" else bool(lines)


#: A user's number, which has 32 bits.
_USER = re.compile(r"[0-9]{1,10}")


def check_archive(archive: Path, campaign: Campaign) -> None:
    """Raise UsageError when the archive is somebody else's or another file's, or leads out."""
    if archive.exists() and not archive.is_dir():
        raise UsageError(f"{archive}: is not a directory; name another archive with -a")
    tmp_dir, place = Path(campaign.cluster.tmp_dir), archive.resolve()
    if tmp_dir in (place, *place.parents):
        raise UsageError(
            f"{archive}: is in tmp_dir, {tmp_dir}, which is removed at the end; name another "
            "archive with -a"
        )
    plan = read_json(archive / "results" / "plan.json")
    if plan is None and archive.exists() and not _is_unused(archive):
        # All that is below `/`, say, would take long to look at.
        if os.path.lexists(archive / "results"):
            check_own(archive)
        raise UsageError(
            f"{archive}: is not empty and holds no campaign; name a new directory with -a"
        )
    check_own(archive)
    if plan is None or _shared(archive, plan, campaign):
        return
    is_same = plan.get("document") == _document(campaign)
    file = f"campaign file ({one_line(str(plan.get('title')))})"
    raise UsageError(
        f"{archive}: was written for another {'ceph.conf (-c, conf_file)' if is_same else file}, "
        "with which this one has no cell in common; name a new directory with -a"
    )


def check_own(archive: Path) -> None:
    """Raise UsageError for an archive in which somebody else could have us write elsewhere."""
    check_links(archive)
    _check_names(archive / "results")
    caller = os.environ.get("SUDO_UID", "")
    allowed = {0, os.geteuid(), int(caller) if _USER.fullmatch(caller) else 0}
    _check_way(archive.absolute(), allowed)
    if archive.exists():
        wrong = distrust(archive.stat(), allowed, is_group_ours=True, groups=_groups())
        if wrong:
            raise UsageError(f"{archive}: {wrong}; copy it, or name another archive with -a")


def _check_names(results: Path) -> None:
    """Raise UsageError for a file that is written to and has a name elsewhere too."""
    for path in results.iterdir() if results.is_dir() else ():
        status = path.lstat()
        if stat.S_ISFIFO(status.st_mode):
            raise UsageError(f"{printable(str(path))}: is a pipe; remove it")
        if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
            raise UsageError(
                f"{printable(str(path))}: is a hard link, so a file elsewhere would change, too; "
                "copy the archive without hard links, or remove one"
            )


def _groups() -> list[int]:
    """Whose members may share an archive; none of them shares what is root's."""
    return os.getgroups() if os.geteuid() else []


def _check_way(archive: Path, allowed: set[int]) -> None:
    """Raise UsageError where another user could put another directory in the archive's place."""
    way = {archive, *archive.parents, *Path(os.path.realpath(archive)).parents}
    for path in sorted(way):
        status = path.lstat() if os.path.lexists(path) else None
        if status is None or (path == archive and not path.is_symlink()):
            continue
        if distrust(status, allowed, is_way=True, is_group_ours=True, groups=_groups()):
            raise UsageError(
                f"{archive}: can be replaced by another user, who may write to {path}; "
                "name another with -a"
            )


#: Of an archive's directories; a campaign has a few.
_LEVELS = 100


def check_links(archive: Path) -> None:
    """Raise UsageError for a link out of the archive, through which a run would write."""
    root = os.path.realpath(archive)
    for folder, directories, regular in os.walk(archive):
        # Python calls itself for each, and ends where somebody has made thousands.
        if len(Path(folder).relative_to(archive).parts) > _LEVELS:
            raise UsageError(f"{archive}: has over {_LEVELS} levels of directories; remove them")
        for name in (*directories, *regular):
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                continue
            # Those below /proc cannot be followed.
            with contextlib.suppress(OSError):
                if os.path.commonpath((root, os.path.realpath(path))) == root:
                    continue
            raise UsageError(f"{printable(path)}: is a link out of the archive; remove it")


def default_archive(
    campaign: Campaign, config_file: Path, is_complete: Callable[[Path], bool], again: bool
) -> Path:
    """Where a run goes whose archive was not named: on in one, or to a new results/NAME-DATE.

    It goes on in the newest of this file that lacks a cell; with `again` none need be lacking.
    """
    name, results = config_file.stem, Path("results")
    plans = [path / "plan.json" for path in results.glob(f"{glob.escape(name)}-*/results")]
    # NAME-DATE.bak is somebody's copy, however new; NAME-MORE-DATE is of NAME-MORE.yaml.
    other = re.compile(r"-(\d{4}-\d\d-\d\d(?!(-\d+)?$)|.+-\d{4}-\d\d-\d\d)")
    plans = [plan for plan in plans if not other.match(plan.parents[1].name[len(name) :])]
    there = sorted(filter(os.path.isfile, plans), key=os.path.getmtime, reverse=True)
    for archive in (path.parents[1] for path in there):
        if _is_of(archive, campaign) and (again or not is_complete(archive)):
            return archive
    names = files.numbered(f"{name}-{time.strftime('%Y-%m-%d')}")
    return next(path for path in map(results.joinpath, names) if _is_unused(path))


def _is_of(archive: Path, campaign: Campaign) -> bool:
    """Whether the archive is of this file, or of one that it was before it was changed midway."""
    plan = read_json(archive / "results" / "plan.json") or {}
    is_same, shared = plan.get("document") == _document(campaign), _shared(archive, plan, campaign)
    # With another ceph.conf none is shared: one that is done is left, one that is not is refused.
    return (is_same and shared) or ((is_same or shared) and not _is_done(archive, plan))


def _is_done(archive: Path, plan: Mapping[str, Any]) -> bool:
    """Whether every cell that the archive itself planned is measured."""
    paths = [str(cell.get("path")) for cell in _cells_in(plan)]
    states = ((read_json(archive / path / "cell.json") or {}).get("state") for path in paths)
    return all(state == "finished" for state in states)


def _is_unused(archive: Path) -> bool:
    """Whether nothing is there but what a run leaves that did not come to write its plan."""
    names, results = {".lock", "results"}, archive / "results"
    before = {"cbt.log", "cbt_config.yaml", "commands.log", "progress.json"}
    return not os.path.lexists(archive) or all(
        folder.is_dir() and {path.name for path in folder.iterdir()} <= expected
        for folder, expected in ((archive, names), (results, before))
        if os.path.lexists(folder)
    )


def changes(archive: Path, campaign: Campaign) -> Optional[tuple[int, int, list[Cell]]]:
    """Of a changed campaign: how many cells are kept, how many it has no more, and those run anew;
    None if unchanged.
    """
    plan, cells = read_json(archive / "results" / "plan.json"), cells_of(campaign)
    is_same = plan is None or plan.get("document") == _document(campaign)
    aside = {path.relative_to(archive).as_posix() for path in strangers(archive, cells)}
    if is_same and not aside:
        return None
    finished = finished_cells(archive, cells)
    gone = aside - {cell.path for cell in cells}
    return len(finished), len(gone), [cell for cell in cells if cell.path not in finished]


def strangers(archive: Path, cells: Sequence[Cell]) -> Iterator[Path]:
    """What was measured by another definition, or is in the file no more."""
    defined = {cell.path: cell.definition for cell in cells}
    for directory in archive.glob("results/[0-9]*/id-*"):
        path = directory.relative_to(archive).as_posix()
        state = read_json(directory / "cell.json")
        if state and state.get("definition") != defined.get(path):
            yield directory


def set_aside(archive: Path, directory: Path) -> None:
    """Move a cell that may be finished to results/superseded, which no report reads; or remove."""
    state = read_json(place := directory / "cell.json")
    may_be_finished = state.get("state") == "finished" if state else os.path.lexists(place)
    if not may_be_finished:
        shutil.rmtree(directory, ignore_errors=True)
        return
    superseded = archive / "results" / "superseded"
    superseded.mkdir(exist_ok=True)
    name = f"{directory.parent.name}.{directory.name}"
    taken = {path.name for path in superseded.iterdir()}
    number = next(n for n in itertools.count(1) if f"{name}.{n}" not in taken)
    directory.rename(superseded / f"{name}.{number}")


def _shared(archive: Path, plan: Mapping[str, Any], campaign: Campaign) -> bool:
    """Whether the archive knows a cell that this file has too."""
    cells = cells_of(campaign)
    definitions = {str(planned.get("definition")) for planned in _cells_in(plan)}
    is_planned = any(cell.definition in definitions for cell in cells)
    return is_planned or bool(finished_cells(archive, cells))


def _cells_in(plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The cells that a plan.json lists, whoever wrote it."""
    cells = plan.get("cells")
    return [cell for cell in cells if isinstance(cell, dict)] if isinstance(cells, list) else []


def _document(campaign: Campaign) -> Any:
    """The file's content as JSON keeps it, without the passwords in it."""
    return document_without(json.loads(json.dumps(campaign.document, default=str)))


def write_plan(archive: Path, plan: Plan) -> None:
    """Write results/plan.json with every cell; beyond the fewest of a precision, when measured."""
    campaign = plan.campaign
    prediction = archive / "results" / "prediction.json"
    if plan.predicted is not None and not prediction.exists():
        write_json(prediction, dict(plan.predicted))
    write_json(
        archive / "results" / "plan.json",
        {
            "title": campaign.title,
            "baseline": {"dimension": campaign.compared, "value": campaign.baseline},
            "configurations": document_without(
                campaign.document["cluster"].get("configurations", {"Default": {}})
            ),
            **({"matrix": document_without(matrix)} if (matrix := campaign.cluster.matrix) else {}),
            "cells": [
                {**_planned(cell), "path": cell.path}
                for cell in plan.cells
                if cell.iteration < certain_rounds(campaign, cell.scenario)
                or (archive / cell.path / "cell.json").exists()
            ],
            "order": "side_by_side" if campaign.groups else campaign.cluster.order,
            "seed": seed_of(campaign),
            "document": _document(campaign),
        },
    )


def _planned(cell: Cell) -> dict[str, object]:
    return {
        "id": cell.id,
        "iteration": cell.iteration,
        "definition": cell.definition,
        "scenario": cell.scenario.name,
        "configuration": cell.configuration,
        "parameters": document_without(cell.parameters),
    }


def keep_cell(
    directory: Path, cell: Cell, site: Site, outcome: Mapping[str, object], reason: Optional[str]
) -> None:
    """Write cell.json last, as its absence means no cell; `reason` is why it failed, or None."""
    write_json(
        directory / "cell.json",
        {
            **_planned(cell),
            "state": "finished" if reason is None else "failed",
            "reason": reason,
            "clients": list(cell.scenario.active_clients(site.clients)),
            "osd_hosts": list(site.storage_hosts),
            **outcome,
        },
    )

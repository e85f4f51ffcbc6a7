"""What the archive knows of a campaign: its plan, its file, and which cells are finished."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Optional

from cbt_crypto.archive import read_json, write_json
from cbt_crypto.errors import UsageError
from cbt_crypto.file import Campaign
from cbt_crypto.plan import Cell, Plan
from cbt_crypto.site import Site


def finished_cells(archive: Path, cells: tuple[Cell, ...]) -> set[str]:
    """Paths of the cells that the archive has, measured and proved, as they are defined now."""
    done = set()
    for cell in cells:
        state = read_json(archive / cell.path / "cell.json")
        if (
            state
            and state.get("state") == "finished"
            and state.get("definition") == cell.definition
        ):
            done.add(cell.path)
    return done


def check_archive(archive: Path, campaign: Campaign) -> None:
    """Raise UsageError when the archive is somebody else's or another file's."""
    if archive.exists() and not archive.is_dir():
        raise UsageError(f"{archive}: is not a directory; name another archive with -a")
    plan = read_json(archive / "results" / "plan.json")
    if plan is None:
        if archive.is_dir() and any(path.name != ".lock" for path in archive.iterdir()):
            raise UsageError(
                f"{archive}: is not empty and holds no campaign; name a new directory with -a"
            )
    elif plan.get("document") != _document(campaign):
        raise UsageError(
            f"{archive}: was written by another file ({plan.get('title')}), or by this one before "
            "it was changed; name a new directory with -a"
        )


def _document(campaign: Campaign) -> Any:
    """The file's content as JSON keeps it."""
    return json.loads(json.dumps(campaign.document, default=str))


def write_plan(archive: Path, plan: Plan) -> None:
    """Write results/plan.json: every cell of the campaign, measured or not."""
    campaign = plan.campaign
    write_json(
        archive / "results" / "plan.json",
        {
            "title": campaign.title,
            "baseline": {"dimension": campaign.compared, "value": campaign.baseline},
            "configurations": campaign.document["cluster"].get("configurations", {"Default": {}}),
            "cells": [
                {
                    "id": cell.id,
                    "path": cell.path,
                    "iteration": cell.iteration,
                    "scenario": cell.scenario.name,
                    "configuration": cell.configuration,
                    "parameters": cell.parameters,
                }
                for cell in plan.cells
            ],
            "document": _document(campaign),
        },
    )


def keep_cell(
    directory: Path, cell: Cell, site: Site, outcome: dict[str, Any], reason: Optional[str]
) -> None:
    """Write cell.json, last of all: a directory without one is a cell that never happened.

    `reason` is None for a cell that is measured and proved, else why it is not.
    """
    write_json(
        directory / "cell.json",
        {
            "id": cell.id,
            "iteration": cell.iteration,
            "definition": cell.definition,
            "scenario": cell.scenario.name,
            "configuration": cell.configuration,
            "parameters": cell.parameters,
            "state": "finished" if reason is None else "failed",
            "reason": reason,
            "clients": list(cell.scenario.active_clients(site.clients)),
            "osd_hosts": list(site.osd_hosts),
            **outcome,
        },
    )

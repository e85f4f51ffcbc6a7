"""What `cbt-crypto plan` and `cbt.py --plan` do."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Optional

import click
from rich.console import Console
from rich.text import Text

from cbt_crypto.command_line import RunOptions, say, say_notes
from cbt_crypto.engine import Engine
from cbt_crypto.engine.choice import choose
from cbt_crypto.plan.file import Campaign, read_campaign
from cbt_crypto.plan.order import Pacing, cells_of
from cbt_crypto.plan.show import plan_document, show_plan
from cbt_crypto.plan.steps import plan
from cbt_crypto.run.preflight.check import check_cells
from cbt_crypto.run.resume import default_archive, finished_cells


def with_conf(campaign: Campaign, conf: Optional[Path]) -> Campaign:
    """The campaign with another ceph.conf to start from, when there is one."""
    if conf is None:
        return campaign
    return replace(campaign, cluster=campaign.cluster.model_copy(update={"conf_file": str(conf)}))


def finished(archive: Optional[Path], campaign: Campaign, again: tuple[str, ...] = ()) -> set[str]:
    """Paths of the cells that need not be measured: they are, or are known well enough."""
    if archive is None or not archive.is_dir():
        return set()
    cells = cells_of(campaign)
    done = finished_cells(archive, cells, again)
    return done | Pacing(campaign, cells, archive, done).settled()


def archive_of(campaign: Campaign, options: RunOptions) -> Path:
    """The archive that was named, or the one that a run without -a goes on with or begins."""
    if options.archive is not None:
        return options.archive
    campaign = with_conf(campaign, options.conf)

    def is_complete(archive: Path) -> bool:
        return {cell.path for cell in cells_of(campaign)} <= finished(archive, campaign)

    return default_archive(campaign, options.config_file, is_complete, bool(options.again))


def tell_engine(engine: Engine, console: Console) -> None:
    """Print which engine runs the campaign."""
    commit = f" at {engine.commit[:12]}" if engine.commit else ""
    console.print(Text(f"engine: {engine.name} {engine.version}{commit}"))


def show(options: RunOptions, as_json: bool = False) -> None:
    """Print what is left of a campaign to run, and touch nothing."""
    console = Console()
    campaign = with_conf(read_campaign(options.config_file), options.conf)
    say_notes(options.config_file, campaign.notes)
    engine = choose(options.checkout)
    todo = plan(campaign, options.only, finished(options.archive, campaign, options.again))
    check_cells(campaign, todo.to_measure, engine)
    if as_json:
        click.echo(json.dumps(plan_document(todo, options.archive), indent=2))
        return
    tell_engine(engine, console)
    show_plan(todo, console, options.like)


def show_next(options: RunOptions, as_json: bool) -> None:
    """Print what `run` would do now, and into which archive."""
    archive = archive_of(read_campaign(options.config_file), options)
    if options.archive is None and not as_json:
        say(f"archive: {archive}")
    show(replace(options, archive=archive), as_json)

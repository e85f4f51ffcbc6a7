"""The command `cbt.py`: runs a campaign and prints what it found."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Optional

import click
from rich.console import Console

from cbt_crypto import __version__
from cbt_crypto.archive.files import printable
from cbt_crypto.command_line import (
    SentenceCommand,
    needed,
    run_options,
    say_error,
    say_notes,
)
from cbt_crypto.engine import Engine
from cbt_crypto.engine.choice import check_same_engine, choose
from cbt_crypto.errors import RunError
from cbt_crypto.hosts import command_log, directories, marked_processes
from cbt_crypto.hosts.command_log import CommandLog
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.plan.cells import Cell
from cbt_crypto.plan.file import Campaign, load
from cbt_crypto.plan.layout import drives_of, site_of
from cbt_crypto.plan.order import Pacing, cells_of
from cbt_crypto.plan.predict import Earlier, Forecast, in_words, noted, predict
from cbt_crypto.plan.show import show_plan
from cbt_crypto.plan.steps import Plan, plan
from cbt_crypto.run import devices
from cbt_crypto.run.campaign import Holding, Outcome, run_campaign
from cbt_crypto.run.detached import detach
from cbt_crypto.run.interrupt import Abandoned, interrupts
from cbt_crypto.run.journal import devices_before
from cbt_crypto.run.locks import hosts_held, locked, own_id, this_run
from cbt_crypto.run.preflight import check
from cbt_crypto.run.progress import CampaignProgress
from cbt_crypto.run.resume import changes, check_archive, finished_cells, short_named
from cbt_crypto.run.take_down import clear, to_clear
from cbt_crypto.units import counted


@click.command(cls=SentenceCommand, context_settings={"help_option_names": ["-h", "--help"]})
@run_options
@click.option("--plan", "plan_only", is_flag=True, help="Print what would run; touch nothing.")
@click.option(
    "--like",
    type=click.Path(path_type=Path),
    metavar="ARCHIVE",
    help="Predict how long it takes, from an earlier archive or a short pilot's; with --plan print "
    "that, else the report says how it came out.",
)
@click.option(
    "--detach",
    "detached",
    is_flag=True,
    help="Run on when this terminal, or the ssh that brought it, ends; see cbt-crypto watch.",
)
@click.version_option(__version__)
def cbt(  # noqa: PLR0913 - one parameter an option
    *, config_file: Path, archive: Optional[Path], conf: Optional[Path], checkout: Optional[Path],
    plan_only: bool, like: Optional[Path], only: tuple[str, ...], again: tuple[str, ...],
    no_report: bool, verbose: bool, detached: bool,
) -> None:  # fmt: skip
    """Deploy each configuration of CONFIG.yaml, prove it, measure it, and print how they compare.

    Exit status: 0 when every cell was measured and proved; 1 when something failed midway (what
    was measured is kept); 2 when nothing was touched because something will not do.
    """
    console = Console()
    campaign = with_conf(load(config_file), conf)
    say_notes(config_file, campaign.notes)
    if plan_only:
        engine = choose(checkout)
        check.check_benchmarks(engine, cells_of(campaign))
        _tell_engine(engine, console)
        show_plan(plan(campaign, only, _finished(archive, campaign, again)), console, like)
        return
    archive = needed(archive)
    if detached:
        arguments = [word for word in sys.argv[1:] if word != "--detach"]
        sys.exit(detach(archive, arguments, partial(_say, console)))
    show = partial(_say, console) if verbose else None
    try:
        with command_log.recording(show) as log:
            outcome = _run(
                campaign,
                archive,
                config_file,
                checkout,
                only,
                again,
                console,
                log=log,
                with_report=not no_report,
                like=like,
            )
    except Abandoned:
        # Without a look back: not even the threads and connections of this process are waited for.
        os._exit(RunError.exit_status)
    if not no_report:
        # Here, because a node that only measures need not have the libraries of the report.
        from cbt_crypto import report  # noqa: PLC0415

        report.publish(archive, console, only)
    sys.exit(_status(outcome))


def with_conf(campaign: Campaign, conf: Optional[Path]) -> Campaign:
    """The campaign with another ceph.conf to start from, when there is one."""
    if conf is None:
        return campaign
    cluster = campaign.cluster.model_copy(update={"conf_file": str(conf)})
    return replace(campaign, cluster=cluster)


def _finished(archive: Optional[Path], campaign: Campaign, again: tuple[str, ...] = ()) -> set[str]:
    """Paths of the cells that need not be measured: they are, or are known well enough."""
    if archive is None or not archive.is_dir():
        return set()
    cells = cells_of(campaign)
    done = finished_cells(archive, cells, again)
    return done | Pacing(campaign, cells, archive, done).settled()


def _run(  # noqa: PLR0913 - the command's own parameters
    campaign: Campaign, archive: Path, config_file: Path, checkout: Optional[Path],
    only: tuple[str, ...], again: tuple[str, ...], console: Console, *,
    log: CommandLog, with_report: bool, like: Optional[Path] = None,
) -> Outcome:  # fmt: skip
    engine = choose(checkout)
    check_archive(archive, campaign)
    check_same_engine(archive, engine)
    _rename_short(archive, cells_of(campaign))
    todo = plan(campaign, only, _finished(archive, campaign, again))
    _tell_engine(engine, console)
    _tell_changes(archive, campaign, console)
    clear_archive(archive, console, log)
    if not todo.to_measure:
        console.print("every cell is in the archive already")
        return Outcome()
    if like is not None:
        prediction = predict(todo, Earlier(like))
        _say(console, in_words(prediction, like))
        todo = replace(todo, predicted=noted(prediction, like))
    _check_devices(todo, archive, engine)
    for host_check in check.check(campaign, engine, todo.to_measure):
        if host_check.warning:
            _say(console, f"warning: {host_check.host}: {host_check.warning}")
    if with_report:
        load_in_background()
    return _measure(todo, archive, config_file, engine, console, log)


def _rename_short(archive: Path, cells: Sequence[Cell]) -> None:
    """Give cells of an older version's archive their present names."""
    if short_named(archive, cells):
        with locked(archive):
            for old, new in short_named(archive, cells):
                old.rename(new)


def _tell_engine(engine: Engine, console: Console) -> None:
    commit = f" at {engine.commit[:12]}" if engine.commit else ""
    console.print(f"engine: {engine.name} {engine.version}{commit}", highlight=False)


def _check_devices(todo: Plan, archive: Path, engine: Engine) -> None:
    """An archive is gone on with on the devices that it knows, whatever is on others by now."""
    if devices_before(archive):
        cluster = todo.campaign.cluster
        remote = Remote(engine.common, cluster.tmp_dir, cluster.user)
        devices.check_same(archive, devices.read_identities(remote, todo.campaign, todo.cells))


def clear_archive(archive: Path, console: Console, log: CommandLog) -> None:
    """Take down what this user's killed runs of the archive left behind."""
    directories.clear_dead()
    if to_clear(archive):
        with locked(archive):
            log.open(archive)
            # Anew: somebody else may have taken it down before this held the archive.
            clear(archive, to_clear(archive), lambda text: _say(console, text))


def _measure(
    todo: Plan,
    archive: Path,
    config_file: Path,
    engine: Engine,
    console: Console,
    log: CommandLog,
) -> Outcome:
    forecast = Forecast(todo, archive)
    progress = CampaignProgress(console, len(todo.to_measure), todo.seconds, forecast, archive)
    cluster, run = todo.campaign.cluster, own_id()
    remote = Remote(engine.common, cluster.tmp_dir, cluster.user)
    site = replace(site_of(cluster), drives=drives_of(cluster))
    held = hosts_held(remote, site, run, this_run(archive))
    with interrupts(progress.note) as handled, marked_processes.named(run):
        try:
            with held as hold, locked(archive):
                log.open(archive)
                holding = Holding(run, hold.check, handled)
                return run_campaign(todo, engine, archive, config_file, progress, holding)
        except KeyboardInterrupt as error:
            # Before anything was deployed.
            return Outcome(error=error)


def _tell_changes(archive: Path, campaign: Campaign, console: Console) -> None:
    difference = changes(archive, campaign)
    if difference is None:
        return
    unchanged, anew = difference
    kept = f"{counted(unchanged, 'cell')} {'is' if unchanged == 1 else 'are'} kept"
    to_run = f"{len(anew)} {'is' if len(anew) == 1 else 'are'} to be run"
    _say(console, f"the file has changed: {kept}, {to_run}")
    for cell in anew:
        _say(console, f"  {cell.label}")


def _say(console: Console, text: str) -> None:
    console.print(printable(text), highlight=False, markup=False, soft_wrap=True)


def _status(outcome: Outcome) -> int:
    if isinstance(outcome.error, KeyboardInterrupt):
        click.echo("interrupted; run the same command again to go on", err=True)
    elif outcome.error is not None:
        say_error(outcome.error)
    return 1 if outcome.error is not None or outcome.failed else 0


def load_in_background() -> None:
    """Start importing what takes seconds; who needs it sooner waits, as for any import."""
    threading.Thread(target=_load, daemon=True).start()


def _load() -> None:
    # What is missing is told by the report itself, when it is made.
    with contextlib.suppress(ImportError):
        for name in ("cbt_crypto.report", "arch.bootstrap", "matplotlib.figure"):
            importlib.import_module(name)

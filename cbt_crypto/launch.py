"""Runs a campaign from the command line and prints what it found."""

from __future__ import annotations

import contextlib
import importlib
import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Optional

import click
from rich.console import Console
from rich.text import Text

from cbt_crypto.archive.files import printable
from cbt_crypto.command_line import RunOptions, say_error, say_notes
from cbt_crypto.engine import Engine
from cbt_crypto.engine.choice import check_same_engine, choose
from cbt_crypto.errors import CampaignError, RunError, UsageError
from cbt_crypto.hosts import command_log, directories, marked_processes
from cbt_crypto.hosts.command_log import CommandLog
from cbt_crypto.plan.cells import Cell
from cbt_crypto.plan.file import Campaign, read_campaign
from cbt_crypto.plan.layout import whole_site
from cbt_crypto.plan.order import cells_of
from cbt_crypto.plan.predict import Earlier, Forecast, in_words, noted, predict
from cbt_crypto.plan.steps import Plan, plan
from cbt_crypto.plan_command import archive_of, finished, tell_engine, with_conf
from cbt_crypto.run import devices
from cbt_crypto.run.campaign import Holding, Outcome, run_campaign
from cbt_crypto.run.detached import detach
from cbt_crypto.run.environment import ceph_of
from cbt_crypto.run.interrupt import Abandoned, interrupts
from cbt_crypto.run.journal import devices_before, own_left_over
from cbt_crypto.run.locks import hosts_held, locked, own_id, this_run
from cbt_crypto.run.preflight import check
from cbt_crypto.run.progress import CampaignProgress
from cbt_crypto.run.resume import changes, check_archive, short_named
from cbt_crypto.run.take_down import clear, to_clear
from cbt_crypto.units import counted


def launch(options: RunOptions) -> None:
    """Run what is left of a campaign, print its tables, and end the program with its status."""
    console = Console()
    campaign = with_conf(read_campaign(options.config_file), options.conf)
    say_notes(options.config_file, campaign.notes)
    archive = archive_of(campaign, options)
    if options.archive is None:
        _say(console, f"archive: {archive}")
        try:
            archive.parent.mkdir(exist_ok=True)
        except OSError as error:
            wrong = f"{error.strerror}; name an archive with -a"
            raise UsageError(f"{archive.parent}: {wrong}") from None
    notification = _words(options.notify)
    if options.detached:
        arguments = [word for word in sys.argv[1:] if word != "--detach"]
        arguments += [] if options.archive else ["-a", str(archive)]
        sys.exit(detach(archive, arguments, partial(_say, console)))
    with _notifying(notification, archive):
        sys.exit(_run_and_report(campaign, archive, options, console))


def _run_and_report(
    campaign: Campaign, archive: Path, options: RunOptions, console: Console
) -> int:
    command_shown = partial(_say, console) if options.verbose else None
    try:
        with command_log.recording(command_shown) as log:
            outcome = _run(campaign, archive, options, console, log)
    except Abandoned:
        # Without a look back: not even the threads and connections of this process are waited for.
        os._exit(RunError.exit_status)
    if not options.no_report:
        # Here, because a node that only measures need not have the libraries of the report.
        from cbt_crypto import report  # noqa: PLC0415

        try:
            report.publish(archive, console, options.only)
        except KeyboardInterrupt:
            say_error(f"interrupted; for the report run: cbt-crypto report {archive}")
            return _status(outcome) or RunError.exit_status
        except UsageError:
            # An archive that was moved away meanwhile is the outcome's to tell of.
            if outcome.error is None:
                raise
    return _status(outcome)


def _words(notify: Optional[str]) -> list[str]:
    try:
        words = shlex.split(notify or "")
    except ValueError as error:
        raise UsageError(f"--notify {notify!r}: {error}; quote it as for a shell") from None
    if notify is not None and (not words or shutil.which(words[0]) is None):
        raise UsageError(f"--notify {notify!r}: there is no such program; name one to run")
    return words


@contextlib.contextmanager
def _notifying(command: Sequence[str], archive: Path) -> Iterator[None]:
    """Run the command once the block has ended, however it ended; its own failure is only told."""
    status = RunError.exit_status
    try:
        yield
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else status
        raise
    except CampaignError as error:
        status = error.exit_status
        raise
    finally:
        if command:
            sys.stdout.flush()
            _notify([*command, str(archive), str(status)])


def _notify(command: Sequence[str]) -> None:
    try:
        ended = subprocess.run(command, check=False, stdin=subprocess.DEVNULL).returncode
        fault = f"exit status {ended}" if ended else ""
    except OSError as error:
        fault = error.strerror or str(error)
    if fault:
        say_error(f"--notify: {command[0]}: {fault}")


def _run(
    campaign: Campaign, archive: Path, options: RunOptions, console: Console, log: CommandLog
) -> Outcome:
    engine = choose(options.checkout)
    try:
        check_archive(archive, campaign)
    except UsageError as error:
        # A journal that cannot be read may be what is wrong: that is said, and nothing more.
        with contextlib.suppress(CampaignError):
            if own_left_over(archive):
                hint = f"cbt-crypto cleanup {shlex.quote(str(archive))}"
                error = UsageError(f"{error}\nwhat a killed run left is still there: {hint}")
        raise error from None
    check_same_engine(archive, engine)
    _rename_short(archive, cells_of(campaign))
    todo = plan(campaign, options.only, finished(archive, campaign, options.again))
    tell_engine(engine, console)
    _tell_changes(archive, campaign, console)
    clear_archive(archive, console, log)
    if not todo.to_measure:
        had = f"; its hosts had Ceph {ceph}" if (ceph := ceph_of(archive)) else ""
        _say(console, f"every cell is in the archive already{had}; --again measures anew")
        return Outcome()
    if options.like is not None:
        prediction = predict(todo, Earlier(options.like))
        _say(console, in_words(prediction, options.like))
        todo = replace(todo, predicted=noted(prediction, options.like))
    _check_devices(todo, archive, engine)
    for host_check in check.check(campaign, engine, todo.to_measure):
        if host_check.warning:
            _say(console, f"warning: {host_check.host}: {host_check.warning}")
    if not options.no_report:
        threading.Thread(target=_import_report, daemon=True).start()
    return _measure(todo, archive, options.config_file, engine, console, log)


def _rename_short(archive: Path, cells: Sequence[Cell]) -> None:
    """Give cells of an older version's archive their present names."""
    if short_named(archive, cells):
        with locked(archive):
            for old, new in short_named(archive, cells):
                old.rename(new)


def _check_devices(todo: Plan, archive: Path, engine: Engine) -> None:
    """An archive is gone on with on the devices that it knows, whatever is on others by now."""
    if devices_before(archive):
        remote = engine.remote(todo.campaign.cluster)
        devices.check_same(archive, devices.read_identities(remote, todo.campaign, todo.cells))


def clear_archive(archive: Path, console: Console, log: CommandLog) -> None:
    """Tear down what this user's killed runs of the archive left behind."""
    directories.clear_dead()
    if to_clear(archive):
        with locked(archive):
            log.open(archive)
            # Anew: somebody else may have taken it down before this held the archive.
            clear(archive, to_clear(archive), lambda text: _say(console, text))


def _measure(
    todo: Plan, archive: Path, config_file: Path, engine: Engine, console: Console, log: CommandLog
) -> Outcome:
    forecast = Forecast(todo, archive)
    progress = CampaignProgress(console, len(todo.to_measure), todo.seconds, forecast, archive)
    run, site = own_id(), whole_site(todo.campaign)
    held = hosts_held(engine.remote(todo.campaign.cluster), site, run, this_run(archive))
    with interrupts(progress.ending) as handled, marked_processes.named(run):
        try:
            with held as hold, locked(archive):
                # Another run may have been in it while the hosts were asked.
                check_archive(archive, todo.campaign)
                log.open(archive)
                holding = Holding(run, hold.check, handled)
                outcome = run_campaign(todo, engine, archive, config_file, progress, holding)
        except KeyboardInterrupt as error:
            # Before anything was deployed.
            return Outcome(error=error)
        except Abandoned:
            hosts = ", ".join(site.hosts)
            with contextlib.suppress(Exception):
                say_error(f"stopped at once; {hosts} may be held until the next start or cleanup")
            raise
        if handled.is_interrupted and outcome.error is None:
            outcome.error = KeyboardInterrupt()
        return outcome


def _tell_changes(archive: Path, campaign: Campaign, console: Console) -> None:
    difference = changes(archive, campaign)
    if difference is None:
        return
    unchanged, gone, anew = difference
    kept = f"{counted(unchanged, 'cell')} {'is' if unchanged == 1 else 'are'} kept"
    to_run = f"{len(anew)} {'is' if len(anew) == 1 else 'are'} to be run"
    _say(console, f"the campaign has changed: {kept}, {to_run}")
    for cell in anew:
        _say(console, f"  {cell.label}")
    if gone:
        moved = f"{counted(gone, 'cell')} that it has no more {'goes' if gone == 1 else 'go'}"
        _say(console, f"{moved} to results/superseded, and into no report; --only keeps them")


def _say(console: Console, text: str) -> None:
    console.print(Text(printable(text)), soft_wrap=True)


def _status(outcome: Outcome) -> int:
    if isinstance(outcome.error, KeyboardInterrupt):
        click.echo("interrupted; run the same command again to go on", err=True)
    elif outcome.error is not None:
        say_error(outcome.error)
    return 1 if outcome.error is not None or outcome.failed else 0


def _import_report() -> None:
    # It takes seconds; who needs it sooner waits. What is missing the report itself tells.
    with contextlib.suppress(ImportError):
        importlib.import_module("cbt_crypto.report")

"""`cbt-crypto check`, `watch`, `stop` and `cleanup`: what is done about a campaign's hosts."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Optional

import click
from rich.console import Console

from cbt_crypto import command_line
from cbt_crypto.archive.files import printable
from cbt_crypto.command_line import archive_argument, command, say
from cbt_crypto.engine.choice import choose
from cbt_crypto.errors import UsageError
from cbt_crypto.hosts import command_log, directories
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.plan.file import Campaign, read_campaign
from cbt_crypto.plan.order import cells_of
from cbt_crypto.plan.steps import plan
from cbt_crypto.run import devices, take_down
from cbt_crypto.run.detached import stop as stop_campaign
from cbt_crypto.run.detached import watch as watch_archive
from cbt_crypto.run.detached import watch_steps
from cbt_crypto.run.journal import Deployment, own_left_over, path_of
from cbt_crypto.run.locks import describe, locked
from cbt_crypto.run.preflight import check as preflight
from cbt_crypto.run.preflight import table
from cbt_crypto.run.preflight.survey import HostFinding
from cbt_crypto.run.resume import check_own
from cbt_crypto.units import counted


@command("cbt-crypto check campaign.yaml", "cbt-crypto check --fix-commands campaign.yaml > fix.sh")
@click.argument("config_file", type=click.Path(path_type=Path), metavar="CONFIG.yaml")
@command_line.checkout_option
@click.option("--hosts/--no-hosts", default=True, help="Check the hosts too (the default).")
@click.option(
    "--fix-commands", is_flag=True,
    help="Print a script that fixes what is missing. Read it before you run it.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
def check(
    config_file: Path, checkout: Optional[Path], hosts: bool, fix_commands: bool, as_json: bool
) -> None:
    """Check a campaign file and the hosts it names. Changes nothing.

    Exits with 2 if a requirement is not met. Each failed check shows how to fix it.
    """
    if as_json and fix_commands:
        raise UsageError("--json and --fix-commands both print to the terminal; give one of them")
    campaign = read_campaign(config_file)
    command_line.say_notes(config_file, campaign.notes)
    cells = cells_of(campaign)
    plan(campaign)
    devices.check_distinct(campaign, cells)
    preflight.check_cells(campaign, cells)
    if hosts:
        engine = choose(checkout)
        answers = preflight.survey_campaign(campaign, engine, cells)
    else:
        answers = preflight.of_file(campaign, cells)
    if as_json:
        is_good, found = not any(answer.error for answer in answers), list(map(asdict, answers))
        document = {"format": 1, "file": str(config_file), "ok": is_good, "findings": found}
        click.echo(json.dumps(document, indent=2))
    elif hosts:
        _print_table(engine.remote(campaign.cluster), campaign, answers, fix_commands)
    else:
        table.show(answers, Console())
    if any(answer.error for answer in answers):
        sys.exit(UsageError.exit_status)
    if hosts:
        # Raises where two paths lead to one device.
        devices.read_identities(engine.remote(campaign.cluster), campaign, cells)
    if not as_json:
        click.echo(
            err=fix_commands,
            message=f"{printable(str(config_file))}: good: "
            f"{counted(len(campaign.configurations), 'configuration')}, "
            f"{counted(len(campaign.scenarios), 'scenario')}, {counted(len(cells), 'cell')}"
            f"{'' if hosts else '; neither hosts nor options of Ceph were looked at'}",
        )


def _print_table(
    remote: Remote, campaign: Campaign, answers: Sequence[HostFinding], fix_commands: bool
) -> None:
    """Print what was found; of a script that fixes it, a pipe or a file gets the script alone."""
    table.show(answers, Console(stderr=fix_commands))
    if fix_commands:
        manager = table.managers(remote, answers)
        say("\n".join(table.script(answers, manager, campaign.cluster.user)))
    else:
        for hint in preflight.how_to_fix(answers):
            command_line.say_error(hint)


@command(
    "cbt-crypto cleanup --plan results/campaign-2026-11-24",
    "cbt-crypto cleanup results/campaign-2026-11-24",
)
@archive_argument
@click.option("--plan", "plan_only", is_flag=True, help="List what would be removed. No changes.")
@click.option("-v", "--verbose", is_flag=True, help="With --plan: print the commands, too.")
@click.option(
    "--foreign", is_flag=True,
    help="Include another user's or machine's runs that only ARCHIVE knows, or that hold hosts.",
)  # fmt: skip
@click.option("--forget", is_flag=True, help="Leave everything there, and stop tracking it.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def cleanup(
    archive: Path, plan_only: bool, verbose: bool, foreign: bool, forget: bool, yes: bool
) -> None:
    """Remove what an interrupted campaign left on its hosts.

    It removes only what your runs into ARCHIVE created. `run` does the same before it continues.
    """
    # What is left of a run is known without its archive, too.
    if not path_of(archive).exists() and not own_left_over(archive):
        if not archive.is_dir():
            sentence = "there is no such directory; name the archive of a campaign"
            raise UsageError(f"{archive}: {sentence}")
        # Nothing in it is blamed: it may be any directory.
        raise UsageError(
            f"{archive}: is no archive of a campaign, as it has no results/journal.jsonl; "
            "name the directory that the run wrote to"
        )
    check_own(archive)
    left = take_down.to_clear(archive, foreign, forget)
    if not left:
        say(f"{archive}: nothing is left on any host that its journal knows of")
        return
    if plan_only:
        take_down.show_plan(archive, left, say, verbose)
        return
    _agree(yes, "Forget it, and leave it where it is?" if forget else "Remove it?", left)
    directories.clear_dead()
    with locked(archive), command_log.recording() as log:
        log.open(archive)
        # Somebody else may have taken it down before this held the archive.
        runs = {deployment.run for deployment in take_down.to_clear(archive, foreign, forget)}
        left = [deployment for deployment in left if deployment.run in runs]
        if forget:
            take_down.forget(archive, left, say, is_gone=foreign)
        else:
            take_down.clear(archive, left, say, insist=True, is_gone=foreign)


def _agree(yes: bool, question: str, left: Sequence[Deployment]) -> None:
    if yes:
        return
    for deployment in left:
        say(f"{describe(deployment.by)}: {deployment.describe()}")
    if not sys.stdin.isatty():
        raise UsageError(
            "there is no terminal to ask on; check the list with --plan, then add --yes"
        )
    if not click.confirm(question):
        raise UsageError("nothing was touched")


@command(
    "cbt-crypto watch results/campaign-2026-11-24",
    "cbt-crypto watch --json results/campaign-2026-11-24 | jq -r .phase",
)
@archive_argument
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each step.")
def watch(archive: Path, as_json: bool) -> None:
    """Show a running campaign's progress and the results so far.

    On a terminal, and with --json, it follows the campaign until the end; Ctrl-C stops watching,
    not the campaign. Elsewhere it prints once. Changes nothing.
    """
    with contextlib.suppress(KeyboardInterrupt):
        if as_json:
            watch_steps(archive, click.echo)
        else:
            watch_archive(archive, Console())


@command("cbt-crypto stop results/campaign-2026-11-24")
@archive_argument
def stop(archive: Path) -> None:
    """Stop a running campaign and wait until its cluster is gone.

    What was measured is kept. Works only on the machine where the campaign runs.
    """
    stop_campaign(archive, say)

"""The command `cbt-crypto`: what stands around a campaign."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

import click
from click.shell_completion import get_completion_class
from rich.console import Console

from cbt_crypto import __version__
from cbt_crypto.archive.files import printable
from cbt_crypto.command_line import SentenceGroup, checkout_option, say, say_notes
from cbt_crypto.engine import Engine
from cbt_crypto.engine.choice import choose
from cbt_crypto.errors import UsageError
from cbt_crypto.hosts import command_log, directories
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.lab.command import lab
from cbt_crypto.main import cbt
from cbt_crypto.plan.file import Campaign, json_schema, load
from cbt_crypto.plan.order import cells_of
from cbt_crypto.plan.steps import plan
from cbt_crypto.report_commands import compare, gate, pack_command, report
from cbt_crypto.run import devices, take_down
from cbt_crypto.run.detached import stop as stop_campaign
from cbt_crypto.run.detached import watch as watch_archive
from cbt_crypto.run.init.command import init
from cbt_crypto.run.journal import Deployment
from cbt_crypto.run.locks import describe, locked
from cbt_crypto.run.preflight import check as preflight
from cbt_crypto.run.preflight import table
from cbt_crypto.run.resume import check_own
from cbt_crypto.units import counted


@click.group(cls=SentenceGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def cbt_crypto() -> None:
    """What stands around a campaign: checks, reports, the file's schema, the lab."""


@cbt_crypto.command()
@click.argument("config_file", type=click.Path(path_type=Path), metavar="CONFIG.yaml")
@checkout_option
@click.option("--hosts/--no-hosts", default=True, help="Look at the hosts too (the default).")
@click.option(
    "--fix-commands", is_flag=True,
    help="Print a script of the commands that mend it, for a person to read and run.",
)  # fmt: skip
def check(config_file: Path, checkout: Optional[Path], hosts: bool, fix_commands: bool) -> None:
    """Validate a campaign's file, and print what its hosts offer. Touches nothing.

    Exit status 2 when something will not do: then every such field says how to mend it.
    """
    campaign = load(config_file)
    say_notes(config_file, campaign.notes)
    cells = cells_of(campaign)
    plan(campaign)
    if hosts:
        engine = choose(checkout)
        answers = preflight.survey_campaign(campaign, engine, cells)
        # The script alone is what a pipe or a file gets.
        table.show(answers, Console(stderr=fix_commands))
        if fix_commands:
            manager = table.managers(_remote(engine, campaign), answers)
            say("\n".join(table.script(answers, manager, campaign.cluster.user)))
        if any(answer.error for answer in answers):
            sys.exit(UsageError.exit_status)
        # Raises where two paths lead to one device.
        devices.read_identities(_remote(engine, campaign), campaign, cells)
    click.echo(
        err=fix_commands,
        message=f"{printable(str(config_file))}: good: "
        f"{counted(len(campaign.configurations), 'configuration')}, "
        f"{counted(len(campaign.scenarios), 'scenario')}, {counted(len(cells), 'cell')}",
    )


def _remote(engine: Engine, campaign: Campaign) -> Remote:
    return Remote(engine.common, campaign.cluster.tmp_dir, campaign.cluster.user)


@cbt_crypto.command()
@click.argument("archive", type=click.Path(path_type=Path), metavar="ARCHIVE")
@click.option("--plan", "plan_only", is_flag=True, help="Print what would be done; touch nothing.")
@click.option(
    "--foreign",
    is_flag=True,
    help="Also what ARCHIVE alone says: of another user's runs, or from another machine.",
)
@click.option("--forget", is_flag=True, help="Touch nothing, and give up what is left there.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def cleanup(archive: Path, plan_only: bool, foreign: bool, forget: bool, yes: bool) -> None:
    """Take down what your runs into ARCHIVE left on their hosts: that and nothing else.

    For a campaign that was killed and shall not go on; cbt.py does the same when it does.
    """
    if not archive.is_dir():
        raise UsageError(f"{archive}: there is no such directory; name the archive of a campaign")
    check_own(archive)
    left = take_down.to_clear(archive, foreign)
    if not left:
        say(f"{archive}: nothing is left on any host that its journal knows of")
        return
    if plan_only:
        take_down.show_plan(archive, left, say)
        return
    _agree(yes, "Forget it, and leave it where it is?" if forget else "Take it down?", left)
    directories.clear_dead()
    with locked(archive), command_log.recording() as log:
        log.open(archive)
        # Somebody else may have taken it down before this held the archive.
        runs = {deployment.run for deployment in take_down.to_clear(archive, foreign)}
        left = [deployment for deployment in left if deployment.run in runs]
        if forget:
            take_down.forget(archive, left)
        else:
            take_down.clear(archive, left, say, insist=True)


def _agree(yes: bool, question: str, left: Sequence[Deployment]) -> None:
    """Raise UsageError unless somebody says yes."""
    if yes:
        return
    for deployment in left:
        say(f"{describe(deployment.by)}: {deployment.describe()}")
    if not sys.stdin.isatty():
        raise UsageError("nobody is there to ask; look at it with --plan, and say --yes")
    if not click.confirm(question):
        raise UsageError("nothing was touched")


@cbt_crypto.command()
@click.argument("archive", type=click.Path(path_type=Path), metavar="ARCHIVE")
def watch(archive: Path) -> None:
    """Show where the campaign that runs into ARCHIVE is, and its tables so far. Touches nothing.

    Until it ends, on a terminal; else once. Ctrl-C ends the watching and not the campaign.
    """
    with contextlib.suppress(KeyboardInterrupt):
        watch_archive(archive, Console())


@cbt_crypto.command()
@click.argument("archive", type=click.Path(path_type=Path), metavar="ARCHIVE")
def stop(archive: Path) -> None:
    """End the campaign that runs into ARCHIVE as Ctrl-C does, and wait until its cluster is down.

    What is measured is kept. Only on the machine that it runs on.
    """
    stop_campaign(archive, say)


@cbt_crypto.command("lay-out")
@click.argument("archive", type=click.Path(path_type=Path), metavar="ARCHIVE")
@click.argument("out", type=click.Path(path_type=Path), metavar="OUT")
def lay_out_archive(archive: Path, out: Path) -> None:
    """Write fio's results of ARCHIVE into OUT as CBT's report tools look for them.

    Each configuration becomes an archive OUT/NAME, so that CBT's comparison report has their names.
    CBT's tools of before August 2025 read ARCHIVE as it is.
    """
    from cbt_crypto.results.foreign import lay_out  # noqa: PLC0415 - it needs numpy

    say(f"written: {out}, {lay_out(archive, out)} results")


@cbt_crypto.command()
@click.option("--report", "of_report", is_flag=True, help="The schema of report.json instead.")
def schema(of_report: bool) -> None:
    """Print the JSON Schema of the campaign file, for editors; or that of report.json."""
    document = json_schema()
    if of_report:
        from cbt_crypto.report.document import report_schema  # noqa: PLC0415

        document = report_schema()
    click.echo(json.dumps(document, indent=2))


@cbt_crypto.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what makes SHELL complete the commands of this program and of cbt.py.

    \b
      cbt-crypto completion bash > ~/.local/share/bash-completion/completions/cbt-crypto
    """
    kind = get_completion_class(shell)
    for name, program in (("cbt-crypto", cbt_crypto), ("cbt.py", cbt)):
        variable = f"_{name.replace('-', '_').replace('.', '_').upper()}_COMPLETE"
        if kind is not None:
            click.echo(kind(program, {}, name, variable).source())


for command in (init, report, compare, gate, pack_command, lab):
    cbt_crypto.add_command(command)

"""The command `cbt-crypto`: what stands around a campaign."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Optional

import click
from rich.console import Console

from cbt_crypto import __version__
from cbt_crypto.command_line import checkout_option
from cbt_crypto.engine.choice import choose
from cbt_crypto.engine.upstream.contribute.command import contribute_command
from cbt_crypto.errors import UsageError
from cbt_crypto.lab.command import lab
from cbt_crypto.main import clear_archive
from cbt_crypto.plan.cells import cells_of
from cbt_crypto.plan.file import json_schema, load
from cbt_crypto.plan.steps import plan
from cbt_crypto.report_command import compare as compare_command
from cbt_crypto.report_command import report as report_command
from cbt_crypto.run.preflight import check as preflight
from cbt_crypto.run.preflight import table
from cbt_crypto.sentences import SentenceGroup


@click.group(cls=SentenceGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def cbt_crypto() -> None:
    """What stands around a campaign: checks, reports, the file's schema, the lab."""


@cbt_crypto.command()
@click.argument("config_file", type=click.Path(path_type=Path), metavar="CONFIG.yaml")
@checkout_option
@click.option("--hosts/--no-hosts", default=True, help="Look at the hosts too (the default).")
def check(config_file: Path, checkout: Optional[Path], hosts: bool) -> None:
    """Validate a campaign's file, and print what its hosts offer. Touches nothing.

    Exit status 2 when something will not do: then every such field says how to mend it.
    """
    campaign = load(config_file)
    cells = cells_of(campaign)
    plan(campaign)
    if hosts:
        found = preflight.look(campaign, choose(checkout), cells)
        table.show(found, Console())
        if any(one.error for one in found):
            sys.exit(UsageError.exit_status)
    click.echo(
        f"{config_file}: good: {len(campaign.configurations)} configurations, "
        f"{len(campaign.scenarios)} scenarios, {len(cells)} cells"
    )


@cbt_crypto.command()
@click.argument("archive", type=click.Path(path_type=Path), metavar="ARCHIVE")
def cleanup(archive: Path) -> None:
    """Take down what runs into ARCHIVE left on their hosts: that and nothing else.

    For a campaign that was killed and shall not go on; cbt.py does the same when it does.
    """
    if not archive.is_dir():
        raise UsageError(f"{archive}: there is no such directory; name the archive of a campaign")
    if not clear_archive(archive, Console(), insist=True):
        click.echo(f"{archive}: nothing is left on any host that its journal knows of")


@cbt_crypto.command()
def schema() -> None:
    """Print the JSON Schema of the campaign file, for editors."""
    click.echo(json.dumps(json_schema(), indent=2))


for command in (report_command, compare_command, lab, contribute_command):
    cbt_crypto.add_command(command)

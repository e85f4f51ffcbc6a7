"""The command `cbt-crypto init`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Optional

import click
from pydantic import TypeAdapter, ValidationError
from rich.console import Console

from cbt_crypto.archive.files import printable
from cbt_crypto.engine import Engine
from cbt_crypto.engine.contract import embedded
from cbt_crypto.errors import RunError, UsageError
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.plan.cells import cells_of
from cbt_crypto.plan.file import ClusterSection, load, load_data
from cbt_crypto.plan.file.field_types import UserName
from cbt_crypto.run.init import campaign_file, hardware, table
from cbt_crypto.run.init.host_list import expand
from cbt_crypto.run.init.roles import propose
from cbt_crypto.run.init.start import ARTICLES, fitting, start_from
from cbt_crypto.run.preflight import check
from cbt_crypto.run.preflight.survey import HostFinding
from cbt_crypto.units import counted

_TMP_DIR = str(ClusterSection.model_fields["tmp_dir"].default)


@click.command("init")
@click.option(
    "--hosts",
    "host_list",
    required=True,
    metavar="LIST",
    help="The hosts, as for pdsh -w: 'osd[0-4],client[0-4]'.",
)
@click.option("--user", metavar="NAME", help="User for ssh. Default: the one who runs this.")
@click.option(
    "--article",
    type=click.Choice(ARTICLES),
    help="Start from a published experiment's file.",
)
@click.option(
    "--time",
    "seconds",
    type=click.IntRange(1, 86400),
    metavar="SECONDS",
    help="Measure each cell so long, instead of 60 s or what the article has; ramps are no longer.",
)
@click.option(
    "-o", "output", type=click.Path(path_type=Path), default=Path("campaign.yaml"),
    show_default=True, metavar="FILE", help="The file to write; it must not exist.",
)  # fmt: skip
def init(
    host_list: str, user: Optional[str], article: Optional[str], seconds: Optional[int],
    output: Path,
) -> None:  # fmt: skip
    """Ask hosts what they have, and write a campaign file that fits them. Touches nothing.

    Exit status 1 when the file is written and something on the hosts is still to be mended.
    """
    if os.path.lexists(output):
        raise UsageError(f"{output}: is there already; name another file with -o")
    if user is not None:
        _check_user(user)
    console, engine = Console(), embedded()
    remote = Remote(engine.common, _TMP_DIR, user)
    names = expand(host_list)
    with console.status(f"asking {counted(len(names), 'host')} what they have"):
        hosts = hardware.look(remote, names, _TMP_DIR)
    table.show(hosts, console)
    proposal = propose(hosts)
    table.show_proposal(proposal, console)
    start = start_from(article, proposal, seconds)
    origin = f"configs/{article}.yaml" if article else "the quickstart's configurations"

    def text() -> str:
        return campaign_file.text(proposal, start, output.name, user, origin)

    with console.status("asking which configurations they can run"):
        start = fitting(start, load_data(output, campaign_file.data(text())), remote)
    for name, why in (*start.dropped.items(), *start.left_out.items()):
        click.echo(printable(f"left out: {name}: {why}"))
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(text())
    except OSError as error:
        raise UsageError(f"{output}: {error.strerror}; name another file with -o") from None
    with console.status(f"checking {output}"):
        remaining = _remaining(output, engine)
    _tell(output, remaining)


def _check_user(user: str) -> None:
    # ssh would take a name that begins with a dash for an option, and the file has it as it is.
    try:
        TypeAdapter(UserName).validate_python(user)
    except ValidationError:
        raise UsageError(
            f"--user {user!r} is no name of a user; write it as in user@host"
        ) from None


def _remaining(output: Path, engine: Engine) -> list[HostFinding]:
    campaign = load(output)
    return [
        finding for finding in check.look(campaign, engine, cells_of(campaign)) if finding.error
    ]


def _tell(output: Path, remaining: list[HostFinding]) -> None:
    for finding in remaining:
        click.echo(printable(f"error: {finding.host}: {finding.error}"))
    if remaining:
        click.echo(f"\nwritten: {output}; mend what stands above, then: cbt-crypto check {output}")
        sys.exit(RunError.exit_status)
    click.echo(f"\nwritten: {output}, and the hosts pass its check; next:")
    click.echo(f"  cbt.py --plan {output}\n  cbt.py -a archive {output}")

"""The command `cbt-crypto`: what stands around a campaign.

What reports are made with is loaded by `report` and `compare` alone: it takes seconds, and a node
that only measures need not have it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Optional

import click
from rich.console import Console

from cbt_crypto import __version__
from cbt_crypto.command_line import SentenceGroup, checkout_option
from cbt_crypto.engine.choice import choose
from cbt_crypto.engine.upstream.contribute.command import contribute_command
from cbt_crypto.errors import UsageError
from cbt_crypto.hosts import command_log
from cbt_crypto.lab.command import lab
from cbt_crypto.main import clear_archive
from cbt_crypto.plan.cells import cells_of
from cbt_crypto.plan.file import json_schema, load
from cbt_crypto.plan.steps import plan
from cbt_crypto.run.init.command import init
from cbt_crypto.run.preflight import check as preflight
from cbt_crypto.run.preflight import table

if TYPE_CHECKING:
    from cbt_crypto.report import Report


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
    with command_log.recording() as log:
        cleared = clear_archive(archive, Console(), log, insist=True)
    if not cleared:
        click.echo(f"{archive}: nothing is left on any host that its journal knows of")


@cbt_crypto.command()
def schema() -> None:
    """Print the JSON Schema of the campaign file, for editors."""
    click.echo(json.dumps(json_schema(), indent=2))


_OPTIONS = (
    click.option(
        "--only",
        multiple=True,
        metavar="PATTERN",
        help="Only cells whose label, as --plan prints it, contains this, and their baseline.",
    ),
    click.option("--loss", is_flag=True, help="Print percent lost instead of percent of baseline."),
    click.option("--anonymize", is_flag=True, help="Hide host names and addresses."),
    click.option(
        "--run-spread",
        "run_spread_percent",
        type=click.FloatRange(0, 100),
        metavar="PERCENT",
        help="Assumed spread between deployments where nothing was measured twice. Default: 2.",
    ),
)


def _with_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command()
@click.argument("archive", type=click.Path(path_type=Path))
@click.option(
    "--baseline",
    metavar="NAME",
    help="What counts as 100 %: a configuration, or DIMENSION=VALUE. Default: the campaign's.",
)
@_with_options
@click.option(
    "-o",
    "out_dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where to write the report's files. Default: the archive itself.",
)
def report(archive: Path, out_dir: Optional[Path], **options: Any) -> None:
    """Print the tables of ARCHIVE and write report.md, .csv, .json, .html and charts/."""
    from cbt_crypto.report import ReportOptions, build  # noqa: PLC0415

    _finish(build(archive, ReportOptions(**options)), out_dir or archive)


@click.command()
@click.argument("archives", nargs=-1, required=True, metavar="NAME=DIR ...")
@click.option("--baseline", metavar="NAME", help="Which one counts as 100 %. Default: the first.")
@_with_options
@click.option(
    "-o",
    "out_dir",
    type=click.Path(path_type=Path),
    required=True,
    metavar="OUT",
    help="Where to write the report's files.",
)
def compare(archives: tuple[str, ...], out_dir: Path, **options: Any) -> None:
    """Compare archives of one configuration each, upstream CBT's among them."""
    from cbt_crypto.report import ReportOptions  # noqa: PLC0415
    from cbt_crypto.report.comparison import compare as compare_archives  # noqa: PLC0415

    _finish(compare_archives(_named(archives), ReportOptions(**options)), out_dir)


def _named(texts: Sequence[str]) -> dict[str, Path]:
    named: dict[str, Path] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not (name and equals and path):
            raise UsageError(f"{text!r}: write NAME=DIR, a name for the archive and where it is")
        if name in named:
            raise UsageError(f"{name!r} names two archives; give each a name of its own")
        named[name] = Path(path)
    return named


def _finish(built: Report, out_dir: Path) -> None:
    from cbt_crypto.report import show, widened, write  # noqa: PLC0415

    show(built, widened(Console()))
    paths = write(built, out_dir)
    own = ", ".join(str(path) for path in paths if path.parent == out_dir)
    click.echo(f"\nwritten: {own} and {out_dir / 'charts'}/*.svg")


for command in (init, report, compare, lab, contribute_command):
    cbt_crypto.add_command(command)

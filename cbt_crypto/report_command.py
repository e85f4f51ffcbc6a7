"""`cbt-crypto report` and `cbt-crypto compare`.

What reports are made with is loaded by these commands alone: it takes seconds, and a node that only
measures need not have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Optional

import click
from rich.console import Console

from cbt_crypto.errors import UsageError

if TYPE_CHECKING:
    from cbt_crypto.report import Report

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

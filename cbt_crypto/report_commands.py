"""`cbt-crypto report`, `compare` and `pack`: what is made of archives.

What reports are made with is loaded when one is made: it takes seconds, and a node that only
measures need not have it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Optional

import click
from rich.console import Console
from rich.filesize import decimal

from cbt_crypto.archive.pack import Pack, is_pack, opened, pack, pack_summary
from cbt_crypto.errors import UsageError
from cbt_crypto.run.detached import changed, running

if TYPE_CHECKING:
    from cbt_crypto.report import Report, ReportOptions

#: Seconds after which a watched page reloads, and between looks at its archive.
_RELOAD_S, _LOOK_S = 10, 2.0


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
        "--spread-from",
        "spread_from",
        type=click.Path(path_type=Path),
        metavar="ARCHIVE",
        help="An archive measured in rounds, for how much deployments differ where each was one.",
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
@click.option(
    "--watch",
    "watched",
    is_flag=True,
    help="Write it again whenever a cell has ended, until the campaign does; the page reloads.",
)
@click.option(
    "--fresh",
    is_flag=True,
    help="Read every cell's files again, also those that have not changed since the last report.",
)
def report(
    archive: Path, out_dir: Optional[Path], watched: bool, fresh: bool, **options: Any
) -> None:
    """Print the tables of ARCHIVE and write report.md, .csv, .json, .html and charts/.

    ARCHIVE is a directory, or a pack that somebody sent; then its report goes to NAME-report.
    """
    from cbt_crypto.report import ReportOptions, build  # noqa: PLC0415

    if watched:
        if fresh:
            build(archive, ReportOptions(**options), fresh=True)
        _follow(archive, out_dir or archive, ReportOptions(**options))
    elif not is_pack(archive):
        _finish(build(archive, ReportOptions(**options), fresh=fresh), out_dir or archive)
    else:
        with opened(archive) as pack:
            if pack.is_summary:
                built = _reopened(pack, **options)
            else:
                built = build(pack.folder, ReportOptions(**options))
            _finish(built, out_dir or Path(f"{archive.name.partition('.')[0]}-report"))


def _follow(archive: Path, out_dir: Path, options: ReportOptions) -> None:
    """Write the report whenever a cell has ended; the last one's page does not reload."""
    from cbt_crypto.report import build, write  # noqa: PLC0415

    seen: Any = ...
    with contextlib.suppress(KeyboardInterrupt):
        while running(archive) is not None:
            now = changed(archive)
            if now != seen:
                write(build(archive, options), out_dir, reload_s=_RELOAD_S)
                click.echo(f"written: {out_dir / 'report.html'}, which reloads itself")
            seen = now
            time.sleep(_LOOK_S)
    _finish(build(archive, options), out_dir)


def _reopened(pack: Pack, only: Sequence[str], baseline: Optional[str], **options: Any) -> Report:
    """A summary's report; what has to be computed from its runs cannot be asked of it."""
    from cbt_crypto.report.anonymize import anonymized  # noqa: PLC0415
    from cbt_crypto.report.document import reopened  # noqa: PLC0415

    if only or baseline:
        raise UsageError("--only and --baseline need the runs; this pack is a summary alone")
    report = reopened(pack.report())
    loss = options["loss"] or report.options.loss
    report = replace(report, options=replace(report.options, loss=loss))
    return anonymized(report) if options["anonymize"] else report


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
    """Compare archives or packs, upstream CBT's archives among them.

    Archives of one configuration each are compared with one another. Where each holds several,
    as from two labs, these are compared within each, side by side as the dimension `hardware`.
    """
    from cbt_crypto.report import ReportOptions  # noqa: PLC0415
    from cbt_crypto.report.comparison import compare as compare_archives  # noqa: PLC0415

    with contextlib.ExitStack() as stack:
        paths = {name: _unpacked_path(path, stack) for name, path in _named(archives).items()}
        _finish(compare_archives(paths, ReportOptions(**options)), out_dir)


def _unpacked_path(path: Path, stack: contextlib.ExitStack) -> Path:
    """Where an archive is, unpacked for as long as `stack` lives."""
    if not is_pack(path) or _is_other(path):
        return path
    pack = stack.enter_context(opened(path))
    if pack.is_summary:
        raise UsageError(f"{path}: is a summary; compare needs a pack of the runs")
    return pack.folder


def _is_other(path: Path) -> bool:
    """Whether a file is no pack by name and by its first bytes: what somebody published, then."""
    try:
        with path.open("rb") as file:
            return path.suffix != ".zip" and file.read(2) != b"PK"
    except OSError:
        return False


@click.command("pack")
@click.argument("archive", type=click.Path(path_type=Path), metavar="ARCHIVE")
@click.option("--summary", is_flag=True, help="The report alone, without the files of its runs.")
@click.option("--anonymize", is_flag=True, help="Hide host names and addresses; needs --summary.")
@click.option(
    "-o", "target", type=click.Path(path_type=Path), metavar="FILE",
    help="The file to write. Default: ARCHIVE.zip here.",
)  # fmt: skip
def pack_command(archive: Path, summary: bool, anonymize: bool, target: Optional[Path]) -> None:
    """Make one file of ARCHIVE, to be sent: a zip that `report` and `compare` read."""
    if anonymize and not summary:
        raise UsageError(
            "--anonymize: files of runs name hosts in too many places to hide them all; "
            "add --summary"
        )
    target = target or Path(f"{archive.resolve().name}.zip")
    if summary:
        from cbt_crypto.report import ReportOptions, build  # noqa: PLC0415
        from cbt_crypto.report.document import document  # noqa: PLC0415

        summary_document = document(build(archive, ReportOptions(anonymize=anonymize)))
        pack_summary(summary_document, target, anonymized=anonymize)
    else:
        pack(archive, target)
    size = decimal(target.stat().st_size)
    click.echo(f"written: {target}, {size}; read it with: cbt-crypto report {target}")


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
    written = ", ".join(str(path) for path in paths if path.parent == out_dir)
    click.echo(f"\nwritten: {written} and {out_dir / 'charts'}/*.svg")

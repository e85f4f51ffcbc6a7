"""`cbt-crypto report`, `compare` and `pack`: what is made of archives.

What reports are made with is loaded when one is made: it takes seconds, and a node that only
measures need not have it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Optional

import click
from rich.console import Console
from rich.filesize import decimal

from cbt_crypto.archive.pack import Pack, is_pack, opened, pack, pack_summary
from cbt_crypto.command_line import say
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
                say(f"written: {out_dir / 'report.html'}, which reloads itself")
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
    say(f"written: {target}, {size}; read it with: cbt-crypto report {target}")


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
    say(f"\nwritten: {written} and {out_dir / 'charts'}/*.svg")


def _percent(ctx: click.Context, option: click.Parameter, value: Any) -> float:
    """Of `5%` or `5`, from 0 to below 100."""
    try:
        number = float(str(value).removesuffix("%"))
    except ValueError:
        number = -1.0
    if not 0 <= number < 100:
        raise click.BadParameter(f"{value!r} is no percent; write, for example, 5%")
    return number


@click.command()
@click.argument("archive", type=click.Path(path_type=Path))
@click.option(
    "--loss",
    "may_lose",
    callback=_percent,
    required=True,
    metavar="PERCENT",
    help="What may be lost of the baseline's figure, such as 5%.",
)
@click.option("--baseline", metavar="NAME", help="As of `report`. Default: the campaign's.")
@click.option("--only", multiple=True, metavar="PATTERN", help="Only such cells, as of `report`.")
@click.option(
    "--metric",
    "key",
    default="iops",
    show_default=True,
    metavar="KEY",
    help="The figure that counts, by its key in report.json, e.g. clat_ns_p99.",
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the answers to FILE as JSON.",
)
@click.option(
    "--junit",
    "junit_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write them as JUnit's XML: yes is a failure, cannot tell is skipped.",
)
def gate(
    archive: Path, may_lose: float, baseline: Optional[str], only: tuple[str, ...], key: str,
    json_file: Optional[Path], junit_file: Optional[Path],
) -> None:  # fmt: skip
    """Tell whether any load of ARCHIVE loses more than --loss; for CI.

    Exit status: 0 for no, 1 for yes, 3 when it cannot be told; 2 when the question is wrong. One
    line a load, and --json and --junit write the same to files. What decides is what the report's
    verdicts rest on: its 95 % intervals of four rounds or more, or of six pairs of turns. Fewer
    have no answer but 3.
    """
    from cbt_crypto.report import ReportOptions, build, gate  # noqa: PLC0415
    from cbt_crypto.report.figures.metric import BY_KEY  # noqa: PLC0415

    metric = BY_KEY.get(key)
    if metric is None or not metric.better:
        known = ", ".join(name for name, metric in BY_KEY.items() if metric.better)
        raise UsageError(f"--metric {key}: is none of those that can lose; name one of {known}")
    built = build(archive, ReportOptions(baseline=baseline))
    findings = gate.findings(built, metric, may_lose, only)
    if only and not findings:
        raise UsageError(f"--only {' '.join(only)}: matches no workload that is compared")
    for line in (finding.line for finding in findings):
        say(line)
    answer = gate.overall(findings)
    say(f"more than {may_lose:g} % lost against {built.baseline_name}: {answer.value}")
    for option, path, text in (
        ("--json", json_file, gate.as_json(findings, metric, may_lose)),
        ("--junit", junit_file, gate.as_junit(findings, built.title)),
    ):
        if path is not None:
            _write(option, path, text)
    sys.exit(gate.EXIT_STATUS[answer])


def _write(option: str, path: Path, text: str) -> None:
    """Raises UsageError: a traceback's exit status, 1, would tell CI that too much is lost."""
    from cbt_crypto.report.files import write_whole  # noqa: PLC0415

    try:
        if path.exists() and not path.is_file():
            _write_to_pipe(path, text)
        else:
            # Nobody's file is written to that a link in this place leads to.
            write_whole(path, text)
    except OSError as error:
        raise UsageError(
            f"{option} {path}: cannot be written ({error.strerror}); name another file"
        ) from None


def _write_to_pipe(path: Path, text: str) -> None:
    """Or to a device. One that nobody reads is an error, and nothing to wait for."""
    descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)

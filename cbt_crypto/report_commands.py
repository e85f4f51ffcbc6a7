"""`cbt-crypto report`, `compare`, `history`, `gate` and `pack`: what is made of archives.

What reports are made with is loaded when one is made: it takes seconds, and nodes may lack it.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import math
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import webbrowser
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

import click
from rich.console import Console
from rich.filesize import decimal
from rich.text import Text

from cbt_crypto import command_line
from cbt_crypto.archive.files import one_line, read_json, write_whole
from cbt_crypto.archive.pack import Pack, is_pack, opened, pack, pack_summary
from cbt_crypto.command_line import archive_argument, archives_argument, command, say, say_error
from cbt_crypto.errors import RunError, UsageError
from cbt_crypto.hosts import directories
from cbt_crypto.hosts.remote import NONSENSE
from cbt_crypto.hosts.trust_on_host import distrust

if TYPE_CHECKING:
    from cbt_crypto.report import Report, ReportOptions

#: What prints the page, and for how long that may take.
_BROWSERS, _PRINT_S = ("chromium", "chromium-browser", "google-chrome"), 120
_PAPERS = ("A4", "Letter")
#: Seconds after which a watched page reloads, and between looks at its archive.
_RELOAD_S, _LOOK_S = 10, 2.0

#: What reports of one archive and of several have in common.
_with_options = command_line.all_of((
    click.option(
        "--only", multiple=True, metavar="PATTERN",
        help="Only cells whose label, as the plan prints it, contains this, and their baseline.",
    ),
    click.option("--loss", is_flag=True, help="Print percent lost instead of percent of baseline."),
    click.option("--anonymize", is_flag=True, help="Hide host names and addresses."),
    click.option(
        "--spread-from", "spread_from", type=click.Path(path_type=Path), metavar="ARCHIVE",
        help="For what was deployed once: take the spread between deployments from ARCHIVE.",
    ),
))  # fmt: skip


@command(
    "cbt-crypto report results/campaign-2026-11-24",
    "cbt-crypto report --only randread --loss results/campaign-2026-11-24",
)
@archive_argument
@click.option(
    "--baseline", metavar="NAME",
    help="What counts as 100 %: a configuration, or DIMENSION=VALUE. Default: the campaign's.",
)  # fmt: skip
@_with_options
@click.option(
    "-o", "out_dir", type=click.Path(path_type=Path), metavar="DIR",
    help="Where to write the report's files. Default: the archive itself.",
)  # fmt: skip
@click.option(
    "--watch", "watched", is_flag=True,
    help="Write it again after each cell until the campaign ends; the page reloads itself.",
)  # fmt: skip
@click.option(
    "--fresh", is_flag=True,
    help="Read the files of all cells again, even if they have not changed.",
)  # fmt: skip
@click.option(
    "--pdf", is_flag=True, help="Also print the page to report.pdf; needs Chromium or Chrome."
)
@click.option(
    "--paper", type=click.Choice(_PAPERS, case_sensitive=False), default="A4", show_default=True,
    help="Size of report.pdf.",
)  # fmt: skip
@click.option("--open", "opens", is_flag=True, help="Open the page in a browser.")
def report(
    archive: Path, out_dir: Optional[Path], watched: bool, fresh: bool, pdf: bool, paper: str,
    opens: bool, **options: Any,
) -> None:  # fmt: skip
    """Print an archive's tables and write its report.

    Writes report.md, .csv, .json, .html and charts/ into ARCHIVE. ARCHIVE can also be a pack that
    somebody sent you; its report goes to NAME-report.
    """
    from cbt_crypto.report import ReportOptions, build  # noqa: PLC0415

    browser = _browser() if pdf else None
    place = out_dir or archive
    if out_dir is not None:
        _check_named(out_dir, archive, ["report.pdf"] if pdf else [])
    if watched:
        if fresh:
            build(archive, ReportOptions(**options), fresh=True)
        built = _follow(archive, out_dir or archive, ReportOptions(**options))
    elif not is_pack(archive):
        built = _finish(build(archive, ReportOptions(**options), fresh=fresh), out_dir or archive)
    else:
        with _opened(archive) as pack:
            if pack.is_summary:
                built = _reopened(pack, **options)
            else:
                built = build(pack.folder, ReportOptions(**options))
            place = out_dir or _place_of(archive, built)
            _finish(built, place)
    if browser is not None:
        _print(browser, built, place, paper)
    if opens:
        page = (place / "report.html").resolve().as_uri()
        if not webbrowser.open(page):
            say(f"no browser is here; open {page}")


def _check_named(out_dir: Path, archive: Optional[Path] = None, more: Sequence[str] = ()) -> None:
    """Raise UsageError for an `-o` in which more than a report of ours would be replaced."""
    from cbt_crypto.report.files import check_replaced  # noqa: PLC0415

    if archive is not None and out_dir.resolve() == archive.resolve():
        return
    if (out_dir / "results" / "plan.json").exists():
        raise UsageError(
            f"{out_dir}: is another archive, with a report of its own; name another -o"
        )
    check_replaced(out_dir, more)


def _place_of(pack: Path, built: Report) -> Path:
    """Where a pack's report goes. Raises UsageError for what somebody else may have put there."""
    place = Path(f"{pack.name.removesuffix('.zip')}-report")
    if os.path.lexists(place):
        status = place.lstat()
        wrong = distrust(status, (os.geteuid(),), is_group_ours=True)
        if wrong or not stat.S_ISDIR(status.st_mode):
            raise UsageError(f"{place}: {wrong or 'is no directory'}; name another with -o")
        if any(place.iterdir()) and not (place / "report.json").is_file():
            raise UsageError(f"{place}: is no report's directory; name another with -o")
        there = (read_json(place / "report.json") or {}).get("environment")
        if isinstance(there, dict) and there.get("started") != built.environment.get("started"):
            raise UsageError(f"{place}: has another campaign's report; name another with -o")
    _check_named(place)
    return place


def _opened(path: Path) -> contextlib.AbstractContextManager[Pack]:
    """Under a name by which what a killed process left is found and removed."""
    directories.clear_dead()
    return opened(path, directories.prefix("pack"), directories.temporary_place())


def _browser() -> str:
    if browser := next(filter(None, map(shutil.which, _BROWSERS)), None):
        return browser
    raise UsageError(
        f"--pdf: there is none of {', '.join(_BROWSERS)} here; install one, or print report.html "
        "from a browser"
    )


def _print(browser: str, built: Report, place: Path, paper: str) -> None:
    """Write report.pdf beside report.html; the browser keeps nothing and asks no network."""
    from cbt_crypto.report.model import without_missing  # noqa: PLC0415
    from cbt_crypto.report.page import page as page_of  # noqa: PLC0415

    target = place / "report.pdf"
    scratch = tempfile.mkdtemp(prefix=directories.prefix("pdf"), dir=directories.temporary_place())
    try:
        # Not in its place, where others may have put a link, or a page that shows root's files.
        page, printed = Path(scratch, "report.html"), Path(scratch, "report.pdf")
        text = page_of(without_missing(built))
        size = f"<style>@page {{ size: {paper} }}</style></head>"
        page.write_text(text.replace("</head>", size, 1), encoding="utf-8")
        command = [
            browser, "--headless", "--disable-gpu", "--disable-background-networking",
            *(["--no-sandbox"] if os.geteuid() == 0 else []), f"--user-data-dir={scratch}/profile",
            "--no-pdf-header-footer", f"--print-to-pdf={printed}", page.as_uri(),
        ]  # fmt: skip
        _run_alone(command)
        write_whole(target, printed.read_bytes())
    except (OSError, subprocess.SubprocessError) as error:
        raise RunError(f"--pdf: {browser} wrote no {target}: {error}") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    say(f"written: {target}")


def _run_alone(command: Sequence[str]) -> None:
    """Run a browser, of which nothing outlives an end that is not its own."""
    from cbt_crypto.run.interrupt import held_back  # noqa: PLC0415

    null = subprocess.DEVNULL
    with contextlib.ExitStack() as ending:
        # A signal inside Popen would end us, and lose what it had started.
        with held_back():
            process = subprocess.Popen(command, start_new_session=True, stdout=null, stderr=null)
            ending.enter_context(process)
            ending.callback(_kill, process)
        if process.wait(_PRINT_S):
            raise subprocess.CalledProcessError(process.returncode, command)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)


def _follow(archive: Path, out_dir: Path, options: ReportOptions) -> Report:
    """Write the report whenever a cell has ended; the last one's page does not reload."""
    from cbt_crypto.report import build, write  # noqa: PLC0415
    from cbt_crypto.run.detached import changed, running  # noqa: PLC0415

    seen: Any = ...
    with contextlib.suppress(KeyboardInterrupt):
        while running(archive) is not None:
            now = changed(archive)
            if now != seen:
                write(build(archive, options), out_dir, reload_s=_RELOAD_S)
                say(f"written: {out_dir / 'report.html'}, which reloads itself")
            seen = now
            time.sleep(_LOOK_S)
    return _finish(build(archive, options), out_dir)


def _reopened(pack: Pack, only: Sequence[str], baseline: Optional[str], **options: Any) -> Report:
    """A summary's report; what has to be computed from its runs cannot be asked of it."""
    from cbt_crypto.report.anonymize import anonymized  # noqa: PLC0415
    from cbt_crypto.report.document import reopened  # noqa: PLC0415

    if only or baseline:
        raise UsageError("--only and --baseline need the runs; this pack is a summary alone")
    report = reopened(pack.report())
    loss = options["loss"] or report.options.loss
    word = "A summary: what it says is its sender's word; a pack of the runs can be checked."
    headline = (word, *(sentence for sentence in report.headline if sentence != word))
    report = replace(report, options=replace(report.options, loss=loss), headline=headline)
    return anonymized(report) if options["anonymize"] else report


@command("cbt-crypto compare reef=results/reef tentacle=results/tentacle -o comparison")
@click.argument("archives", nargs=-1, required=True, metavar="[NAME=]DIR ...")
@click.option(
    "--baseline", "baselines", multiple=True, metavar="[ARCHIVE=]NAME",
    help="What counts as 100 %: an archive; a configuration; or, for one archive only, "
    "ARCHIVE=CONFIGURATION. Repeatable. Default: the first archive, or each one's own baseline.",
)  # fmt: skip
@_with_options
@click.option(
    "-o", "out_dir", type=click.Path(path_type=Path), required=True, metavar="OUT",
    help="Where to write the report's files.",
)  # fmt: skip
def compare(
    archives: tuple[str, ...], baselines: tuple[str, ...], out_dir: Path, **options: Any
) -> None:
    """Compare archives, upstream CBT's among them.

    NAME is what the report calls an archive. Default: the directory's name.

    If each archive has one configuration, the archives are compared with one another. If each has
    several, configurations are compared within each archive, and the dimension `hardware` names
    the archive. Packs are read, too.
    """
    from cbt_crypto.report import ReportOptions  # noqa: PLC0415
    from cbt_crypto.report.comparison import compare as compare_archives  # noqa: PLC0415

    _check_named(out_dir)
    with contextlib.ExitStack() as stack:
        paths = {name: _unpacked_path(path, stack) for name, path in _named(archives).items()}
        _finish(compare_archives(paths, ReportOptions(**options), baselines), out_dir)


@command(
    "cbt-crypto history results/nightly-*",
    "cbt-crypto history --only randwrite --json results/nightly-* > history.json",
)
@archives_argument
@click.option("--only", multiple=True, metavar="PATTERN", help="Only these cells, as for report.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def history(archives: tuple[Path, ...], only: tuple[str, ...], as_json: bool) -> None:
    """Show workloads over many archives, by date.

    For a campaign that is run again and again, such as every night: a table for each workload,
    with dates, versions, and whether a percentage differs from the first's. Packs are read, too.
    """
    from cbt_crypto.report import ReportOptions, across, build, widened  # noqa: PLC0415
    from cbt_crypto.report.terminal import show_grid  # noqa: PLC0415

    with contextlib.ExitStack() as stack:
        paths = {str(path).rstrip("/"): path for path in archives}
        reports = {
            name: build(_unpacked_path(path, stack, "history"), ReportOptions(only=only))
            for name, path in paths.items()
        }
    reports, notes = across.once(reports)
    for note in notes:
        say_error(f"note: {note}")
    grids, points = across.history(reports)
    for name in sorted(reports.keys() - {point.archive for point in points}):
        say_error(f"note: {name}: has no cells, so it is left out")
    if as_json:
        click.echo(json.dumps([asdict(point) for point in points], indent=2))
        return
    console = widened(Console())
    for grid in grids:
        show_grid(replace(grid, notes=()), console, ("kernel", "Ceph"))
    notes = list(dict.fromkeys(note for grid in grids for note in grid.notes))
    for text in ("", *notes, *across.caveats_of(reports)):
        console.print(Text(text))


def _unpacked_path(path: Path, stack: contextlib.ExitStack, command: str = "compare") -> Path:
    """Where an archive is, unpacked for as long as `stack` lives."""
    if not is_pack(path) or _is_other(path):
        return path
    pack = stack.enter_context(_opened(path))
    if pack.is_summary:
        raise UsageError(f"{path}: is a summary; {command} needs a pack of the runs")
    return pack.folder


def _is_other(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return path.suffix != ".zip" and file.read(2) != b"PK"
    except OSError:
        return False


@command(
    "cbt-crypto pack results/campaign-2026-11-24",
    "cbt-crypto pack --summary --anonymize results/campaign-2026-11-24 -o summary.zip",
    name="pack",
)
@archive_argument
@click.option("--summary", is_flag=True, help="The report alone, without the files of its runs.")
@click.option("--anonymize", is_flag=True, help="Hide host names and addresses; needs --summary.")
@click.option(
    "-o", "target", type=click.Path(path_type=Path), metavar="FILE",
    help="The file to write. Default: ARCHIVE.zip here.",
)  # fmt: skip
def pack_command(archive: Path, summary: bool, anonymize: bool, target: Optional[Path]) -> None:
    """Pack an archive into one zip file to share. `report` and `compare` read it."""
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
        if not equals:
            name, path = Path(text).resolve().name.removesuffix(".zip"), text
        # What is no text can be in a file's name, and in no page.
        name = one_line(name)
        if not (name and path):
            raise UsageError(f"{text!r}: write NAME=DIR, a name for the archive and where it is")
        if name in named:
            raise UsageError(f"{name!r} names two archives; give each a name of its own")
        named[name] = Path(path)
    return named


def _finish(built: Report, out_dir: Path) -> Report:
    from cbt_crypto.report import show, widened, write  # noqa: PLC0415

    show(built, widened(Console()))
    paths = write(built, out_dir)
    names = [path.name for path in paths if path.parent == out_dir]
    is_part = built.options.only or built.options.baseline
    replaces = "; it is no longer the whole report there: -o DIR leaves that as it is"
    whole = replaces if is_part and (out_dir / "results").exists() else ""
    say(f"\nwritten to {out_dir}: {', '.join(names)}, charts/*.svg{whole}")
    return built


def _limits(ctx: click.Context, option: click.Parameter, values: Any) -> dict[str, float]:
    """Of `5%` or `5`, from 0 on, and `LUKS=20%`: by name, empty that of all others."""
    found = {}
    for value in values:
        name, _, text = value.rpartition("=")
        try:
            number = float(text.removesuffix("%"))
        except ValueError:
            number = -1.0
        if not 0 <= number < math.inf:
            raise click.BadParameter(f"{text!r} is no percent; write, for example, 5%")
        if 0 < number < 1 and not text.endswith("%"):
            meant = f"write {number:g}%, or {100 * number:g}% if that is meant"
            raise click.BadParameter(f"{text!r} may be a share or a percentage; {meant}")
        if name in found:
            of = f"of {name} " if name else ""
            raise click.BadParameter(f"the limit {of}is given twice; which one is meant?")
        found[name] = number
    if "" not in found:
        raise click.BadParameter("say also what all others may lose: add --loss 5%")
    return found


@command(
    "cbt-crypto gate --loss 5% results/campaign-2026-11-24",
    "cbt-crypto gate --loss 5% --loss LUKS=20% results/campaign-2026-11-24",
    "cbt-crypto gate --loss 10% --metric clat_ns_p99 --junit gate.xml results/nightly",
)
@archive_argument
@click.option(
    "--loss", "limits", callback=_limits, required=True, multiple=True, metavar="[NAME=]PERCENT",
    help="Percent of the baseline that may be lost, such as 5%. Repeat it for one configuration: "
    "LUKS=20%.",
)  # fmt: skip
@click.option(
    "--baseline", metavar="NAME",
    help="What counts as 100 %, as for report [default: the campaign's].",
)  # fmt: skip
@click.option(
    "--only", multiple=True, metavar="PATTERN",
    help="Only rows whose printed line or cell label contains this. Repeatable.",
)  # fmt: skip
@click.option(
    "--metric", "keys", default=["iops"], metavar="KEY", multiple=True,
    help="The figure to judge by: a key of report.json, such as clat_ns_p99 [default: iops].",
)  # fmt: skip
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), metavar="FILE",
    help="Also write the answers to FILE as JSON.",
)  # fmt: skip
@click.option(
    "--junit", "junit_file", type=click.Path(path_type=Path), metavar="FILE",
    help="Also write them as JUnit XML: FAIL is a failure, UNKNOWN is skipped.",
)  # fmt: skip
def gate(
    archive: Path, limits: dict[str, float], baseline: Optional[str], only: tuple[str, ...],
    keys: tuple[str, ...], json_file: Optional[Path], junit_file: Optional[Path],
) -> None:  # fmt: skip
    """Fail if a workload lost more than --loss. For CI.

    Prints PASS, FAIL or UNKNOWN for each row. Exit status: 0 if all pass, 1 if one fails, 3 if the
    gate cannot tell, 2 if an argument is wrong. With fewer deployments than a verdict takes (four
    rounds, or six pairs of turns) the gate cannot tell, and exits with 3. Packs are read, too.
    """
    from cbt_crypto.report import ReportOptions, build, gate  # noqa: PLC0415
    from cbt_crypto.report.figures.metric import BY_KEY  # noqa: PLC0415
    from cbt_crypto.report.headline import caveats  # noqa: PLC0415

    key, *more = keys
    if more:
        raise UsageError("--metric: is given twice; run the gate once for each figure")
    metric = BY_KEY.get(key)
    if metric is None or not metric.is_judged:
        known = [name for name, metric in BY_KEY.items() if metric.is_judged]
        near = difflib.get_close_matches(key, known if key not in BY_KEY else ())
        kind = key.rpartition("_")[0] if key in BY_KEY else key.replace("latency", "clat")
        meant = ", ".join([name for name in known if kind in name] or near or known)
        raise UsageError(f"--metric {key}: the gate cannot judge by this; name one of {meant}")
    own = dict(limits)
    question = gate.Question(metric, own.pop(""), own)
    try:
        with contextlib.ExitStack() as stack:
            options = ReportOptions(baseline=baseline)
            built = build(_unpacked_path(archive, stack, "gate"), options)
        findings = gate.findings(built, question, only)
        lines = [*(one.line for one in findings), *gate.closing(built, question, findings)]
        documents = (
            ("--json", json_file, gate.as_json(built, question, findings)),
            ("--junit", junit_file, gate.as_junit(findings, built.title, caveats(built, metric))),
        )
    except NONSENSE as error:
        # The exit status of a traceback, 1, would tell CI that too much is lost.
        raise UsageError(f"{archive}: cannot be judged ({type(error).__name__}: {error})") from None
    if only and not findings:
        like = next((answer.what for answer in gate.findings(built, question)), "")
        said = f"--only {' '.join(only)}: matches no workload that is compared"
        raise UsageError(f'{said}; it is searched for in names such as "{like}"')
    for line in lines:
        say(line)
    for option, path, text in documents:
        if path is not None:
            _write(option, path, text)
    sys.exit(gate.EXIT_STATUS[gate.overall(findings)])


def _write(option: str, path: Path, text: str) -> None:
    """Raises UsageError: a traceback's exit status, 1, would tell CI that too much is lost."""
    try:
        if path.exists() and not path.is_file():
            # A pipe, say.
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            os.set_blocking(descriptor, True)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
        else:
            # Nobody's file is written to that a link in this place leads to.
            write_whole(path, text)
    except OSError as error:
        raise UsageError(
            f"{option} {path}: cannot be written ({error.strerror}); name another file"
        ) from None

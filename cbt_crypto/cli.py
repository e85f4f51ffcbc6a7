"""The command `cbt-crypto`: what stands around a campaign.

What reports are made with is loaded by `report` and `compare` alone: it takes seconds, and a node
that only measures need not have it.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Optional

import click
from click.shell_completion import get_completion_class
from rich.console import Console
from rich.filesize import decimal

from cbt_crypto import __version__
from cbt_crypto.archive.pack import pack, pack_summary
from cbt_crypto.archive.unpack import Pack, is_pack, opened
from cbt_crypto.command_line import SentenceGroup, checkout_option, say
from cbt_crypto.engine.choice import choose
from cbt_crypto.engine.upstream.contribute.command import contribute_command
from cbt_crypto.errors import UsageError
from cbt_crypto.gate_command import gate
from cbt_crypto.hosts import command_log, temporary
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.lab.command import lab
from cbt_crypto.main import cbt
from cbt_crypto.plan.cells import cells_of
from cbt_crypto.plan.file import json_schema, load
from cbt_crypto.plan.steps import plan
from cbt_crypto.results.upstream_layout import lay_out
from cbt_crypto.run import take_down
from cbt_crypto.run.detached.running import running
from cbt_crypto.run.detached.stop import stop as stop_campaign
from cbt_crypto.run.detached.watch import changed
from cbt_crypto.run.detached.watch import watch as watch_archive
from cbt_crypto.run.init.command import init
from cbt_crypto.run.journal import Deployment
from cbt_crypto.run.locks.archive import locked
from cbt_crypto.run.locks.holder import describe
from cbt_crypto.run.preflight import check as preflight
from cbt_crypto.run.preflight import mend, table
from cbt_crypto.run.resume import check_own
from cbt_crypto.units import counted

if TYPE_CHECKING:
    from cbt_crypto.report import Report, ReportOptions

#: Seconds after which a watched page reloads, and between looks at its archive.
_RELOAD_S, _LOOK_S = 10, 2.0


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
    cells = cells_of(campaign)
    plan(campaign)
    if hosts:
        engine = choose(checkout)
        answers = preflight.look(campaign, engine, cells)
        # The script alone is what a pipe or a file gets.
        table.show(answers, Console(stderr=fix_commands))
        if fix_commands:
            remote = Remote(engine.common, campaign.cluster.tmp_dir, campaign.cluster.user)
            manager = mend.managers(remote, answers)
            click.echo("\n".join(mend.script(answers, manager, campaign.cluster.user)))
        if any(answer.error for answer in answers):
            sys.exit(UsageError.exit_status)
    click.echo(
        err=fix_commands,
        message=f"{config_file}: good: {counted(len(campaign.configurations), 'configuration')}, "
        f"{counted(len(campaign.scenarios), 'scenario')}, {counted(len(cells), 'cell')}",
    )


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
        click.echo(f"{archive}: nothing is left on any host that its journal knows of")
        return
    if plan_only:
        take_down.show_plan(archive, left, say)
        return
    _agree(yes, "Forget it, and leave it where it is?" if forget else "Take it down?", left)
    temporary.clear_dead()
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
    """Write fio's results of ARCHIVE into OUT as upstream CBT's report tools of 2026 look for them.

    The tools of before August 2025 read an archive as it is.
    """
    click.echo(f"written: {out}, {lay_out(archive, out)} results")


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
        from cbt_crypto.report.text.csv_json import document  # noqa: PLC0415

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


for command in (init, report, compare, gate, pack_command, lab, contribute_command):
    cbt_crypto.add_command(command)

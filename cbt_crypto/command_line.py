"""The arguments of the commands that run a campaign: `cbt.py` here, `lab run` on a lab's node."""

from __future__ import annotations

import codecs
import contextlib
import errno
import importlib
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, Optional, TextIO, Union, cast

import click
from click.shell_completion import CompletionItem

from cbt_crypto.errors import CampaignError, RunError, UsageError
from cbt_crypto.run.interrupt import like_ctrl_c

_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
#: Settings of every command and group.
HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}
_PATH = click.Path(path_type=Path)
#: Gives a command `checkout`.
checkout_option = click.option(
    "--cbt", "checkout", type=_PATH, metavar="DIR",
    help="Upstream CBT checkout to use as the engine [default: $CBT_HOME, or ../cbt if it is "
    "there]. `embedded` uses the built-in engine.",
)  # fmt: skip
_PLANNED = (
    click.argument("config_file", type=_PATH, metavar="CONFIG.yaml"),
    click.option(
        "-a", "--archive", type=_PATH, metavar="DIR",
        help="Directory of the results. Finished cells in it are not run again.",
    ),
    click.option(
        "-c", "--conf", type=_PATH, metavar="FILE",
        help="ceph.conf to start from, instead of the file's conf_file.",
    ),
    checkout_option,
    click.option(
        "--only", multiple=True, metavar="PATTERN",
        help="Only cells whose label, as the plan prints it, contains this. Repeatable.",
    ),
    click.option(
        "--again", multiple=True, metavar="PATTERN",
        help="Finished cells whose label contains this are run again. Old results are kept.",
    ),
)  # fmt: skip
_RUN = (
    click.option(
        "--no-report", is_flag=True,
        help="Only measure; make the report later, on any machine, with cbt-crypto report.",
    ),
    click.option(
        "-v", "--verbose", is_flag=True,
        help="Print every command that runs on a host. results/commands.log has them, too.",
    ),
)  # fmt: skip


class _Archive(click.Path):
    """An archive's directory or pack; shells are offered those below results/ first."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Complete with archives below results/; with any path where none begins so."""
        archives = [
            CompletionItem(str(plan.parent.parent))
            for plan in sorted(Path("results").glob("*/results/plan.json"), reverse=True)
            if str(plan.parent.parent).startswith(incomplete)
            # Shells put it on the line as it is: `$(id)` in a name would be run.
            and re.fullmatch(r"[\w.+@/-]+", str(plan.parent.parent), re.ASCII)
        ]
        return archives or super().shell_complete(ctx, param, incomplete)


#: Gives a command the argument `archive`.
archive_argument = click.argument("archive", type=_Archive(path_type=Path), metavar="ARCHIVE")
#: Gives a command the argument `archives`: one or more.
archives_argument = click.argument(
    "archives", nargs=-1, required=True, type=_Archive(path_type=Path), metavar="ARCHIVE ..."
)


@dataclass(frozen=True)
class RunOptions:
    """What was asked of a command that plans or runs a campaign."""

    config_file: Path
    archive: Optional[Path] = None
    conf: Optional[Path] = None
    checkout: Optional[Path] = None
    only: tuple[str, ...] = ()
    again: tuple[str, ...] = ()
    like: Optional[Path] = None
    no_report: bool = False
    verbose: bool = False
    detached: bool = False
    notify: Optional[str] = None


def all_of(decorators: Sequence[_Decorator]) -> _Decorator:
    """What gives a command several options or arguments, in this order."""
    return lambda function: reduce(lambda made, each: each(made), reversed(decorators), function)


#: Gives a command the options that say what is planned, by their names in `RunOptions`.
plan_options = all_of(_PLANNED)
#: Gives a command the options that `cbt.py` and `lab run` share, as in `RunOptions`.
run_options = all_of((*_PLANNED, *_RUN))


def needed(archive: Path | None) -> Path:
    """The archive, or click's own error where `-a` was left out."""
    if archive is None:
        raise click.UsageError("Missing option '-a': name a directory for the results.")
    return archive


def examples(*lines: str) -> str:
    """The end of a command's help: lines to type, never wrapped."""
    word = "Example" if len(lines) == 1 else "Examples"
    return "\n".join(["\b", f"{word}:", *(f"  {line}" for line in lines)])


def command(*lines: str, **more: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """A command whose help ends with these `examples`."""
    return click.command(epilog=examples(*lines), **more)


#: What stands for characters that a terminal or pipe cannot show; as wide as they are.
_ASCII = {"±": "~", "µ": "u", "…": ".", "█": "#", "━": "-", "↕": "|", "·": "."}
#: What Python does with such characters: elsewhere, and in the C locale.
_GIVE_UP = ("strict", "surrogateescape")


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(_ASCII.get(char, "#" if "▁" <= char <= "▏" else "?") for char in text), error.end


def speak_ascii() -> None:
    """Have output that knows no other characters show near ones, and not end the program."""
    codecs.register_error("cbt-crypto-ascii", _in_ascii)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None and getattr(stream, "errors", "") in _GIVE_UP:
            reconfigure(errors="cbt-crypto-ascii")


#: Where a text's direction changes: an archive could show `no` for `yes`. And controls of 8 bits.
_REORDERING = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\x80-\x9f]")


class Output:
    """A stream that may be closed or full at any time: what is written then is lost, no more."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_lost = False
        #: The first failure to write.
        self.error: Optional[OSError] = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write the text, without marks that reorder what a terminal shows, or lose it."""
        shown = text if text.isascii() else _REORDERING.sub("\ufffd", text)
        self._attempt(lambda: self._stream.write(shown))
        return len(text)

    def flush(self) -> None:
        """Flush what was written, or lose it."""
        self._attempt(self._stream.flush)

    def _attempt(self, step: Callable[[], object]) -> None:
        if self._is_lost:
            return
        try:
            step()
        except OSError as error:
            self.error = self.error or error
            try:
                # Python flushes what is left at its end, and would end with status 120.
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, self._stream.fileno())
                os.close(null)
            except (OSError, ValueError):
                self._is_lost = True


@contextlib.contextmanager
def unfailing_output() -> Iterator[Optional[Output]]:
    """Have no write to stdout and stderr fail while the block runs. Yields stdout."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (
        stream if stream is None or isinstance(stream, Output) else cast(TextIO, Output(stream))
        for stream in before
    )
    output = cast(Any, sys.stdout)
    try:
        yield output
    finally:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, Output):
                stream.flush()
        sys.stdout, sys.stderr = before


class SentenceCommand(click.Command):
    """A command; CampaignError becomes its sentence and its exit status."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a CampaignError ends the program with its sentence and exit status."""
        return _guarded(super().invoke, ctx, RunError.exit_status)


class SentenceGroup(click.Group):
    """A group of such commands; a lost output or an interrupt is exit status 2."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand; a CampaignError ends the program as in `SentenceCommand`."""
        return _guarded(super().invoke, ctx, UsageError.exit_status)


@dataclass(frozen=True)
class Lazy:
    """A command that is imported when it is called: its place, and its line in the group's help."""

    place: str
    line: str

    def command(self) -> click.Command:
        """Import the command."""
        module, _, attribute = self.place.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command


class LazyGroup(SentenceGroup):
    """A group whose help has sections of commands, and imports none of them."""

    def __init__(self, *, sections: Mapping[str, Mapping[str, Lazy]], **settings: Any) -> None:
        super().__init__(**settings)
        self.sections = sections
        self._lazy = {name: lazy for of in sections.values() for name, lazy in of.items()}
        # Among these names click looks for what was probably meant.
        self.commands = dict.fromkeys(self._lazy, self)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in the order of the help."""
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> Optional[click.Command]:
        """Return the command of that name."""
        lazy = self._lazy.get(cmd_name)
        return None if lazy is None else lazy.command()

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections, with all names as wide as the widest."""
        width = max(map(len, self._lazy))
        for title, commands in self.sections.items():
            with formatter.section(title):
                rows = [(name.ljust(width), lazy.line) for name, lazy in commands.items()]
                formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete names without importing what they are of."""
        begun = {name: lazy for name, lazy in self._lazy.items() if name.startswith(incomplete)}
        names = [CompletionItem(name, help=lazy.line) for name, lazy in begun.items()]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]


def _guarded(invoke: Any, ctx: click.Context, failure: int) -> Any:
    """Run a command; what the system refuses it ends with `failure`."""
    with unfailing_output() as output, like_ctrl_c():
        speak_ascii()
        # Whatever the shell's is: nobody but the user and his group writes to what is made here.
        os.umask(os.umask(0o022) | 0o002)
        try:
            returned = invoke(ctx)
        except CampaignError as error:
            say_error(error)
            sys.exit(error.exit_status)
        except KeyboardInterrupt:
            say_error("interrupted")
            sys.exit(failure)
        except MemoryError:
            say_error("memory ran out, or a process of this command was killed; free some memory")
            sys.exit(failure)
        except OSError as error:
            if error.errno == errno.ENOENT and error.filename is None:  # os.getcwd() alone
                say_error("the current directory was removed; change to another one")
                sys.exit(UsageError.exit_status)
            if error.errno not in _NO_ROOM:
                raise
            say_error(f"{error.filename or tempfile.gettempdir()}: {error.strerror}")
            sys.exit(failure)
        _check_output(output, failure)
        return returned


#: Errors of a disk and not of a program.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)


def _check_output(output: Optional[Output], failure: int) -> None:
    """End the program where its output went to a full disk; a reader that left wants no more."""
    if output is None:
        return
    output.flush()
    error = output.error
    if error is not None and not isinstance(error, BrokenPipeError):
        say_error(f"standard output: {error.strerror}; what was printed is incomplete")
        sys.exit(failure)


def say(text: str) -> None:
    """Print what an archive or a host says, with nothing in it that a terminal obeys."""
    from cbt_crypto.archive.files import printable  # noqa: PLC0415 - --help needs none of it

    click.echo(printable(text))


def say_error(error: Union[BaseException, str]) -> None:
    """Print its sentence where errors go, with nothing in it that a terminal obeys."""
    from cbt_crypto.archive.files import printable  # noqa: PLC0415 - --help needs none of it

    click.echo(printable(str(error)), err=True)


def say_notes(config_file: Path, notes: Iterable[str]) -> None:
    """Print what of a file has no effect, apart from what a program may read."""
    for note in notes:
        click.echo(f"{config_file}: note: {note}", err=True)


def exit_status(command: click.Command, arguments: list[str]) -> int:
    """Run a command with these arguments inside of another program; return how it ended."""
    try:
        command(arguments)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0

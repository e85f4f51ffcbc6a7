"""The arguments of the commands that run a campaign: `cbt.py` here, `lab run` on a lab's node."""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from cbt_crypto.archive.files import printable
from cbt_crypto.errors import CampaignError

_PATH = click.Path(path_type=Path)
#: Gives a command `checkout`.
checkout_option = click.option(
    "--cbt", "checkout", type=_PATH, metavar="DIR",
    help="Upstream CBT checkout to use as the engine; without it that of $CBT_HOME or ../cbt, "
    "where there is one. `embedded` for the engine that comes with this program.",
)  # fmt: skip
_DECORATORS = (
    click.argument("config_file", type=_PATH, metavar="CONFIG.yaml"),
    click.option(
        "-a", "--archive", type=_PATH, metavar="DIR",
        help="Directory for the results. Given again, finished cells are kept and the rest is run.",
    ),
    click.option(
        "-c", "--conf", type=_PATH, metavar="FILE",
        help="ceph.conf to start from, instead of the file's conf_file.",
    ),
    checkout_option,
    click.option(
        "--only", multiple=True, metavar="PATTERN",
        help="Run only cells whose label, as --plan prints it, contains this. May be repeated.",
    ),
    click.option(
        "--again", multiple=True, metavar="PATTERN",
        help="Repeat finished cells whose label contains this; the old ones are kept beside.",
    ),
    click.option(
        "--no-report", is_flag=True,
        help="Only measure; make the report elsewhere from the archive, with cbt-crypto report.",
    ),
    click.option(
        "-v", "--verbose", is_flag=True,
        help="Print every command that runs on a host, as results/commands.log has it.",
    ),
)  # fmt: skip


def run_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command all of these, as `config_file`, `archive`, `conf`, `checkout` and so on."""
    for decorator in reversed(_DECORATORS):
        function = decorator(function)
    return function


def needed(archive: Path | None) -> Path:
    """The archive, or click's own error where `-a` was left out."""
    if archive is None:
        raise click.UsageError("Missing option '-a': name a directory for the results.")
    return archive


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


class SentenceCommand(click.Command):
    """A command; CampaignError becomes its sentence and its exit status."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a CampaignError ends the program with its sentence and exit status."""
        return _guarded(super().invoke, ctx)


class SentenceGroup(click.Group):
    """A group of commands; the same for each of them."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand; a CampaignError ends the program as in `SentenceCommand`."""
        return _guarded(super().invoke, ctx)


def _guarded(invoke: Any, ctx: click.Context) -> Any:
    speak_ascii()
    # Whatever the shell's is: nobody but the user and his group writes to what is made here.
    os.umask(os.umask(0o022) | 0o002)
    try:
        return invoke(ctx)
    except CampaignError as error:
        say_error(error)
        sys.exit(error.exit_status)


def say(text: str) -> None:
    """Print what an archive or a host says, with nothing in it that a terminal obeys."""
    click.echo(printable(text))


def say_error(error: BaseException) -> None:
    """Print its sentence where errors go, with nothing in it that a terminal obeys."""
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

"""`cbt.py`, `cbt-crypto run` and `plan`; what they call is imported when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional

import click

from cbt_crypto import __version__, command_line
from cbt_crypto.command_line import RunOptions, SentenceCommand, command, run_options

_STATUSES = """\
Exit status: 0 if every cell was measured and proved; 1 if something failed midway (what was
measured is kept); 2 if a requirement is not met and nothing was touched."""
_like = click.option(
    "--like", type=click.Path(path_type=Path), metavar="ARCHIVE",
    help="Predict the duration from an earlier archive, for example of a short pilot run.",
)  # fmt: skip
_detach = click.option(
    "--detach", "detached", is_flag=True,
    help="Keep running after this terminal or ssh session ends; see cbt-crypto watch.",
)  # fmt: skip
_notify = click.option(
    "--notify", metavar="COMMAND",
    help="Run COMMAND at the end, with two more arguments: the archive and the exit status.",
)  # fmt: skip


@command(
    "cbt.py --plan campaign.yaml", "cbt.py -a results/first campaign.yaml",
    cls=SentenceCommand,
    context_settings=command_line.HELP_OPTIONS,
    help=f"Deploy, prove, measure and compare configurations.\n\n{_STATUSES}",
)  # fmt: skip
@run_options
@click.option("--plan", "plan_only", is_flag=True, help="Print what would run; touch nothing.")
@_like
@_detach
@_notify
@click.version_option(__version__)
def cbt(*, plan_only: bool, archive: Optional[Path], **options: Any) -> None:
    """Run or plan a campaign, as CBT's own command does."""
    if plan_only:
        from cbt_crypto.plan_command import show  # noqa: PLC0415

        show(RunOptions(archive=archive, **options))
        return
    from cbt_crypto.launch import launch  # noqa: PLC0415

    launch(RunOptions(archive=command_line.needed(archive), **options))


@command(
    "cbt-crypto run campaign.yaml", "cbt-crypto run --detach campaign.yaml",
    name="run", cls=SentenceCommand,
    help="Deploy, prove, measure and compare configurations.\n\n"
    "Without -a, continues the newest unfinished results/NAME-* of this file, or begins "
    f"results/NAME-DATE. NAME is the file's name.\n\n{_STATUSES}",
)  # fmt: skip
@run_options
@_like
@_detach
@_notify
def run(**options: Any) -> None:
    """Run a campaign into the archive that is named, or that of its last unfinished run."""
    from cbt_crypto.launch import launch  # noqa: PLC0415

    launch(RunOptions(**options))


@command(
    "cbt-crypto plan campaign.yaml", "cbt-crypto plan --like results/pilot campaign.yaml",
    name="plan", help="Show what would run, and for how long. Changes nothing.\n\n"
    "Leaves out cells that the archive has already. Without -a, that is the archive which `run` "
    "would continue.",
)  # fmt: skip
@command_line.plan_options
@_like
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
def plan(as_json: bool, **options: Any) -> None:
    """Show the plan of what is left to run."""
    from cbt_crypto.plan_command import show_next  # noqa: PLC0415

    show_next(RunOptions(**options), as_json)

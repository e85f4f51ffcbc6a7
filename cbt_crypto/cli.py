"""`cbt-crypto`: its commands by purpose; others' modules load when called, for fast help."""

from __future__ import annotations

import json
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from cbt_crypto import __version__
from cbt_crypto.command_line import HELP_OPTIONS, Lazy, LazyGroup, archive_argument, command, say
from cbt_crypto.main import cbt

_CAMPAIGN, _RESULTS = "cbt_crypto.campaign_commands", "cbt_crypto.report_commands"
SECTIONS = {
    "Set up": {
        "init": Lazy("cbt_crypto.run.init.command:init", "Write a campaign file for these hosts."),
        "check": Lazy(
            f"{_CAMPAIGN}:check", "Check a campaign file and the hosts it names. Changes nothing."
        ),
    },
    "Run": {
        "plan": Lazy(
            "cbt_crypto.main:plan", "Show what would run, and for how long. Changes nothing."
        ),
        "run": Lazy(
            "cbt_crypto.main:run", "Deploy, prove, measure and compare configurations."
        ),
        "watch": Lazy(
            f"{_CAMPAIGN}:watch", "Show a running campaign's progress and the results so far."
        ),
        "stop": Lazy(
            f"{_CAMPAIGN}:stop", "Stop a running campaign and wait until its cluster is gone."
        ),
    },
    "Results": {
        "report": Lazy(f"{_RESULTS}:report", "Print an archive's tables and write its report."),
        "compare": Lazy(f"{_RESULTS}:compare", "Compare archives, upstream CBT's among them."),
        "history": Lazy(f"{_RESULTS}:history", "Show workloads over many archives, by date."),
        "gate": Lazy(f"{_RESULTS}:gate", "Fail if a workload lost more than --loss. For CI."),
        "pack": Lazy(
            f"{_RESULTS}:pack_command", "Pack an archive into one zip file to share."
        ),
    },
    "Lab": {
        "lab": Lazy("cbt_crypto.lab.command:lab", "Start and stop disposable Ceph nodes here."),
    },
    "Clean up": {
        "cleanup": Lazy(
            f"{_CAMPAIGN}:cleanup", "Remove what an interrupted campaign left on its hosts."
        ),
    },
    "More": {
        "schema": Lazy("cbt_crypto.cli:schema", "Print the JSON Schema of the campaign file."),
        "completion": Lazy(
            "cbt_crypto.cli:completion", "Print a script that completes commands in your shell."
        ),
        "lay-out": Lazy(
            "cbt_crypto.cli:lay_out_archive", "Write fio results for upstream CBT's report tools."
        ),
    },
}  # fmt: skip


@command(
    "cbt-crypto init --hosts 'osd[0-4],client[0-4]' -o campaign.yaml",
    "cbt-crypto check campaign.yaml",
    "cbt-crypto run campaign.yaml",
    cls=LazyGroup,
    sections=SECTIONS,
    context_settings=HELP_OPTIONS,
)
@click.version_option(__version__)
def cbt_crypto() -> None:
    """Set up, check, run and report Ceph benchmark campaigns."""


@command("cbt-crypto lay-out results/campaign-2026-11-24 upstream-results", name="lay-out")
@archive_argument
@click.argument("out", type=click.Path(path_type=Path), metavar="OUT")
def lay_out_archive(archive: Path, out: Path) -> None:
    """Write fio results for upstream CBT's report tools.

    Each configuration of ARCHIVE becomes an archive OUT/NAME, so that CBT's comparison report has
    their names. CBT's tools from before August 2025 read ARCHIVE as it is.
    """
    from cbt_crypto.results.foreign import lay_out  # noqa: PLC0415 - it needs numpy

    say(f"written: {out}, {lay_out(archive, out)} results")


@command("cbt-crypto schema > campaign.schema.json")
@click.option("--report", "of_report", is_flag=True, help="The schema of report.json instead.")
def schema(of_report: bool) -> None:
    """Print the JSON Schema of the campaign file.

    Editors check and complete campaign files with it. --report prints that of report.json.
    """
    if of_report:
        from cbt_crypto.report.document import report_schema as schema_of  # noqa: PLC0415
    else:
        from cbt_crypto.plan.file import json_schema as schema_of  # noqa: PLC0415
    click.echo(json.dumps(schema_of(), indent=2))


@command("cbt-crypto completion bash > ~/.local/share/bash-completion/completions/cbt-crypto")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that completes commands in your shell.

    It completes cbt-crypto and cbt.py: commands, options, and names of files.
    """
    kind = get_completion_class(shell)
    for name, program in (("cbt-crypto", cbt_crypto), ("cbt.py", cbt)):
        variable = f"_{name.replace('-', '_').replace('.', '_').upper()}_COMPLETE"
        if kind is not None:
            click.echo(kind(program, {}, name, variable).source())

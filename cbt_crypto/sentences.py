"""click commands whose errors are sentences and exit statuses, not tracebacks."""

from __future__ import annotations

import sys
from typing import Any

import click

from cbt_crypto.errors import CampaignError


class SentenceCommand(click.Command):
    """A command; CampaignError becomes its sentence and its exit status."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        return _guarded(super().invoke, ctx)


class SentenceGroup(click.Group):
    """A group of commands; the same for each of them."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand."""
        return _guarded(super().invoke, ctx)


def _guarded(invoke: Any, ctx: click.Context) -> Any:
    try:
        return invoke(ctx)
    except CampaignError as error:
        click.echo(str(error), err=True)
        sys.exit(error.exit_status)

"""The command `cbt-crypto contribute`."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import click

from cbt_crypto.engine.upstream.contribute.branch import contribute
from cbt_crypto.engine.upstream.contribute.parts import PARTS


@click.command("contribute")
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--part", type=click.Choice(list(PARTS)), help="Only this one; all of them when left out."
)
def contribute_command(directory: Path, part: Optional[str]) -> None:
    """Make a branch for each pull request in DIR, a clean checkout of upstream CBT's main.

    A is the plugin mechanism: with it upstream's own ./cbt.py runs campaigns when this package is
    installed. Each B is a feature of its own that needs nothing of this package. Prints the text
    of each pull request. Done again, the branches are made anew.
    """
    for chosen in PARTS.values():
        if part in (None, chosen.key):
            click.echo(contribute(directory, chosen), err=True)
            click.echo(f"# {chosen.subject}\n\n{chosen.pull_request()}")

"""The command `cbt-crypto contribute`."""

from __future__ import annotations

from pathlib import Path

import click

from cbt_crypto.engine.upstream.contribute.branch import contribute


@click.command("contribute")
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
def contribute_command(directory: Path) -> None:
    """Make the branch cbt-crypto in DIR, a clean checkout of upstream CBT.

    Its commits can be reviewed one by one; from there upstream's own ./cbt.py runs campaigns
    without this package installed. Done again, the branch is made anew.
    """
    click.echo(contribute(directory))

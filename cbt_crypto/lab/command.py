"""`cbt-crypto lab`: the commands."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Optional

import click
from rich.console import Console
from rich.table import Table

from cbt_crypto.command_line import needed, run_options
from cbt_crypto.errors import UsageError
from cbt_crypto.lab import access, image, lifecycle
from cbt_crypto.lab.progress import Steps
from cbt_crypto.lab.run import LabCampaign
from cbt_crypto.lab.run import run as run_job
from cbt_crypto.lab.shape import MOST_NODES, MOST_NUMA, Kind, Lab, Release, Shape
from cbt_crypto.units import size_bytes


def _lab_name(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}", value):
        sentence = f"{value!r} is not a name of up to 32 letters, digits, - and _"
        raise click.BadParameter(sentence, context, parameter)
    return value


_NAME = click.option(
    "--name",
    default="default",
    show_default=True,
    metavar="NAME",
    callback=_lab_name,
    help="Which lab; several can be up at once.",
)


def _size(context: click.Context, parameter: click.Parameter, value: str) -> int:
    try:
        return size_bytes(value)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from None


@click.group()
def lab() -> None:
    """Disposable Ceph nodes on this machine.

    For those who have no ten-node lab, and for machines that lack dm-crypt or must not be
    touched. Nodes are called node0, node1, ... and run Debian 13 with Ceph 18.2 (Reef), or
    Debian's next with Ceph 20.2 (Tentacle).
    """


@lab.command()
@click.option(
    "--kind",
    type=click.Choice([kind.value for kind in Kind]),
    default=Kind.VM.value,
    show_default=True,
    help="vm: QEMU, real dm-crypt, needs no root. namespace: native speed, needs root.",
)
@click.option(
    "--ceph",
    type=click.Choice([release.value for release in Release]),
    default=Release.REEF.value,
    show_default=True,
    help="The release; each has an image of its own.",
)
@click.option(
    "--also",
    type=click.Choice([release.value for release in Release]),
    multiple=True,
    help="Another release, as /opt/ceph-RELEASE of each namespace node, for ceph_build.",
)
@click.option("--nodes", type=click.IntRange(1, MOST_NODES), default=1, show_default=True)
@click.option(
    "--disks", type=click.IntRange(0, 16), default=2, show_default=True, help="Data disks a node."
)
@click.option(
    "--disk-size",
    metavar="SIZE",
    callback=_size,
    default="8G",
    show_default=True,
    help="Of each; kept sparse.",
)
@click.option(
    "--memory",
    metavar="SIZE",
    callback=_size,
    default="3G",
    show_default=True,
    help="Of each vm node.",
)
@click.option("--cpus", type=click.IntRange(1), default=2, show_default=True, help="Of each vm.")
@click.option(
    "--numa",
    type=click.IntRange(1, MOST_NUMA),
    default=1,
    show_default=True,
    help="NUMA nodes of each vm.",
)
@click.option(
    "--mirror", metavar="URL", help="Debian archive to build from [default: this machine's apt's]."
)
@_NAME
def up(  # noqa: PLR0913 - one parameter an option
    *,
    kind: str,
    ceph: str,
    also: tuple[str, ...],
    nodes: int,
    disks: int,
    disk_size: int,
    memory: int,
    cpus: int,
    numa: int,
    mirror: Optional[str],
    name: str,
) -> None:
    """Start a lab; the first time, build its image.

    A lab of the same shape that is up is left as it is.

    \b
      cbt-crypto lab up --kind vm --nodes 3 --disks 2 --disk-size 8G --memory 3G
    """
    if numa > 1 and kind != Kind.VM.value:
        raise UsageError("--numa needs --kind vm: namespace nodes have this machine's NUMA nodes")
    shape = Shape(
        kind=Kind(kind),
        ceph=Release(ceph),
        also=tuple(dict.fromkeys(map(Release, also))),
        nodes=nodes,
        disks=disks,
        disk_size=disk_size,
        memory=memory,
        cpus=cpus,
        numa=numa,
    )
    with Steps(Console(stderr=True)) as steps:
        started, new = lifecycle.up(name, shape, steps, mirror)
    if not new:
        click.echo(f"lab {name} is up already")
    _print_nodes(started)


@lab.command()
@_NAME
def status(name: str) -> None:
    """Show a lab's nodes. The exit status is 1 when it is not up, or not whole."""
    running = lifecycle.find(name)
    if running is None:
        click.echo(f"lab {name} is down")
        sys.exit(1)
    _print_nodes(running)
    sys.exit(1 if lifecycle.dead_nodes(running) else 0)


@lab.command("ssh", context_settings={"ignore_unknown_options": True})
@_NAME
@click.argument("node", default="node0")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def ssh_command(name: str, node: str, command: tuple[str, ...]) -> None:
    """Log in on NODE as root, or run COMMAND there."""
    running = lifecycle.running(name)
    chosen = next((each for each in running.nodes if each.name == node), None)
    if chosen is None:
        names = ", ".join(each.name for each in running.nodes)
        sentence = f"lab {name} has no node {node!r}; it has {names}"
        raise click.BadParameter(sentence, param_hint="NODE")
    line = access.command(running, chosen, *command, tty=bool(command) and sys.stdin.isatty())
    os.execvp(line[0], line)


@lab.command()
@run_options
@_NAME
def run(  # noqa: PLR0913 - one parameter an option
    *, config_file: Path, archive: Optional[Path], conf: Optional[Path], checkout: Optional[Path],
    only: tuple[str, ...], again: tuple[str, ...], no_report: bool, verbose: bool,
    name: str,
) -> None:  # fmt: skip
    """Run a campaign on the lab's head node, node0, and print its report here.

    Carries CONFIG.yaml, this program and what ARCHIVE has already into node0, runs cbt.py there,
    and brings the archive back however that ends: after a failure and after Ctrl-C too. The exit
    status is that of cbt.py.
    """
    archive = needed(archive)
    job = LabCampaign(config_file, archive, conf, checkout, only, again, verbose)
    with Steps(Console(stderr=True)) as steps:
        status = run_job(lifecycle.running(name), job, steps)
    if status != UsageError.exit_status and not no_report:
        from cbt_crypto import report  # noqa: PLC0415 - it takes seconds to load

        report.publish(archive, Console())
    sys.exit(status)


@lab.command()
@click.option("--image", "with_image", is_flag=True, help="Remove the cached image too.")
@_NAME
def down(with_image: bool, name: str) -> None:
    """End a lab and remove all of it. Safe to repeat, and after any kind of crash."""
    existed = lifecycle.down(name)
    click.echo(f"lab {name} is down" if existed else f"lab {name} was down already")
    if with_image:
        _remove_image()


def _remove_image() -> None:
    users = lifecycle.names()
    if users:
        raise UsageError(f"lab {users[0]} uses the image; take it down too, then repeat this")
    image.remove_all()


def _print_nodes(lab: Lab) -> None:
    dead = lifecycle.dead_nodes(lab)
    table = Table(box=None, pad_edge=False)
    for column in ("node", "address", "ssh", "state"):
        table.add_column(column)
    for node in lab.nodes:
        state = "not running" if node.name in dead else "running"
        table.add_row(node.name, node.address, f"{node.ssh_host}:{node.ssh_port}", state)
    console = Console()
    console.print(table)
    console.print(f"ssh -F {access.config_path(lab)} {lab.head.name}", soft_wrap=True)

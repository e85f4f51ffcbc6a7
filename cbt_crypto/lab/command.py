"""`cbt-crypto lab`: the commands."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from typing import Any, Optional

import click
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from cbt_crypto.command_line import RunOptions, examples, run_options, say
from cbt_crypto.errors import UsageError
from cbt_crypto.lab import access, image, lifecycle
from cbt_crypto.lab import shape as shapes
from cbt_crypto.lab.run import LabCampaign
from cbt_crypto.lab.run import run as run_job
from cbt_crypto.lab.shape import Kind, Lab, Release, Shape, Steps
from cbt_crypto.plan.file import read_campaign
from cbt_crypto.plan_command import archive_of
from cbt_crypto.units import size_bytes


def _lab_name(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}", value):
        sentence = f"{value!r} is not a name of up to 32 letters, digits, - and _"
        raise click.BadParameter(sentence, context, parameter)
    return value


_NAME = click.option(
    "--name", default="default", show_default=True, metavar="NAME", callback=_lab_name,
    help="Which lab; several can be up at once.",
)  # fmt: skip


def _size(context: click.Context, parameter: click.Parameter, value: str) -> int:
    try:
        return size_bytes(value)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from None


@click.group(
    epilog=examples(
        "cbt-crypto lab up --nodes 3",
        "cbt-crypto lab run configs/quickstart.yaml",
        "cbt-crypto lab down",
    )
)
def lab() -> None:
    """Start and stop disposable Ceph nodes here.

    For people without test hosts, and for machines that lack dm-crypt or must not be changed.
    Nodes are called node0, node1, ... and run Debian 13 with Ceph 18.2 (Reef), or
    Debian's next with Ceph 20.2 (Tentacle).
    """


def _count(
    option: str, most: Optional[int], default: int, said: str, least: int = 1
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    number = click.IntRange(least, most)
    return click.option(option, type=number, default=default, show_default=True, help=said)


@lab.command(
    epilog=examples("cbt-crypto lab up --kind vm --nodes 3 --disks 2 --disk-size 8G --memory 3G")
)
@click.option(
    "--kind", type=click.Choice([kind.value for kind in Kind]),
    help="vm: QEMU, needs no root. namespace: native speed, needs root.  [default: vm if KVM "
    "works, else namespace if this machine has dm-crypt, else vm]",
)  # fmt: skip
@click.option(
    "--ceph", type=click.Choice([release.value for release in Release]), default=Release.REEF.value,
    show_default=True, help="The release; each has an image of its own.",
)  # fmt: skip
@click.option(
    "--also", type=click.Choice([release.value for release in Release]), multiple=True,
    help="Another release, in /opt/ceph-RELEASE on each namespace node, for ceph_build.",
)  # fmt: skip
@_count("--nodes", shapes.MOST_NODES, 1, "Nodes.")
@_count("--disks", 16, 2, "Data disks of each node.", least=0)
@click.option(
    "--disk-size", metavar="SIZE", callback=_size, default="8G", show_default=True,
    help="Size of each data disk, a sparse file.",
)  # fmt: skip
@click.option(
    "--memory", metavar="SIZE", callback=_size, default="3G", show_default=True,
    help="Memory of each vm node.",
)  # fmt: skip
@_count("--cpus", None, 2, "CPUs of each vm node.")
@_count("--numa", shapes.MOST_NUMA, 1, "NUMA nodes of each vm node.")
@_count("--threads", shapes.MOST_THREADS, 1, "Hyperthreads of each core of each vm node.")
@click.option(
    "--mirror", metavar="URL", help="Debian archive to build from [default: as apt here]."
)
@_NAME
def up(
    *, kind: Optional[str], ceph: str, also: tuple[str, ...], mirror: Optional[str], name: str,
    **sizes: int,
) -> None:  # fmt: skip
    """Start a lab. The first time, this builds its image.

    If a lab of the same shape is up already, nothing changes.
    """
    if kind == Kind.NAMESPACE.value and max(sizes["numa"], sizes["threads"]) > 1:
        own = "namespace nodes have this machine's CPUs"
        raise UsageError(f"--numa and --threads need --kind vm: {own}")
    releases = tuple(dict.fromkeys(map(Release, also)))
    shape = Shape(kind=Kind(kind or Kind.VM), ceph=Release(ceph), also=releases, **sizes)
    with Steps(Console(stderr=True)) as steps:
        if kind is None:
            best, why = lifecycle.choose_kind(name, shape, steps, mirror)
            say(f"{best.noun}: {why}")
            shape = shape.model_copy(update={"kind": best})
        started, new = lifecycle.up(name, shape, steps, mirror)
    if not new:
        click.echo(f"lab {name} is up already")
    _print_nodes(started)


@lab.command("list", epilog=examples("cbt-crypto lab list"))
def list_labs() -> None:
    """List the labs of this user, with their shape and state."""
    found = [(name, lifecycle.find(name)) for name in lifecycle.names()]
    if not found:
        click.echo("no lab is up; start one with: cbt-crypto lab up")
        return
    table = Table(box=None, pad_edge=False)
    for column in ("lab", "state", "shape"):
        table.add_column(column, overflow="fold")
    for name, each in found:
        shape = "-" if each is None else each.shape.describe()
        table.add_row(Text(name), _state(each), Text(shape))
    Console().print(table)


def _state(lab: Optional[Lab]) -> str:
    if lab is None:
        return "did not start"
    dead = lifecycle.dead_nodes(lab)
    return "up" if not dead else f"{len(dead)} of {len(lab.nodes)} nodes not running"


@lab.command(epilog=examples("cbt-crypto lab status", "cbt-crypto lab status --json"))
@click.option("--json", "as_json", is_flag=True, help="Print the lab and its nodes as JSON.")
@_NAME
def status(name: str, as_json: bool) -> None:
    """Show a lab's nodes.

    Exits with 1 if the lab is not up, or a node is not running.
    """
    running = lifecycle.find(name)
    if as_json:
        _print_json(name, running)
    elif running is None:
        click.echo(f"lab {name} is down")
    else:
        _print_nodes(running)
    if running is None:
        sys.exit(1)
    sys.exit(1 if lifecycle.dead_nodes(running) else 0)


@lab.command(
    "ssh",
    context_settings={"ignore_unknown_options": True},
    epilog=examples("cbt-crypto lab ssh", "cbt-crypto lab ssh node0 lsblk"),
)
@_NAME
@click.argument("node", default="node0")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def ssh_command(name: str, node: str, command: tuple[str, ...]) -> None:
    """Log in to NODE as root, or run COMMAND there."""
    running = lifecycle.running(name)
    chosen = next((each for each in running.nodes if each.name == node), None)
    if chosen is None:
        names = ", ".join(each.name for each in running.nodes)
        sentence = f"lab {name} has no node {node!r}; it has {names}"
        raise click.BadParameter(sentence, param_hint="NODE")
    line = access.command(running, chosen, *command, tty=bool(command) and sys.stdin.isatty())
    os.execvp(line[0], line)


@lab.command(
    epilog=examples(
        "cbt-crypto lab run configs/quickstart.yaml",
        "cbt-crypto lab run -a results/first --only LUKS configs/quickstart.yaml",
    )
)
@run_options
@_NAME
def run(name: str, **chosen: Any) -> None:
    """Run a campaign in the lab and print its report here.

    Copies CONFIG.yaml, cbt-crypto and the results so far to node0, runs cbt.py there, and copies
    the archive back, even after a failure or Ctrl-C. Without -a, chooses the archive as cbt-crypto
    run does. Exits with the status of cbt.py.
    """
    options = RunOptions(**chosen)
    archive = options.archive or archive_of(read_campaign(options.config_file), options)
    if options.archive is None:
        say(f"archive: {archive}")
    job = LabCampaign(
        options.config_file, archive, options.conf, options.checkout, options.only, options.again,
        options.verbose,
    )  # fmt: skip
    with Steps(Console(stderr=True)) as steps:
        status = run_job(lifecycle.running(name), job, steps)
    if status != UsageError.exit_status and not options.no_report:
        from cbt_crypto import report  # noqa: PLC0415 - it takes seconds to load

        report.publish(archive, Console())
    sys.exit(status)


@lab.command(epilog=examples("cbt-crypto lab down", "cbt-crypto lab down --name second --image"))
@click.option("--image", "with_image", is_flag=True, help="Remove the cached image too.")
@_NAME
def down(with_image: bool, name: str) -> None:
    """Stop a lab and remove all of it.

    Safe to repeat, and after any kind of crash.
    """
    existed = lifecycle.down(name)
    click.echo(f"lab {name} is down" if existed else f"lab {name} was down already")
    if not with_image and (size := image.size()):
        remedy = "cbt-crypto lab down --image"
        click.echo(
            f"The nodes' image ({decimal(size)}) stays for the next lab; remove it: {remedy}"
        )
    if with_image:
        lifecycle.remove_images()


def _print_json(name: str, lab: Optional[Lab]) -> None:
    dead = [] if lab is None else lifecycle.dead_nodes(lab)
    nodes = [
        {
            "name": node.name,
            "address": node.address,
            "ssh": f"{node.ssh_host}:{node.ssh_port}",
            "running": node.name not in dead,
        }
        for node in (() if lab is None else lab.nodes)
    ]
    document = {"format": 1, "name": name, "up": lab is not None and not dead, "nodes": nodes}
    click.echo(json.dumps(document, indent=2))


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
    console.print(Text(f"ssh -F {access.config_path(lab)} {lab.head.name}"), soft_wrap=True)

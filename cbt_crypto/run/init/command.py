"""The command `cbt-crypto init`."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Optional

import click
import yaml
from pydantic import TypeAdapter, ValidationError
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from cbt_crypto.archive.files import one_line, printable
from cbt_crypto.engine.choice import embedded
from cbt_crypto.errors import RunError, UsageError
from cbt_crypto.hosts.remote import NONSENSE, Remote
from cbt_crypto.plan.file import Campaign, ClusterSection, read_campaign, validate_campaign
from cbt_crypto.plan.file.field_types import UserName
from cbt_crypto.plan.order import cells_of
from cbt_crypto.plan.predict import Forecast
from cbt_crypto.plan.steps import plan
from cbt_crypto.run.init import hardware, proposed
from cbt_crypto.run.init.hardware import HostHardware
from cbt_crypto.run.init.proposed import Proposal, Start
from cbt_crypto.run.preflight import check
from cbt_crypto.run.preflight.survey import HostFinding
from cbt_crypto.units import counted


def show(hosts: Sequence[HostHardware], console: Console) -> None:
    """Print what the hosts have."""
    for host in hosts:
        _say(console, f"{host.name}: {host.system}, kernel {host.kernel}")
        numa = f", {host.numa_nodes} NUMA nodes" if host.numa_nodes > 1 else ""
        memory = f"{host.memory / 2**30:.0f} GiB"
        cpus = "1 CPU" if host.cpus == 1 else f"{host.cpus} CPUs"
        _say(console, f"  {cpus}{numa}, {memory}: {host.processor}")
        for network in host.networks:
            speed = f", {network.speed / 1000:g} Gbit/s" if network.speed else ""
            _say(console, f"  {network.name}: {network.address}, MTU {network.mtu}{speed}")
        versions = ", ".join(f"{program} {version}" for program, version in host.versions.items())
        _say(console, f"  {versions or 'no program of Ceph, fio, cryptsetup'}")
    _drives(hosts, console)


def _drives(hosts: Sequence[HostHardware], console: Console) -> None:
    drives = [drive for host in hosts for drive in host.drives]
    if not drives:
        _say(console, "\nno host has a block device that can be seen")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("host", "drive", "size", "model"):
        table.add_column(column, no_wrap=True)
    table.add_column("free, or why not", overflow="fold")
    for drive in drives:
        model = " ".join(filter(None, (drive.model, drive.serial))) or "-"
        row = (drive.host, drive.name, decimal(drive.size), model)
        verdict = Text(one_line(drive.why_not or f"free: {drive.stable}"))
        verdict.stylize("" if drive.why_not else "green")
        table.add_row(*(Text(one_line(word)) for word in row), verdict)
    console.print()
    wide = console if console.is_terminal else Console(file=console.file, width=10_000)
    wide.print(table)


def show_proposal(proposal: Proposal, console: Console) -> None:
    """Print the roles in a sentence each."""
    clients = " ".join(host.name for host in proposal.clients)
    osds = " ".join(host.name for host in proposal.osds)
    on = "sparse files, as not all have a free drive" if proposal.file_bytes else "free drives"
    _say(console, f"\nOSDs: {proposal.osds_per_node} on each of {osds}, on {on}")
    _say(console, f"clients: {clients}; head: {proposal.clients[0].name}")


def _say(console: Console, line: str) -> None:
    console.print(Text(printable(line)), soft_wrap=True)


_HEADING = "-- Target nodes --"
#: Seconds for programs that list hosts: a list may be a file without an end.
ANSWER_S = 60
#: As field_types.HostName: nothing that a shell or a host list would expand once more.
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")


def expand(text: str) -> tuple[str, ...]:
    """The hosts of one of pdsh's host lists, each once, in its order.

    Where pdsh is, it expands it, so all of its syntax will do; where it is not, names with commas
    between them. Raises UsageError for what is none.
    """
    # No module that would log in anywhere; -Q lists the hosts and ends.
    command = ["pdsh", "-R", "exec", "-Q", "-w", text]
    try:
        answer = _answer(command)
    except FileNotFoundError:
        return _without_pdsh(text)
    listed = answer.stdout.partition(_HEADING)[2].split()
    names = [name for part in listed for name in part.split(",") if name]
    if answer.returncode != 0 or not names:
        why = answer.stderr.strip().splitlines()
        raise UsageError(
            f"--hosts {text!r} is no list of hosts{': ' + why[-1] if why else ''}; write it as "
            "for pdsh -w, such as 'osd[0-4],client[0-4]'"
        )
    return _checked(f"--hosts {text!r}", names)


def _answer(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False,
            stdin=subprocess.DEVNULL, timeout=ANSWER_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise UsageError(f"{command[0]} names no hosts within {ANSWER_S} s") from None


def _without_pdsh(text: str) -> tuple[str, ...]:
    """Names with commas between them; where pdsh is not packaged, campaigns do without it too."""
    if not text or set(text) & set("[]^/"):
        raise UsageError(
            f"pdsh is missing on this machine, which would expand --hosts {text!r}; install pdsh, "
            "or write every name, with commas between them"
        )
    return _checked(f"--hosts {text!r}", [name for name in text.split(",") if name])


def _checked(option: str, names: list[str]) -> tuple[str, ...]:
    if not names:
        raise UsageError(f"{option} names no host; write names with commas between them")
    for name in names:
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{option}: {name!r} is no host name; write names with commas between "
                "them, or a list as for pdsh -w, and the user with --user"
            )
    return tuple(dict.fromkeys(names))


_SSH_PORT = "22"


def of_inventory(path: Path, limit: Optional[str]) -> tuple[str, ...]:
    """Return the hosts of an Ansible inventory, each once, by the addresses that Ansible uses.

    `limit` is one of Ansible's host patterns. Asks ansible-inventory(1). Raises UsageError.
    """
    if not path.exists():
        raise UsageError(f"--inventory {path}: no such file; name one that Ansible reads")
    limits = ["--limit", limit] if limit else []
    command = ["ansible-inventory", "-i", str(path), "--list", *limits]
    try:
        answer = _answer(command)
    except FileNotFoundError:
        raise UsageError(
            "ansible-inventory is missing on this machine, which reads --inventory; install "
            "ansible-core, or name the hosts with --hosts"
        ) from None
    try:
        groups = json.loads(answer.stdout)
        known = groups["_meta"]["hostvars"]
        names = [name for group in groups.values() for name in group.get("hosts", ())]
        said = {name: known.get(name, {}) for name in names}
        hosts = [str(v.get("ansible_host", v.get("ansible_ssh_host", n))) for n, v in said.items()]
        ports = {n: v.get("ansible_port", v.get("ansible_ssh_port", 22)) for n, v in said.items()}
    except NONSENSE:
        hosts, ports = [], {}
    for name, port in ports.items():
        # Behind one address they may be machines of their own; port 22 is the address's.
        if str(port) != _SSH_PORT:
            raise UsageError(
                f"--inventory {path}: {name} has ssh at port {port}; campaigns know only what "
                "~/.ssh/config says: write Host and Port there, and name it with --hosts alone"
            )
    if not hosts:
        why = (answer.stderr.strip().splitlines() or ["no host of that name"])[-1]
        raise UsageError(f"--inventory {path} has no such hosts; ansible-inventory says: {why}")
    return _checked(f"--inventory {path}", hosts)


#: Of a run of a file that starts from no article.
_HOURS = 2.0
_TMP_DIR = str(ClusterSection.model_fields["tmp_dir"].default)


@click.command(
    "init",
    epilog="\b\nExamples:\n"
    "  cbt-crypto init --hosts 'osd[0-4],client[0-4]' -o campaign.yaml\n"
    "  cbt-crypto init --hosts node0 --article reef_encryption --time 30\n"
    "  cbt-crypto init --inventory hosts.ini --hosts 'osds,clients'",
)
@click.option(
    "--hosts", "host_list", metavar="LIST",
    help="The hosts, as for pdsh -w: 'osd[0-4],client[0-4]', or ^FILE with one a line. With "
    "--inventory: which of its hosts, as for ansible --limit.",
)  # fmt: skip
@click.option(
    "--inventory", type=click.Path(path_type=Path), metavar="FILE",
    help="Take the hosts from an Ansible inventory; needs ansible-inventory.",
)  # fmt: skip
@click.option("--user", metavar="NAME", help="User for ssh [default: yours].")
@click.option(
    "--article", type=click.Choice(proposed.ARTICLES),
    help="Start from a published experiment's file.",
)  # fmt: skip
@click.option(
    "--time", "seconds", type=click.IntRange(1, 86400), metavar="SECONDS",
    help="Seconds to measure each cell (default: 60, or the article's). Ramps are capped at this, "
    "too.",
)  # fmt: skip
@click.option(
    "--hours", type=click.FloatRange(0.1, 1000), metavar="HOURS",
    help="Most hours that the run may take (default: 2; with --article, as published). Cells, "
    "rounds, volumes and workloads are cut to fit.",
)  # fmt: skip
@click.option(
    "-o", "output", type=click.Path(path_type=Path), default=Path("campaign.yaml"),
    show_default=True, metavar="FILE", help="The file to write; it must not exist.",
)  # fmt: skip
def init(
    host_list: Optional[str], inventory: Optional[Path], user: Optional[str],
    article: Optional[str], seconds: Optional[int], hours: Optional[float], output: Path,
) -> None:  # fmt: skip
    """Write a campaign file for these hosts.

    Asks the hosts what they have, and changes nothing on them. Exits with 1 if the file is written
    but a requirement on the hosts is not met yet.
    """
    if not host_list and inventory is None:
        raise click.UsageError("Missing option '--hosts': name the hosts, or an --inventory.")
    if os.path.lexists(output):
        raise UsageError(f"{output}: is there already; name another file with -o")
    if user is not None:
        _check_user(user)
    console, engine = Console(), embedded()
    remote = Remote(engine.common, _TMP_DIR, user)
    names = expand(host_list or "") if inventory is None else of_inventory(inventory, host_list)
    with console.status(f"asking {counted(len(names), 'host')} what they have"):
        try:
            hosts = hardware.read_hardware(remote, names, _TMP_DIR)
        except UsageError as error:
            unwritten = f"{output}: not written, as all hosts have to answer; docs/own-hosts.md"
            raise UsageError(f"{error}\n{unwritten} says what hosts need") from None
    show(hosts, console)
    proposal = proposed.propose(hosts)
    show_proposal(proposal, console)
    start = proposed.start_from(article, proposal, seconds)
    origin = f"configs/{article}.yaml" if article else "the quickstart's configurations"

    def text(start: Start) -> str:
        return proposed.text(proposal, start, output.name, user, origin)

    def campaign_of(start: Start) -> Campaign:
        return validate_campaign(output, yaml.safe_load(text(start)))

    with console.status("asking which configurations they can run"):
        start = proposed.fitting(start, campaign_of(start), remote)
    most = hours or (_HOURS if article is None else math.inf)
    sizes = (proposed.start_from(article, proposal, seconds, size) for size in proposed.SIZES)
    smaller = (replace(one, left_out=start.left_out, dropped=start.dropped) for one in sizes)
    whole = start
    start, takes = within(most, smaller, lambda one: hours_of(campaign_of(one)))
    start = replace(start, cut=proposed.cut_from(whole, start))
    for name, why in (*start.dropped.items(), *start.left_out.items()):
        click.echo(printable(f"left out: {name}: {why}"))
    write_new(output, text(start))
    click.echo(
        f"a run takes about {takes:.1f} h and ends in verdicts"
        + (f"; to fit --hours {most:g}: {start.cut}" if start.cut else "")
        + (f"; the smallest one takes more than --hours {most:g}" if takes > most else "")
    )
    with console.status(f"checking {output}"):
        campaign = read_campaign(output)
        found = check.survey_campaign(campaign, engine, cells_of(campaign))
        remaining = [finding for finding in found if finding.error]
    _tell(output, remaining)


def write_new(output: Path, text: str) -> None:
    """Write a file that is not there yet, or leave none. Raises UsageError."""
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
            output.unlink(missing_ok=True)
        raise UsageError(f"{output}: {error.strerror}; name another file with -o") from None


def within(
    most: float, starts: Iterable[Start], hours_of_one: Callable[[Start], float]
) -> tuple[Start, float]:
    """Return the first that takes `most` hours or less, else the last, and the hours it takes."""
    for start in starts:
        taken = start, hours_of_one(start)
        if taken[1] <= most:
            break
    return taken


def hours_of(campaign: Campaign) -> float:
    """The hours that a run takes on a small cluster."""
    return Forecast(plan(campaign), now=lambda: 0.0).left().seconds / 3600


def _check_user(user: str) -> None:
    # ssh would take a name that begins with a dash for an option, and the file has it as it is.
    try:
        TypeAdapter(UserName).validate_python(user)
    except ValidationError:
        raise UsageError(
            f"--user {user!r} is no name of a user; write it as in user@host"
        ) from None


def _tell(output: Path, remaining: list[HostFinding]) -> None:
    for finding in remaining:
        click.echo(printable(f"error: {finding.host}: {finding.error}"))
    if remaining:
        click.echo(
            f"\nwritten: {output}; fix what is listed above, then: cbt-crypto check {output}"
        )
        sys.exit(RunError.exit_status)
    click.echo(f"\nwritten: {output}, and the hosts pass its check; next:")
    click.echo(f"  cbt-crypto plan {output}\n  cbt-crypto run {output}")

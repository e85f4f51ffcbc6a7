"""What `init` shows of the hosts: each one's hardware, and each drive, free or why not."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cbt_crypto.run.init.campaign_file import facts, one_line
from cbt_crypto.run.init.hardware import HostHardware, decimal
from cbt_crypto.run.init.roles import Proposal


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
        _say(console, f"  {facts(host.versions) or 'no program of Ceph, fio, cryptsetup'}")
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
    text = "".join(char if char.isprintable() or char == "\n" else "?" for char in line)
    console.print(text, highlight=False, markup=False, soft_wrap=True)

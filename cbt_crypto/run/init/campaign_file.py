"""The campaign file as text: what was proposed, and beside each value why."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from cbt_crypto.run.init.hardware import HostDrive
from cbt_crypto.run.init.roles import Proposal
from cbt_crypto.run.init.start import Start


def text(proposal: Proposal, start: Start, name: str, user: str | None, origin: str) -> str:
    """The whole file. `name` is what it will be called, `origin` what it starts from."""
    parts = (
        _heading(name, origin),
        _hosts(proposal, user),
        _devices(proposal),
        _pools(proposal, start),
        _experiment(start),
        _monitoring(proposal),
        _benchmarks(start),
    )
    return "".join(f"{line}\n" for part in parts for line in part)


def _heading(name: str, origin: str) -> Iterator[str]:
    yield f"# Proposed by `cbt-crypto init` from what the hosts have; it starts from {origin}."
    yield "# Nothing was touched. Read it, change it, then:"
    yield "#"
    yield f"#   cbt-crypto check {name}"
    yield f"#   cbt.py --plan {name}"
    yield f"#   cbt.py -a archive {name}"
    yield "#"
    yield "# docs/file.md describes every key."


def _hosts(proposal: Proposal, user: str | None) -> Iterator[str]:
    network, mon = proposal.network, proposal.osds[0].name
    speed = f"{network.speed / 1000:g} Gbit/s" if network.speed else "speed unknown"
    yield "cluster:"
    if user:
        yield f"  user: {user}"
    yield f"  head: {proposal.clients[0].name}"
    yield f"  clients: {flow([host.name for host in proposal.clients])}"
    yield f"  osds: {flow([host.name for host in proposal.osds])}"
    why = "the fastest network that all are in"
    if not proposal.network_is_shared:
        why = f"the fastest of {mon}; the hosts have none in common, so it has to be routed"
    yield f"  # {network.name}, {speed}, MTU {network.mtu}: {why}."
    address = network.address.partition("/")[0]
    yield f"  mons: {{{mon}: {{a: {json.dumps(address)}}}}}"
    yield f"  mgrs: {{{mon}: {{x: ~}}}}"
    yield f"  osds_per_node: {proposal.osds_per_node}"


def _devices(proposal: Proposal) -> Iterator[str]:
    if proposal.file_bytes:
        yield "  # Not every OSD host has a free drive: OSDs are sparse files below tmp_dir, whose"
        yield "  # figures say nothing of drives, and LUKS cannot be laid under them."
        yield f"  osd_file_size: {binary(proposal.file_bytes)}"
        return
    yield "  # Free, unmounted, without anybody's signature. Their content is overwritten."
    yield "  osd_devices:"
    for host, drives in proposal.drives.items():
        yield f"    {host}:"
        yield from (f"      - {_path(drive)}   # {one_line(drive.described)}" for drive in drives)
    if proposal.spare:
        yield "  # Free too, and left out as every host is to have as many and alike:"
        yield from (f"  #   {d.host}: {_path(d)}   {one_line(d.described)}" for d in proposal.spare)


def _pools(proposal: Proposal, start: Start) -> Iterator[str]:
    count = proposal.osds_per_node * len(proposal.osds)
    each = round(proposal.pg_num * proposal.replication / count)
    profile = {
        "pg_size": proposal.pg_num,
        "pgp_size": proposal.pg_num,
        "replication": proposal.replication,
    }
    yield f"  # {each} PGs an OSD, replicas counted; Ceph's documentation aims at 100 to 200."
    yield f"  pool_profiles: {flow({'rbd': profile})}"
    least = min(host.memory for host in proposal.osds)
    settings = {key: v for key, v in start.settings.items() if key != "osd_memory_target"}
    bound = (
        "the least that Ceph takes, and too much" if proposal.is_short_of_memory else "16G at most"
    )
    yield f"  # For {proposal.osds_per_node} a host, of {least / 2**30:.3g} GiB; {bound}."
    settings = {"osd_memory_target": binary(proposal.memory_target), **settings}
    yield f"  settings: {flow(settings)}"


def _experiment(start: Start) -> Iterator[str]:
    for key, value in start.cluster.items():
        if key == "iterations":
            yield "  # Rounds: each deploys and measures every configuration once. Verdicts take 4."
        if key != "baseline":
            yield f"  {key}: {flow(value)}"
    yield f"  baseline: {flow(start.baseline)}"
    for overlay, why in start.dropped.items():
        yield f"  # {overlay} is left out of all of them: {one_line(why)}"
    yield "  configurations:"
    for name, overlays in start.usable.items():
        yield f"    {flow(name)}: {flow(overlays)}"
    for name, why in start.left_out.items():
        yield f"    # {one_line(why)}"
        yield f"    # {flow(name)}: {flow(start.configurations[name])}"


def _monitoring(proposal: Proposal) -> Iterator[str]:
    hosts = {host.name: host for host in (*proposal.clients, *proposal.osds)}
    without = [name for name, host in hosts.items() if "collectl" not in host.versions]
    if without:
        yield f"# Our own sampler watches all hosts: collectl is missing on {' '.join(without)}."
        yield "# Where collectl is on every host, leave this section out."
        yield "monitoring_profiles:"
        yield "  sampler: {}"


def _benchmarks(start: Start) -> Iterator[str]:
    yield "benchmarks:"
    for name, section in start.benchmarks.items():
        yield f"  {name}:"
        sections = section if isinstance(section, list) else [section]
        for part in sections:
            for index, (key, value) in enumerate(part.items()):
                dash = ("- " if index == 0 else "  ") if isinstance(section, list) else ""
                yield f"    {dash}{key}: {flow(value)}"


def data(written: str) -> Any:
    """What a text says."""
    return yaml.safe_load(written)


def flow(value: Any) -> str:
    """A value in one line of YAML."""
    # Through JSON: what two keys share must not become an anchor and an alias.
    plain = json.loads(json.dumps(value))
    text = yaml.safe_dump(plain, default_flow_style=True, width=1 << 30, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...")


def binary(size: int) -> str:
    """Bytes as the file has them: `16G`, `900M`."""
    return f"{size >> 30}G" if size % (1 << 30) == 0 else f"{size >> 20}M"


def _path(drive: HostDrive) -> str:
    return flow(drive.stable)


def one_line(text: str) -> str:
    """Return what a host said as one line, for a comment."""
    return "".join(char if char.isprintable() else "?" for char in text)


def facts(values: Mapping[str, Any]) -> str:
    """`ceph 18.2.7, fio 3.39`."""
    return ", ".join(f"{key} {value}" for key, value in values.items())

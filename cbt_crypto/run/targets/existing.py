"""A cluster that somebody else deployed: its OSDs are found, overlays are claims to be proved."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Optional

from typing_extensions import override

from cbt_crypto.archive.files import digest, one_line
from cbt_crypto.benchmarks.base import ClusterCommands, Scenario, Volume
from cbt_crypto.benchmarks.upstream import OfUpstream
from cbt_crypto.cluster_overlays.base import Transition
from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.engine import Engine
from cbt_crypto.engine.contract import Cluster, MakeCluster
from cbt_crypto.errors import HostError, RunError, UsageError
from cbt_crypto.hosts import ceph_conf, marked_processes, rados_client_on_host, shell
from cbt_crypto.hosts.devices import rbd_images
from cbt_crypto.hosts.remote import Remote, answer_of
from cbt_crypto.hosts.requirement import CLUSTER, Fact, Requirement
from cbt_crypto.hosts.site import HostScripts, Osd, Site
from cbt_crypto.plan.cells import Cell
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.file.checks import origin_of
from cbt_crypto.plan.file.cluster import ClusterSection, Variant
from cbt_crypto.plan.file.field_types import HOST_NAME
from cbt_crypto.plan.layout import cell_site, ceph_dir, site_of
from cbt_crypto.plan.order import cells_of
from cbt_crypto.plan.steps import Deploy, volumes_of
from cbt_crypto.run import journal
from cbt_crypto.run.locks import hosts_held, this_run
from cbt_crypto.run.targets import sockets_on_host
from cbt_crypto.run.targets.base import Runs, commands_of
from cbt_crypto.run.targets.cluster import overlaid, take_down

_FIND = "find the OSDs' admin sockets"
_FSID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class LetIn(Fact):
    """That a host is let into a cluster, whose fsid its script prints."""

    @override
    def shown(self, output: str) -> str:
        return "no" if self.judge(output) else output.strip()[:8]

    @override
    def judge(self, output: str) -> Optional[str]:
        return None if _FSID.fullmatch(output.strip()) else Requirement.judge(self, output)


def of_head(
    section: ClusterSection, site: Site, pools: Mapping[str, int], names: Sequence[str]
) -> Requirement:
    """That the cluster lets the head in, has pools with room for MiB, and none of these images."""
    words = ceph_conf.client_words(site.conf, site.client_id)
    limit, of_rbd = shell.answer_limit(site.ceph_cmd), shell.answer_limit(section.rbd_cmd)
    rbd = f"timeout {of_rbd} {shell.command(section.rbd_cmd)} {words}"
    ask = f'ask() {{ timeout {limit} {site.ceph_command} "$@"; }}'
    present = f"present() {{\n{rbd_images.present(names, rbd) or ':'}\n}}"
    asked = (str(word) for pool in pools.items() for word in pool)
    calls = shell.call(__file__, "check_cluster", str(limit), *asked)
    script = f"{_settings(site)}{ask}\n{present}\n{calls}"
    takes_s = 2 * limit + of_rbd * rbd_images.turns(names)
    return LetIn("existing cluster", (site.head,), script, CLUSTER, takes_s)


def of_clients(site: Site, cells: Sequence[Cell]) -> Requirement:
    """That it lets those in who load it, by the files and keys that are on their own hosts."""
    loading = (host for cell in cells for host in cell.scenario.active_clients(site.clients))
    asked = {"conf": site.conf, "user": site.client_id, "names": ["fsid"]}
    connect = shell.python(shell.program(rados_client_on_host), asked)
    # fio is no root, who may read every key; what the kernel maps is mapped by root.
    if any(cell.scenario.uses_client_libraries for cell in cells):
        connect = f"{shell.PYTHON}='python3 -I -S'\n{connect}"
    calls = shell.call(__file__, "check_client")
    script = f"{_settings(site)}connect() {{\n{connect}}}\n{calls}"
    hosts = tuple(dict.fromkeys(loading))
    return LetIn("client", hosts, script, CLUSTER, rados_client_on_host.TIMEOUT_S + 10)


def _settings(site: Site) -> str:
    values = {"CONF": site.conf, "CLIENT": f"client.{site.client_id}"}
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())


@dataclass(frozen=True)
class Found:
    """The site with its OSDs, and scripts that note their pids below `tmp_dir`."""

    site: Site
    pid_files: HostScripts


def discover(remote: Remote, site: Site, cluster: ClusterSection) -> Found:
    """The cluster's OSDs by their own words; RunError for one without a host or a socket."""
    fsid, metadata = _ask_monitors(remote, site, cluster)
    host_of = _hosts(remote, cluster, sorted({str(osd["hostname"]) for osd in metadata}))
    directories: dict[str, dict[str, str]] = {}
    for osd in metadata:
        host = host_of.get(str(osd["hostname"]))
        if host is None:
            raise RunError(
                f"osd.{osd['id']} is on {osd['hostname']}, which is none of cluster.osds; add that "
                "host by the name that ssh takes"
            )
        directories.setdefault(host, {})[str(osd["id"])] = str(osd.get("osd_data", ""))
    source = shell.program(sockets_on_host)
    asked = {host: {"fsid": fsid, "osds": osds} for host, osds in directories.items()}
    scripts = {host: shell.python(source, of_host) for host, of_host in asked.items()}
    outputs = remote.run(scripts, _FIND, 120)
    answers = {host: answer_of(host, _FIND, text, _sockets_in) for host, text in outputs.items()}
    osds = [
        _osd(cluster, host, int(number), directory, answers[host].get(number))
        for host, of_host in directories.items()
        for number, directory in of_host.items()
    ]
    osds.sort(key=lambda osd: osd.id)
    pid_files: dict[str, str] = {}
    for found in osds:
        pid = answers[found.host][str(found.id)]["pid"]
        line = f"echo {pid} > {shlex.quote(found.pid_file)}\n"
        pid_files[found.host] = pid_files.get(found.host, "") + line
    return Found(replace(site, osds=tuple(osds)), pid_files)


def check_same(remote: Remote, campaign: Campaign, fsid: str) -> str:
    """The fsid of a cluster that the campaign finds, or empty. UsageError if it is not `fsid`."""
    if not campaign.cluster.use_existing:
        return ""
    site, limit = site_of(campaign.cluster), shell.answer_limit(campaign.cluster.ceph_cmd)
    ask = f"timeout {limit} {site.ceph_command} fsid"
    said = remote.attempt({site.head: ask}, limit + 30, "ask which cluster it is")[site.head]
    found = _FSID.search(said.stdout)
    if found and fsid not in ("", found[0]):
        raise UsageError(f"{site.head}: {site.conf} leads to the cluster {found[0]} now, and this "
                         f"archive is of {one_line(fsid)}; lead it back, name another with -a, or "
                         "give up what is left there: cbt-crypto cleanup --forget")  # fmt: skip
    return found[0] if found else ""


def _ask_monitors(
    remote: Remote, site: Site, cluster: ClusterSection
) -> tuple[str, list[Mapping[str, Any]]]:
    ceph, limit = site.ceph_command, shell.answer_limit(site.ceph_cmd)
    script = f"timeout {limit} {ceph} fsid\ntimeout {limit} {ceph} osd metadata --format json"
    what = "ask the cluster for its OSDs"
    printed = remote.run({site.head: script}, what, 2 * limit + 30)[site.head]
    fsid, _, document = printed.strip().partition("\n")
    metadata = answer_of(site.head, what, document, _metadata_in)
    if not metadata:
        raise RunError(f"{site.head}: the cluster of {site.conf} has no OSD that runs; start it")
    return fsid.strip(), metadata


def _metadata_in(text: str) -> list[Mapping[str, Any]]:
    """OSDs that said where they run, with `id` a number."""
    found = [osd for osd in json.loads(text) if "hostname" in osd]
    if not all(isinstance(osd["id"], int) for osd in found):
        raise ValueError("an OSD without a number")
    return found


def _sockets_in(text: str) -> dict[str, Any]:
    """Number of the OSD -> what its admin socket said, `pid` among it; None where none answers."""
    answers = dict(json.loads(text))
    if not all(isinstance(each["pid"], int) for each in answers.values() if each):
        raise ValueError("an OSD without a process")
    return answers


def _hosts(remote: Remote, cluster: ClusterSection, names: Sequence[str]) -> dict[str, str]:
    """What the OSDs call their hosts -> what the file, and so ssh, calls them."""
    if not cluster.osds:
        # They are an OSD's word, and ssh takes one that begins with - for an option.
        return {name: name for name in names if re.fullmatch(HOST_NAME, name)}
    script = "hostname; hostname -s 2>/dev/null || :; hostname -f 2>/dev/null || :"
    outputs = remote.run(dict.fromkeys(cluster.osds, script), "ask the host for its name", 60)
    host_of: dict[str, str] = {}
    for host, text in outputs.items():
        for name in {*text.split()} & {*names}:
            if name in host_of:
                raise RunError(
                    f"{host_of[name]} and {host} both say that they are {name}, where OSDs run; "
                    "name each of cluster.osds once, and give each host a name of its own"
                )
            host_of[name] = host
    return host_of


def _osd(cluster: ClusterSection, host: str, number: int, directory: str, answer: Any) -> Osd:
    if not answer:
        raise HostError(
            host, f"find the admin socket of osd.{number}", "none answers as that OSD",
            "does it run there, and may the user read it, as root or by sudo; without a way to "
            "it, say proof: none, and every row says so",
        )  # fmt: skip
    return Osd(
        id=number,
        host=host,
        device=answer["device"],
        data_dir=directory,
        admin_socket=answer["socket"],
        pid_file=f"{ceph_dir(cluster)}/run/osd.{number}.pid",
        is_file=answer["is_file"],
        db_device=answer["db_device"],
        is_existing=True,
    )


def remove_images(
    remote: Runs, head: str, commands: ClusterCommands, volumes: Sequence[Volume]
) -> None:
    """Remove images that `commands.run` made, each tried; a killed client's watch must end."""
    if volumes and commands.run:
        script = rbd_images.remove_images([v.image for v in volumes], commands.rbd, commands.run)
        remote.run({head: script}, "remove the volumes", commands.images_s)


class ExistingCluster:
    """The target on a cluster that is there: one configuration, whose claims are proved."""

    can_be_rebuilt = False
    variant: Variant = ()
    conf_text = ""

    def __init__(
        self, engine: Engine, remote: Remote, section: ClusterSection, stacks: Mapping[str, Stack]
    ) -> None:
        self._engine = engine
        self._remote = remote
        self._section = section
        self.site: Site = site_of(section)
        self._held = contextlib.ExitStack()
        self.begin(stacks)

    @staticmethod
    def maker(engine: Engine) -> MakeCluster:
        """What makes the engine's cluster."""
        return engine.ExistingCeph

    @staticmethod
    def problems(campaign: Campaign, configurations: Sequence[str]) -> Iterator[str]:
        """A sentence for each thing in the file that would have to change such a cluster."""
        for name in configurations:
            for overlay in campaign.configurations[name]:
                if overlay.is_present and not overlay.is_recognised:
                    yield (
                        f'cluster.configurations: "{name}": {overlay.name} would have to be '
                        "deployed, and with use_existing nothing is; remove it from the "
                        "configuration"
                    )
        stacks = campaign.stacks
        for name in configurations[1:]:
            if stacks[configurations[0]].transition_to(stacks[name]) is not Transition.NONE:
                yield (
                    f'cluster.configurations: "{configurations[0]}" cannot become "{name}", as '
                    "with use_existing nothing is deployed; measure each on its own cluster, into "
                    "an archive of its own"
                )

    @staticmethod
    def requirements(campaign: Campaign, site: Site, cells: Sequence[Cell]) -> list[Requirement]:
        """That the cluster lets head and clients in, has the pools, and none of the images."""
        ours = [cell.scenario for cell in cells if not isinstance(cell.scenario, OfUpstream)]
        data = (scenario.data_pool for scenario in ours)
        pools = dict.fromkeys([*(each.pool_profile for each in ours), *filter(None, data)], 0)
        volumes = volumes_of(campaign, cells)
        for volume in volumes:
            pools[volume.data_pool or volume.pool] += volume.size_mb
        # CBT's benchmarks make pools of their own: "" is one that is not there yet.
        theirs = (cell.scenario for cell in cells if isinstance(cell.scenario, OfUpstream))
        sizes = (getattr(s, "vol_size", 0) * getattr(s, "volumes_per_client", 1) for s in theirs)
        if size := max(sizes, default=0):
            pools[""] = size * len(site.clients)
        names = [volume.image for volume in volumes]
        return [of_head(campaign.cluster, site, pools, names), of_clients(site, cells)]

    @property
    def deployment(self) -> Optional[str]:
        """One deployment, from however many runs it is measured."""
        return digest(origin_of(self._section).conf_said)[:12]

    def begin(self, stacks: Mapping[str, Stack]) -> None:
        """Take the one configuration's stack, whose claims are proved. Touches nothing."""
        self._stacks = dict(stacks)
        self.stack = next(iter(self._stacks.values()))
        self.cluster, self._bound = overlaid(
            self.maker(self._engine), self._engine.settings.cluster, list(self._stacks.values())
        )

    def transition(self, step: Deploy) -> Transition:
        """None: nothing of it is changed."""
        return step.how

    def change_to(self, step: Deploy, how: Transition) -> None:
        """Find its OSDs, and make the campaign's own directories on their hosts."""
        cluster_found = Found(self.site, {})
        if self._section.proof != "none":
            cluster_found = discover(self._remote, self.site, self._section)
        self._hold(cluster_found.site)
        self.site = cluster_found.site
        self._engine.settings.cluster["osds"] = list(cluster_found.site.osd_hosts)
        self.stack = self._bound.stack = self._stacks[step.configuration]
        self._bound.site = cluster_found.site
        self.cluster.adopt(cluster_found.site)
        self._remote.run(cluster_found.pid_files, "note the OSDs' processes", 60)

    def _hold(self, site: Site) -> None:
        """Hold hosts that the file does not name; UsageError where another campaign has one."""
        osds = tuple(osd for osd in site.osds if osd.host not in self.site.hosts)
        if osds:
            more = Site(site.tmp_dir, site.conf, osds[0].host, (), osds)
            run, archive = marked_processes.own_run(), str(self.cluster.config["archive_dir"])
            journal.note_osd_hosts(run, site.osd_hosts)
            self._held.enter_context(hosts_held(self._remote, more, run, this_run(Path(archive))))

    def measure_on(self, scenario: Scenario) -> Site:
        """The cluster with the OSDs that were found, and the scenario's clients."""
        return replace(cell_site(self._section, scenario, self.stack), osds=self.site.osds)

    def check_health(self) -> None:
        """Its owner sees to its health."""
        self.cluster.check_health()

    def end(self, made: Sequence[Volume], run: str) -> None:
        """Remove the campaign's images and directories: the cluster stays."""
        commands = commands_of(self.cluster, self.site.client_id, run=run)
        head = self.site.head
        with self._held:
            take_down(self.cluster, lambda: remove_images(self._remote, head, commands, made))

    @staticmethod
    def clear(
        cluster: Cluster, remote: Runs, campaign: Campaign, run: str, made_for: str = ""
    ) -> None:
        """Tear down what a dead run left beside the cluster, and in it what says it is its own."""
        section, cells = campaign.cluster, cells_of(campaign)
        commands, head = commands_of(cluster, section.client_id, run=run), section.head
        makes_pools = any(isinstance(cell.scenario, OfUpstream) for cell in cells)

        def remove() -> None:
            remove_images(remote, head, commands, volumes_of(campaign, cells))
            if made_for and makes_pools:
                _remove_pools(remote, head, commands, made_for)

        take_down(cluster, remove)


def _remove_pools(remote: Runs, head: str, commands: ClusterCommands, made_for: str) -> None:
    what, limit = "look for pools of CBT's benchmarks", commands.images_s
    said = remote.run({head: f"{commands.ceph} osd dump --format json"}, what, limit)[head]
    # A plan of it has no answer.
    made = answer_of(head, what, said, rbd_images.pools_made) if said else {}
    names = [shlex.quote(name) for name, its in made.items() if made_for in its]
    if names:
        rm = (f"{commands.ceph} osd pool rm {n} {n} --yes-i-really-really-mean-it" for n in names)
        remote.run({head: "\n".join(rm)}, f"remove the pools {', '.join(names)}", limit)

"""One cluster for all configurations: each group of them has OSDs, pools and clients of its own."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Optional

from typing_extensions import override

from cbt_crypto.benchmarks.base import Scenario
from cbt_crypto.cluster_overlays.base import Overlay, Transition
from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.engine.contract import Engine, Run
from cbt_crypto.hosts import ceph_conf
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.requirement import Requirement
from cbt_crypto.hosts.shell import joined
from cbt_crypto.hosts.site import HostScripts, Osd, Site
from cbt_crypto.plan.cells import Cell
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.file.cluster import ClusterSection, Variant
from cbt_crypto.plan.layout import cell_site, section_of, site_of
from cbt_crypto.plan.side_by_side import (
    Group,
    group_number,
    group_of,
    groups_of,
    osds_per_device,
    site_of_group,
    unlike,
)
from cbt_crypto.plan.steps import Deploy
from cbt_crypto.run.targets.cluster import DeployedCluster, StackHooks
from cbt_crypto.units import size_bytes, size_text


class Places:
    """Which OSD is in which group on the present deployment, and what is in force there."""

    def __init__(self, section: ClusterSection, stacks: Mapping[str, Stack]) -> None:
        """`section` has the drives divided already. On the first deployment; touches nothing."""
        configurations = {name: stack.named for name, stack in stacks.items()}
        self.groups = groups_of(configurations)
        self.unlike = unlike(configurations)
        self.deployment = 0
        self.whole = site_of(section)
        self._section = section
        self._in_force = {group: stacks[group.members[0]] for group in self.groups}

    def take_turn(self, configuration: str, stack: Stack) -> None:
        """Note which configuration is to be in force on its group's OSDs, and with its clients."""
        group = group_of(self.groups, configuration)
        self._in_force.pop(group)
        self._in_force[group] = stack

    def site(self, group: Group, whole: Optional[Site] = None) -> Site:
        """The site as a group sees it; of `whole`, where that has other clients, say."""
        count, whole = len(self.groups), whole or self.whole
        seen = site_of_group(whole, self._section, count, group.number, self.deployment)
        return replace(seen, unlike=self.unlike)

    def group(self, osd: Osd) -> Group:
        """The group that an OSD is in."""
        per_device = osds_per_device(self._section)
        return self.groups[group_number(osd, per_device, len(self.groups), self.deployment)]

    def stack(self, group: Group) -> Stack:
        """What is in force on a group's OSDs."""
        return self._in_force[group]

    def each(self) -> Iterator[tuple[Site, Stack]]:
        """Every group's site, with what is in force there.

        Whose turn it is comes last: hosts of clients, which all groups share, are left as it wants.
        """
        for group, stack in self._in_force.items():
            yield self.site(group), stack


class GroupHooks(StackHooks):
    """Answers an engine's hooks from the stack of the group that a daemon is in."""

    def __init__(self, section: ClusterSection, places: Places, known: Sequence[Stack]) -> None:
        """`known` are all stacks that this campaign may have deployed."""
        super().__init__(section, known[0], known)
        self._places = places

    @override
    def extra_conf(self) -> Mapping[str, Mapping[str, str]]:
        """What all groups have, what monitors say to all of them, and a section for each OSD."""
        of_osds: dict[str, dict[str, str]] = {}
        for site, stack in self._places.each():
            conf = self._conf(stack)
            options = {**conf.get("global", {}), **conf.get("osd", {})}
            of_osds.update({f"osd.{osd.id}": options for osd in site.osds})
        return ceph_conf.merged(
            *(overlay.ceph_conf() for overlay in self._alike()),
            *(overlay.conf_of_all() for overlay in self.stack.overlays if self._is_unlike(overlay)),
            of_osds,
        )

    def _conf(self, stack: Stack) -> Mapping[str, Mapping[str, str]]:
        """What a group's OSDs and clients have and others do not."""
        return ceph_conf.merged(
            *(overlay.conf_beside() for overlay in stack.overlays if self._is_unlike(overlay))
        )

    def _alike(self) -> list[Overlay]:
        return [overlay for overlay in self.stack.overlays if not self._is_unlike(overlay)]

    def _is_unlike(self, overlay: Overlay) -> bool:
        return overlay.name in self._places.unlike

    @override
    def client_confs(self) -> Mapping[str, Mapping[str, Mapping[str, str]]]:
        confs = {}
        for site, stack in self._places.each():
            conf = self._conf(stack)
            options = {**conf.get("global", {}), **conf.get("client", {})}
            confs[site.group] = {"global": options, "client": options}
        return confs

    @override
    def device_class(self, osd: Osd) -> Optional[str]:
        return self._places.group(osd).name

    @override
    def pool_class(self, pool: str) -> Optional[str]:
        name = pool.rpartition(".")[2]
        return name if name in {group.name for group in self._places.groups} else None

    @override
    def twins(self, pool: str, other: str) -> Mapping[int, int]:
        names = [self.pool_class(name) for name in (pool, other)]
        if None in names or pool.rpartition(".")[0] != other.rpartition(".")[0]:
            return {}
        by_name = {group.name: self._places.site(group).osds for group in self._places.groups}
        own, others = (by_name[str(name)] for name in names)
        return {osd.id: twin.id for osd, twin in zip(own, others)}

    @override
    def prepare_hosts(self, run: Run) -> None:
        for overlay in self._alike():
            answers = run(overlay.introduce(self.site), f"introduce hosts for {overlay.name}")
            scripts = overlay.before_daemons(self.site, answers)
            run(scripts, f"prepare the hosts for {overlay.name}")

    @override
    def before_osds(self) -> HostScripts:
        return joined(stack.before_osds(site) for site, stack in self._places.each())

    @override
    def osd_device(self, osd: Osd) -> str:
        return self._of(osd).osd_device(osd)

    @override
    def osd_db_device(self, osd: Osd) -> Optional[str]:
        return self._of(osd).osd_db_device(osd)

    @override
    def osd_command(self, osd: Osd, command: str) -> str:
        return self._of(osd).wrap_osd(osd, command)

    def _of(self, osd: Osd) -> Stack:
        return self._places.stack(self._places.group(osd))

    @override
    def after_osds(self) -> HostScripts:
        return joined(stack.after_osds(site) for site, stack in self._places.each())


class SideBySideCluster(DeployedCluster):
    """The target of a campaign whose configurations stand side by side on one cluster."""

    def __init__(
        self, engine: Engine, remote: Remote, section: ClusterSection, stacks: Mapping[str, Stack]
    ) -> None:
        """As of a DeployedCluster."""
        self._places = Places(section, stacks)
        super().__init__(engine, remote, section, stacks)

    @staticmethod
    def requirements(campaign: Campaign, site: Site, cells: Sequence[Cell]) -> list[Requirement]:
        """The same, and memory for all OSDs that a host has at once."""
        memory = [_memory(campaign.cluster, site, host) for host in site.osd_hosts]
        return [*DeployedCluster.requirements(campaign, site, cells), *memory]

    def _go_to(self, variant: Variant) -> None:
        self.variant = variant
        self._places = Places(self._section, self._stacks)
        self.site = self._places.whole
        section = self._engine.settings.cluster
        stacks = list(self._stacks.values())
        self._hooks = GroupHooks(section_of(section), self._places, stacks)
        self.cluster = self.maker(self._engine)(dict(section), self._hooks)

    def transition(self, step: Deploy) -> Transition:
        """A turn on the OSDs that are there, unless the plan wants a new deployment."""
        return step.how

    def change_to(self, step: Deploy, how: Transition) -> None:
        """Deploy all groups anew, or give one of them its turn."""
        self.stack = self._stacks[step.configuration]
        self._places.take_turn(step.configuration, self.stack)
        if how is Transition.REBUILD:
            if step.deployment is not None:
                self._places.deployment = step.deployment
            self.cluster.initialize()
            return
        group = group_of(self._places.groups, step.configuration)
        scripts = self.stack.after_osds(self._places.site(group))
        what, timeout = "change the configuration", self._section.deploy_timeout
        self.cluster.remote.run(scripts, what, timeout)

    def measure_on(self, scenario: Scenario) -> Site:
        """The OSDs of the configuration's group, and the scenario's clients."""
        group = group_of(self._places.groups, scenario.configuration)
        stack = self._stacks[scenario.configuration]
        return self._places.site(group, cell_site(self._section, scenario, stack))


def _memory(section: ClusterSection, site: Site, host: str) -> Requirement:
    """That what all OSDs of a host aim at is there; `section` has the memory divided."""
    each = size_bytes(str(section.settings.osd_memory_target))
    count = len(site.osds_of(host))
    sentence = (
        f"{count} OSDs side by side aim at {size_text(each)} each, more memory than it has; lower "
        "osd_memory_target"
    )
    script = (
        "have=$(sed -n 's/^MemTotal: *\\([0-9]*\\).*/\\1/p' /proc/meminfo)\n"
        f'if [ "$have" -ge {each * count >> 10} ]; then echo ok\n'
        f"else echo {shlex.quote(sentence)}; fi"
    )
    return Requirement("memory", (host,), script)

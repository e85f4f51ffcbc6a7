"""One cluster for all configurations: each group of them has OSDs, pools and clients of its own."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Optional

from cbt_crypto.benchmarks.base import Scenario
from cbt_crypto.cluster_overlays.base import Transition
from cbt_crypto.cluster_overlays.stack import Part
from cbt_crypto.hosts.requirement import Requirement
from cbt_crypto.hosts.site import Site
from cbt_crypto.plan.cells import Cell
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.file.cluster import ClusterSection, Variant
from cbt_crypto.plan.layout import cell_site, section_of, site_of
from cbt_crypto.plan.side_by_side import (
    Group,
    group_of,
    groups_of,
    site_of_group,
    unlike,
)
from cbt_crypto.plan.steps import Deploy
from cbt_crypto.run.targets.cluster import DeployedCluster, bound
from cbt_crypto.units import size_bytes, size_text


class SideBySideCluster(DeployedCluster):
    """The target of a campaign whose configurations stand side by side on one cluster."""

    @staticmethod
    def requirements(campaign: Campaign, site: Site, cells: Sequence[Cell]) -> list[Requirement]:
        """List what a deployed cluster needs, and memory for all OSDs that a host has at once."""
        memory = [_memory(campaign.cluster, site, host) for host in site.osd_hosts]
        return [*DeployedCluster.requirements(campaign, site, cells), *memory]

    def _go_to(self, variant: Variant) -> None:
        self.variant = variant
        configurations = {name: stack.named for name, stack in self._stacks.items()}
        self._groups = groups_of(configurations)
        self._unlike = unlike(configurations)
        self._number = 0
        self._in_force = {group: self._stacks[group.members[0]] for group in self._groups}
        self.site = site_of(self._section)
        section = self._engine.settings.cluster
        self._bound = bound(section_of(section), list(self._stacks.values()))
        self._bind_groups()
        self.cluster = self.maker(self._engine)(dict(section), self._bound)

    def _bind_groups(self) -> None:
        parts = [Part(self._site_of(group), stack) for group, stack in self._in_force.items()]
        self._bound.groups = parts

    def _site_of(self, group: Group, whole: Optional[Site] = None) -> Site:
        whole, count = whole or self.site, len(self._groups)
        seen = site_of_group(whole, self._section, count, group.number, self._number)
        return replace(seen, unlike=self._unlike)

    def transition(self, step: Deploy) -> Transition:
        """A turn on the OSDs that are there, unless the plan wants a new deployment."""
        return step.how

    def change_to(self, step: Deploy, how: Transition) -> None:
        """Deploy all groups anew, or give one of them its turn."""
        self.stack = self._stacks[step.configuration]
        group = group_of(self._groups, step.configuration)
        self._in_force.pop(group)
        self._in_force[group] = self.stack
        if how is Transition.REBUILD and step.deployment is not None:
            self._number = step.deployment
        self._bind_groups()
        if how is Transition.REBUILD:
            self.cluster.initialize()
            return
        scripts = self.stack.after_osds(self._site_of(group))
        what, timeout = "change the configuration", self._section.deploy_timeout
        self.cluster.remote.run(scripts, what, timeout)

    def measure_on(self, scenario: Scenario) -> Site:
        """The OSDs of the configuration's group, and the scenario's clients."""
        group = group_of(self._groups, scenario.configuration)
        stack = self._stacks[scenario.configuration]
        return self._site_of(group, cell_site(self._section, scenario, stack))


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

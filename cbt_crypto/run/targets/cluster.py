"""A cluster that the campaign deploys: under a stack of overlays, or one of groups side by side."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Optional

from cbt_crypto.benchmarks.base import Scenario, Volume
from cbt_crypto.cluster_overlays.base import Transition
from cbt_crypto.cluster_overlays.stack import BoundStack, Part, Stack, leftovers
from cbt_crypto.engine.contract import Cluster, Engine, MakeCluster, Section
from cbt_crypto.errors import RunError
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.requirement import Requirement, librados, program_needed
from cbt_crypto.hosts.shell import joined
from cbt_crypto.hosts.site import HostScripts, Site
from cbt_crypto.plan.cells import Cell
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.file.cluster import ClusterSection, Variant, at, chosen, variants
from cbt_crypto.plan.layout import cell_site, drives_of, section_of, site_of
from cbt_crypto.plan.side_by_side import Group, group_of, groups_of, site_of_group, unlike
from cbt_crypto.plan.steps import Deploy
from cbt_crypto.run.targets.base import Runs
from cbt_crypto.run.targets.drive import undo
from cbt_crypto.units import size_bytes, size_text


def bound(section: ClusterSection, stacks: Sequence[Stack], variant: Variant = ()) -> BoundStack:
    """Bind the first of `stacks`, all that the campaign may have deployed, to its site."""
    site = site_of(at(section, variant))
    sites = [site_of(at(section, each)) for each in variants(section)]

    def clear(in_force: Stack) -> HostScripts:
        # Also what an earlier, killed run may have left in another configuration.
        known = (in_force, *stacks)
        drives = undo(drives_of(section), known, site)
        return joined((drives, leftovers(known, *sites)), keep_going=True)

    return BoundStack(site, stacks[0], clear)


def overlaid(
    make: MakeCluster, settings: Section, stacks: Sequence[Stack], variant: Variant = (),
    whole: Optional[ClusterSection] = None,
) -> tuple[Cluster, BoundStack]:  # fmt: skip
    """An engine's cluster at a place of the section, and the stack it deploys; touches nothing.

    `whole` has what the file behind the engine's `settings` has not, such as the control.
    """
    section = whole or section_of(settings)
    in_force = bound(section, stacks, variant)
    return make({**settings, **chosen(section, variant)}, in_force), in_force


class DeployedCluster:
    """The target of a campaign that deploys its cluster."""

    can_be_rebuilt = True
    #: Each rebuild is one of its own.
    deployment: Optional[str] = None

    def __init__(
        self, engine: Engine, remote: Remote, section: ClusterSection, stacks: Mapping[str, Stack]
    ) -> None:
        self._engine = engine
        self._section = section
        self.variant: Variant = ()
        self.begin(stacks)

    @staticmethod
    def maker(engine: Engine) -> MakeCluster:
        """What makes the engine's cluster."""
        return engine.Ceph

    @staticmethod
    def problems(campaign: Campaign, configurations: Sequence[str]) -> Iterable[str]:
        """None: the reader of the file already refused what cannot be deployed."""
        return ()

    @staticmethod
    def requirements(campaign: Campaign, site: Site, cells: Sequence[Cell]) -> list[Requirement]:
        """Ceph's programs, where its daemons are to be."""
        section = campaign.cluster
        tools = ("ceph-authtool", "monmaptool", "osdmaptool")
        return [
            librados(section.ceph_cmd, site.head),
            *(program_needed(program, site.mons) for program in (section.ceph_mon_cmd, *tools)),
            *_auth_cipher(section, site),
            *_ec_optimizations(section, site),
            *(program_needed(each, site.mgrs) for each in (section.ceph_mgr_cmd, "ceph-conf")),
            program_needed(section.ceph_osd_cmd, site.osd_hosts),
        ]

    def begin(self, stacks: Mapping[str, Stack]) -> None:
        """Take the configurations' stacks, and the section's first variant. Touches nothing."""
        self._stacks = dict(stacks)
        self.stack = next(iter(self._stacks.values()))
        self._go_to(self.variant)

    def _go_to(self, variant: Variant) -> None:
        """Work on the cluster with these values of the section's lists; it is not deployed yet."""
        self.variant = variant
        self.site: Site = site_of(at(self._section, variant))
        make, settings = self.maker(self._engine), self._engine.settings
        stacks = list(self._stacks.values())
        self.cluster, self._bound = overlaid(make, settings.cluster, stacks, variant, self._section)

    @property
    def conf_text(self) -> str:
        """The ceph.conf that was deployed."""
        return self.cluster.conf_text

    def transition(self, step: Deploy) -> Transition:
        """From the configuration that is in force."""
        if step.how is Transition.REBUILD:
            return step.how
        return self.stack.transition_to(self._stacks[step.configuration])

    def change_to(self, step: Deploy, how: Transition) -> None:
        """Deploy the cluster anew, or change it as it runs."""
        if step.variant != self.variant:
            self._go_to(step.variant)
        self.stack = self._bound.stack = self._stacks[step.configuration]
        if how is Transition.REBUILD:
            self.cluster.initialize()
        elif how is Transition.RESTART:
            self.cluster.restart()
        elif how is Transition.LIVE:
            what, timeout = "change the configuration", self._section.deploy_timeout
            self.cluster.remote.run(self._bound.after_osds(), what, timeout)

    def measure_on(self, scenario: Scenario) -> Site:
        """The cluster and the scenario's clients."""
        return cell_site(at(self._section, self.variant), scenario, self.stack)

    def check_health(self) -> None:
        """Wait for every OSD and placement group."""
        self.cluster.check_health()

    def end(self, made: Sequence[Volume], run: str) -> None:
        """Tear the cluster down, with its volumes."""
        take_down(self.cluster)

    @staticmethod
    def clear(
        cluster: Cluster, remote: Runs, campaign: Campaign, run: str, made_for: str = ""
    ) -> None:
        """Tear down what a dead run left, of which `cluster` is made."""
        take_down(cluster)


def take_down(cluster: Cluster, remove_images: Callable[[], None] = lambda: None) -> None:
    """End a cluster's processes, undo its overlays, empty its devices, remove its directory.

    `remove_images` is called once clients have ended. A silent host does not keep the others up.
    Safe to repeat. Raises the first RunError.
    """
    ended, removed, cleared = map(_error_of, (cluster.shutdown, remove_images, cluster.cleanup))
    # tmp_dir has the notes on devices and mappings, by which the next start clears the rest.
    purged = None if ended or cleared else _error_of(cluster.purge)
    for error in (ended, removed, cleared, purged):
        if error is not None:
            raise error


def _error_of(step: Callable[[], None]) -> Optional[RunError]:
    try:
        step()
    except RunError as error:
        return error
    return None


def _auth_cipher(cluster: ClusterSection, site: Site) -> list[Requirement]:
    """The requirement that the release can make keys of `auth_cipher`; all can make aes."""
    if cluster.auth_cipher in (None, "aes"):
        return []
    sentence = f"ceph-authtool makes no keys of {cluster.auth_cipher}; leave auth_cipher out"
    script = (
        f"if ceph-authtool --gen-print-key --key-type {cluster.auth_cipher} >/dev/null 2>&1\n"
        f"then echo ok; else echo {shlex.quote(sentence)}; fi"
    )
    return [Requirement("auth_cipher", site.mons, script)]


def _ec_optimizations(section: ClusterSection, site: Site) -> list[Requirement]:
    if not any(pool.allow_ec_optimizations for pool in section.pool_profiles.values()):
        return []
    script = shell.call(__file__, "has_ec_optimizations", section.ceph_mon_cmd)
    return [Requirement("allow_ec_optimizations", site.mons, script, "ceph")]


class SideBySideCluster(DeployedCluster):
    """The target of a campaign whose configurations stand side by side on one cluster."""

    @staticmethod
    def requirements(campaign: Campaign, site: Site, cells: Sequence[Cell]) -> list[Requirement]:
        """List what a deployed cluster needs, and memory for all OSDs that a host has at once."""
        memory = [_memory(campaign.cluster, site, host) for host in site.osd_hosts]
        return [*DeployedCluster.requirements(campaign, site, cells), *memory]

    def _go_to(self, variant: Variant) -> None:
        self.variant = variant
        self._groups = groups_of(self._stacks)
        self._unlike = unlike(self._stacks)
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

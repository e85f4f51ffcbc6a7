"""A cluster that the campaign deploys: the engine's, under a stack of overlays."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Optional

from typing_extensions import override

from cbt_crypto.benchmarks.base import Scenario, Volume
from cbt_crypto.cluster_overlays.base import Transition
from cbt_crypto.cluster_overlays.stack import Stack, leftovers, transition
from cbt_crypto.engine.contract import Cluster, Engine, Hooks, MakeCluster, Run, Section
from cbt_crypto.errors import RunError
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.requirement import Requirement, librados, program_needed
from cbt_crypto.hosts.shell import joined
from cbt_crypto.hosts.site import HostScripts, Osd, Site
from cbt_crypto.plan.cells import Cell
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.file.cluster import ClusterSection, Variant, at, variants
from cbt_crypto.plan.layout import cell_site, drives_of, section_of, site_of
from cbt_crypto.plan.steps import Deploy
from cbt_crypto.run.targets.base import Runs
from cbt_crypto.run.targets.drive import undo


class StackHooks(Hooks):
    """Answers an engine's hooks from the stack of overlays that is to be in force."""

    def __init__(
        self,
        section: ClusterSection,
        stack: Stack,
        known: Sequence[Stack] = (),
        variant: Variant = (),
    ) -> None:
        """`known` are all stacks that this campaign may have deployed."""
        self.stack = stack
        self.site = site_of(at(section, variant))
        self._drives = drives_of(section)
        self._known = tuple(known)
        self._sites = [site_of(at(section, each)) for each in variants(section)]

    @override
    def extra_conf(self) -> Mapping[str, Mapping[str, str]]:
        return self.stack.ceph_conf()

    @override
    def prepare_hosts(self, run: Run) -> None:
        for overlay in self.stack.overlays:
            answers = run(overlay.introduce(self.site), f"introduce hosts for {overlay.name}")
            scripts = overlay.before_daemons(self.site, answers)
            run(scripts, f"prepare the hosts for {overlay.name}")

    @override
    def mon_address(self, host: str, address: str) -> str:
        return self.stack.mon_address(self.site, host, address)

    @override
    def program(self, name: str) -> str:
        return self.stack.program(self.site, name)

    @override
    def before_osds(self) -> HostScripts:
        return self.stack.before_osds(self.site)

    @override
    def osd_device(self, osd: Osd) -> str:
        return self.stack.osd_device(osd)

    @override
    def osd_db_device(self, osd: Osd) -> Optional[str]:
        return self.stack.osd_db_device(osd)

    @override
    def osd_command(self, osd: Osd, command: str) -> str:
        return self.stack.wrap_osd(osd, command)

    @override
    def client_command(self, host: str, command: str) -> str:
        return self.stack.wrap_client(host, command)

    @override
    def after_osds(self) -> HostScripts:
        return self.stack.after_osds(self.site)

    @override
    def undo(self) -> HostScripts:
        # Also what an earlier, killed run may have left in another configuration.
        stacks = (self.stack, *self._known)
        drives = undo(self._drives, stacks, self.site)
        return joined((drives, leftovers(stacks, *self._sites)), keep_going=True)


def overlaid(
    make: MakeCluster, section: Section, stacks: Sequence[Stack], variant: Variant = ()
) -> tuple[Cluster, StackHooks]:
    """An engine's cluster at a place of the section, and the hooks that decide what it deploys.

    It is in the first of `stacks`, which are all that the campaign may have deployed. Touches
    nothing.
    """
    hooks = StackHooks(section_of(section), stacks[0], stacks, variant)
    return make({**section, **dict(variant)}, hooks), hooks


class DeployedCluster:
    """The target of a campaign that deploys its cluster."""

    can_be_rebuilt = True
    #: Each rebuild is one of its own.
    deployment: Optional[str] = None

    def __init__(
        self, engine: Engine, remote: Remote, section: ClusterSection, stacks: Mapping[str, Stack]
    ) -> None:
        """Touches nothing. `remote` is what every target has; the engine's cluster has its own."""
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
            *(
                program_needed(program, site.mgrs)
                for program in (section.ceph_mgr_cmd, "ceph-conf")
            ),
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
        self.cluster, self._hooks = overlaid(make, settings.cluster, stacks, variant)

    @property
    def conf_text(self) -> str:
        """The ceph.conf that was deployed."""
        return self.cluster.conf_text

    def transition(self, step: Deploy) -> Transition:
        """From the configuration that is in force."""
        if step.how is Transition.REBUILD:
            return step.how
        return transition(self.stack, self._stacks[step.configuration])

    def change_to(self, step: Deploy, how: Transition) -> None:
        """Deploy the cluster anew, or change it as it runs."""
        if step.variant != self.variant:
            self._go_to(step.variant)
        self.stack = self._hooks.stack = self._stacks[step.configuration]
        if how is Transition.REBUILD:
            self.cluster.initialize()
        elif how is Transition.RESTART:
            self.cluster.restart()
        elif how is Transition.LIVE:
            self.cluster.remote.run(
                self._hooks.after_osds(), "change the configuration", self._section.deploy_timeout
            )

    def measure_on(self, scenario: Scenario) -> Site:
        """The cluster and the scenario's clients."""
        return cell_site(at(self._section, self.variant), scenario, self.stack)

    def check_health(self) -> None:
        """Wait for every OSD and placement group."""
        self.cluster.check_health()

    def end(self, made: Sequence[Volume], run: str) -> None:
        """Take the cluster down, with its volumes."""
        take_down(self.cluster)

    @staticmethod
    def clear(cluster: Cluster, remote: Runs, campaign: Campaign, run: str) -> None:
        """Take down what a dead run left, of which `cluster` is made."""
        take_down(cluster)


def take_down(cluster: Cluster, remove_images: Callable[[], None] = lambda: None) -> None:
    """End a cluster's processes, undo its overlays, empty its devices, remove its directory.

    `remove_images` is called when no client has one any more: of a cluster that stays. A host that
    does not answer keeps none of the others up. Safe to repeat. Raises the first RunError.
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

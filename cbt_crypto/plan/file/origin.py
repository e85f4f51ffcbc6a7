"""Where the cluster comes from: the campaign deploys it, or somebody else did.

This is the one module that asks for `use_existing`. What the two differ in on the hosts is in
`run/targets/` and in the engines; `run/targets/choice.py` pairs them with these.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Optional, Union

from cbt_crypto.cluster_overlays.base import Transition
from cbt_crypto.hosts import ceph_conf
from cbt_crypto.hosts.site import Site
from cbt_crypto.plan.file import consistency
from cbt_crypto.plan.file.cluster import ClusterSection, Rebuild

#: What has to be done to a cluster before a cell can be measured on it, and why.
Change = tuple[Transition, str]


@dataclass(frozen=True)
class Deployed:
    """A cluster that the campaign deploys, changes, and takes down."""

    section: ClusterSection

    @property
    def first_change(self) -> Change:
        """Before the first cell."""
        return Transition.REBUILD, "first"

    def change(self, compared: Callable[[], Optional[Change]]) -> Optional[Change]:
        """Between two cells: what comparing them says."""
        return compared()

    @property
    def rebuild(self) -> Rebuild:
        """When the cluster is built anew."""
        return self.section.rebuild

    @property
    def osd_hosts(self) -> tuple[str, ...]:
        """Hosts on which the campaign makes OSDs."""
        return tuple(self.section.osds)

    def daemon_hosts(self, site: Site) -> tuple[str, ...]:
        """Hosts on which the campaign starts daemons, each once."""
        return tuple(dict.fromkeys((*site.mons, *site.mgrs, *site.osd_hosts)))

    def conf(self, ours: str) -> str:
        """The path of ceph.conf on every host; `ours` is where a campaign puts one."""
        return ours

    @property
    def conf_template(self) -> Optional[str]:
        """The file, on this machine, that ceph.conf starts from."""
        return self.section.conf_file

    @property
    def conf_said(self) -> Any:
        """What the ceph.conf that the file names says, which bears on figures."""
        return ceph_conf.read(Path(self.section.conf_file)) if self.section.conf_file else ""

    def contradictions(self, needs_cluster: bool) -> Iterator[consistency.Contradiction]:
        """What does not go together; `needs_cluster`: whether a scenario works on Ceph."""
        yield from consistency.of_any(self.section)
        yield from consistency.of_deployed(self.section, needs_cluster)


@dataclass(frozen=True)
class SideBySide(Deployed):
    """A cluster that the campaign deploys, with OSDs for each group of configurations."""

    @property
    def rebuild(self) -> Rebuild:
        """When the plan comes to the next deployment."""
        return "needed"


@dataclass(frozen=True)
class Existing:
    """A cluster that is there already: nothing of it is deployed, changed or removed."""

    section: ClusterSection

    @property
    def first_change(self) -> Change:
        """None: it is only looked at."""
        return Transition.NONE, "the cluster is there already"

    def change(self, compared: Callable[[], Optional[Change]]) -> Optional[Change]:
        """None, whatever the file says of other clusters."""
        return None

    @property
    def rebuild(self) -> Rebuild:
        """Whatever the file says of other clusters."""
        return "never"

    @property
    def osd_hosts(self) -> tuple[str, ...]:
        """None: where its OSDs are is asked of the cluster itself."""
        return ()

    def daemon_hosts(self, site: Site) -> tuple[str, ...]:
        """None: its daemons run."""
        return ()

    def conf(self, ours: str) -> str:
        """The path of its own ceph.conf on every host; not `ours`."""
        return self.section.conf_file or "/etc/ceph/ceph.conf"

    @property
    def conf_template(self) -> Optional[str]:
        """None: what its ceph.conf says is its owner's, and proofs judge what is in force."""
        return None

    @property
    def conf_said(self) -> Any:
        """The same where this machine has the file, as head and clients do; else its path."""
        named = self.section.conf_file or ""
        return ceph_conf.read(Path(named)) if named and os.path.exists(named) else named

    def contradictions(self, needs_cluster: bool) -> Iterator[consistency.Contradiction]:
        """What does not go together; `needs_cluster` makes no difference."""
        yield from consistency.of_any(self.section)
        yield from consistency.of_existing(self.section)


Origin = Union[Deployed, SideBySide, Existing]


def origin_of(section: ClusterSection) -> Origin:
    """Where the section's cluster comes from."""
    if section.use_existing:
        return Existing(section)
    return SideBySide(section) if section.layout == "side_by_side" else Deployed(section)

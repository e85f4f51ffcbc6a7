"""Which configurations share OSDs, and what a file with `layout: side_by_side` may not have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

from cbt_crypto.cluster_overlays.base import Transition
from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.hosts.site import Site
from cbt_crypto.plan.file.cluster import CONTROL, ClusterSection
from cbt_crypto.plan.file.document import KeyPath
from cbt_crypto.units import size_bytes, size_text

#: Ceph's own smallest osd_memory_target, and its default, in bytes.
LEAST_MEMORY = 896 << 20
_USUAL_MEMORY = 4 << 30


def memory_target(cluster: ClusterSection) -> int:
    """Bytes that the OSDs of one drive aim at together, for each of `osds_per_device`."""
    named = cluster.settings.osd_memory_target
    return size_bytes(named) if named else _USUAL_MEMORY


def osds_per_device(cluster: ClusterSection) -> int:
    """The section's; `contradictions` refuses a list of them side by side."""
    per_device = cluster.osds_per_device
    assert isinstance(per_device, int)
    return per_device


def share_of_memory(cluster: ClusterSection, groups: int) -> int:
    """Bytes that each OSD aims at, in whole MiB."""
    return memory_target(cluster) // groups >> 20 << 20


def divided(cluster: ClusterSection, groups: int) -> ClusterSection:
    """The section with a slice of each drive, and a part of the memory, for each group."""
    per_device = osds_per_device(cluster)
    memory = f"{share_of_memory(cluster, groups) >> 20}M"
    settings = cluster.settings.model_copy(update={"osd_memory_target": memory})
    return cluster.model_copy(update={"osds_per_device": per_device * groups, "settings": settings})


def engine_keys(cluster: ClusterSection) -> dict[str, Any]:
    """Keys in which the section that an engine is given differs from the file's."""
    if cluster.layout != "side_by_side":
        return {}
    settings = cluster.settings.model_dump(mode="json", exclude_none=True)
    return {"osds_per_device": cluster.osds_per_device, "settings": settings}


def site_of_group(
    site: Site, section: ClusterSection, count: int, number: int, deployment: int
) -> Site:
    """The site as a group sees it on a deployment: its OSDs, pools and ceph.conf, others idle."""
    per_device = osds_per_device(section)
    # Groups move on to the next slice of a drive: none keeps the better one, or the better ids.
    own = {o for o in site.osds if (o.number % per_device + deployment) % count == number}
    return replace(
        site,
        osds=tuple(osd for osd in site.osds if osd in own),
        idle=tuple(osd for osd in site.osds if osd not in own),
        group=name_of(number),
        conf=conf_of(site, number),
        slices=deployment,
    )


def conf_of(site: Site, number: int) -> str:
    """The ceph.conf of a group's clients."""
    return f"{site.conf.removesuffix('.conf')}.{name_of(number)}.conf"


def name_of(number: int) -> str:
    """What a group's CRUSH device class and rule are called, and what its pools' names end in."""
    return f"group{number}"


#: Configuration -> its stack.
Stacks = Mapping[str, Stack]


@dataclass(frozen=True)
class Group:
    """Configurations on the same OSDs: what they differ by is changed live."""

    number: int
    members: tuple[str, ...]

    @property
    def name(self) -> str:
        """As `slices` has it."""
        return name_of(self.number)


def partition(names: Iterable[str], together: Callable[[str, str], bool]) -> list[list[str]]:
    """`names` in their order, each with the first name that it can be `together` with."""
    all_groups: list[list[str]] = []
    for name in names:
        own_group = next((group for group in all_groups if together(group[0], name)), None)
        if own_group is None:
            all_groups.append([name])
        else:
            own_group.append(name)
    return all_groups


def groups_of(stacks: Stacks) -> tuple[Group, ...]:
    """The groups, in the order of their first members.

    The control has its own OSDs where any has: else it would be nearer to the baseline than others.
    """
    together = partition(stacks, partial(_changes_live, stacks))
    if len(together) == 2 and [CONTROL] in together:
        # Nothing but the control would stand beside: it is as near to the baseline as others are.
        together = [list(stacks)]
    return tuple(Group(number, tuple(names)) for number, names in enumerate(together))


def group_of(groups: Sequence[Group], configuration: str) -> Group:
    """The group that a configuration is in."""
    return next(group for group in groups if configuration in group.members)


def unlike(stacks: Stacks) -> tuple[str, ...]:
    """Names of the overlays in which groups differ."""
    firsts = [stacks[group.members[0]] for group in groups_of(stacks)]
    return tuple(dict.fromkeys(name for pair in combinations(firsts, 2) for name in _differ(*pair)))


def _changes_live(stacks: Stacks, this: str, other: str) -> bool:
    both = (stacks[this].transition_to(stacks[other]), stacks[other].transition_to(stacks[this]))
    return CONTROL not in (this, other) and max(both) <= Transition.LIVE


def _differ(this: Stack, other: Stack) -> Iterator[str]:
    by_name = [{overlay.name: overlay for overlay in stack.overlays} for stack in (this, other)]
    for name in dict.fromkeys((*by_name[0], *by_name[1])):
        first, second = (named.get(name) for named in by_name)
        if first is None or second is None or first.transition_to(second) is not Transition.NONE:
            yield name


def contradictions(cluster: ClusterSection, stacks: Stacks) -> Iterator[tuple[KeyPath, str]]:
    """Where, and one sentence, for each thing that does not go with the file's layout."""
    if cluster.layout != "side_by_side":
        if cluster.turns is not None:
            yield ("cluster", "turns"), "is for layout: side_by_side; leave it out"
        return
    yield from _keys(cluster)
    groups = groups_of(stacks)
    if len(groups) < 2:
        sentence = "is side_by_side, and every configuration changes live into every other; "
        yield ("cluster", "layout"), f"{sentence}say order: interleaved"
    yield from _overlays(stacks)
    yield from _room(cluster, len(groups))


def _keys(cluster: ClusterSection) -> Iterator[tuple[KeyPath, str]]:
    for key in ("osds_per_device", "replication"):
        if isinstance(getattr(cluster, key), list):
            yield ("cluster", key), "is a list, which takes several clusters; give one value"
    for key in ("drives", "osd_drives", "use_existing", "rebuild_every_test"):
        if getattr(cluster, key):
            yield ("cluster", key), "does not go with layout: side_by_side; leave it out"
    for key, usual in (("order", "rounds"), ("rebuild", "needed")):
        if key in cluster.model_fields_set and getattr(cluster, key) != usual:
            sentence = "does not go with layout: side_by_side, where configurations take turns on "
            yield ("cluster", key), f"{sentence}each deployment; leave it out"


def _overlays(stacks: Stacks) -> Iterator[tuple[KeyPath, str]]:
    overlays = (overlay for stack in stacks.values() for overlay in stack.overlays)
    for name in sorted({overlay.name for overlay in overlays if not overlay.is_divisible}):
        sentence = f"is side_by_side, and {name} shares devices among the OSDs of a host, which "
        yield ("cluster", "layout"), f"{sentence}groups cannot; leave layout out"
    apart: dict[str, dict[str, None]] = {}
    for pair in combinations(stacks.items(), 2):
        unlike_in = set(_differ(*(stack for _, stack in pair)))
        for configuration, stack in pair:
            for overlay in stack.overlays:
                if overlay.name in unlike_in and overlay.is_present and not overlay.stands_beside:
                    apart.setdefault(overlay.why_not_beside, {})[f'"{configuration}"'] = None
    for why, names in apart.items():
        have = f"{' and '.join(names)} {'has' if len(names) == 1 else 'have'}"
        yield ("cluster", "layout"), f"is side_by_side, but {have} {why}"


def _room(cluster: ClusterSection, groups: int) -> Iterator[tuple[KeyPath, str]]:
    per_device = cluster.osds_per_device
    if isinstance(per_device, int) and per_device * groups > 16:
        sentence = f"makes {per_device * groups} OSDs on each device for {groups} groups of "
        sentence += "configurations, and 16 are the most; lower osds_per_device"
        yield ("cluster", "layout"), sentence
    if share_of_memory(cluster, groups) < LEAST_MEMORY:
        target = size_text(memory_target(cluster))
        sentence = f"{target} is divided among {groups} groups, and an OSD takes no less than "
        sentence += f"{size_text(LEAST_MEMORY)}; raise it to {size_text(LEAST_MEMORY * groups)}"
        yield ("cluster", "settings", "osd_memory_target"), sentence

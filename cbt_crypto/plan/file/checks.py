"""What in a campaign file does not go together, and what pydantic found wrong, as sentences."""

from __future__ import annotations

import difflib
import math
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, ClassVar, Optional, Union

from pydantic import BaseModel, ValidationError

from cbt_crypto.benchmarks.base import Scenario
from cbt_crypto.cluster_overlays.base import Overlay, Transition
from cbt_crypto.hosts import ceph_conf
from cbt_crypto.hosts.ceph_conf import ADMIN
from cbt_crypto.hosts.site import Site
from cbt_crypto.plan.file.cluster import ClusterSection, PoolProfile, Rebuild
from cbt_crypto.plan.file.document import KeyPath
from cbt_crypto.plan.file.field_types import meaning_of
from cbt_crypto.results.repetition import FIRST
from cbt_crypto.units import counted, parse_size, size_text, whole

#: Where, and one sentence.
Contradiction = tuple[KeyPath, str]


def of_any(cluster: ClusterSection) -> Iterator[Contradiction]:
    """What contradicts something else in the section, wherever its cluster comes from."""
    yield from _twice(("cluster", "clients"), cluster.clients, "host")
    yield from _neighbours(cluster)
    yield from _drives(cluster)


def of_existing(cluster: ClusterSection) -> Iterator[Contradiction]:
    """What cannot be had of a cluster that is there already."""
    if cluster.drives:
        yield ("cluster", "drives"), "does not go with use_existing; measure them in another file"
    if cluster.discard:
        yield ("cluster", "discard"), "would destroy a cluster that exists; leave it out"
    if cluster.order == "interleaved":
        sentence = "is interleaved, which changes the cluster; with use_existing leave it out"
        yield ("cluster", "order"), sentence


def of_deployed(cluster: ClusterSection, needs_cluster: bool = True) -> Iterator[Contradiction]:
    """What cannot be deployed; `needs_cluster`: whether any scenario works on a Ceph cluster."""
    yield from _order(cluster)
    if cluster.proof == "none":
        yield ("cluster", "proof"), "none is for clusters that exist already; leave it out"
    if cluster.client_id != ADMIN:
        yield ("cluster", "client_id"), "is for clusters that exist already; leave it out"
    for key in ("osds", "mons", "mgrs"):
        if needs_cluster and not getattr(cluster, key):
            yield ("cluster", key), "is empty; name at least one host"
    yield from _twice(("cluster", "osds"), cluster.osds, "host")
    for key, daemons in (("mons", cluster.mons), ("mgrs", cluster.mgrs)):
        names = [name for named in daemons.values() for name in named]
        yield from _twice(("cluster", key), names, "daemon")
    addresses = [address for named in cluster.mons.values() for address in named.values()]
    yield from _twice(("cluster", "mons"), addresses, "address")
    yield from _devices(cluster)
    for name, profile in cluster.pool_profiles.items():
        yield from _erasure(cluster, name, profile)
        yield from _sizes(cluster, ("cluster", "pool_profiles", name), profile, needs_cluster)


#: What is wrong with `iterations` that are fewer, where time is a precision.
TOO_FEW_DEPLOYMENTS = (
    f"is at least {FIRST} where time is a precision: it takes that many to know how "
    "much deployments differ; raise it, or give seconds"
)


def until_precise(cluster: ClusterSection) -> Iterator[Contradiction]:
    """What does not go with a precision, of which `iterations` are the most deployments."""
    path = ("cluster", "iterations")
    if cluster.iterations > 1 and cluster.order != "rounds":
        wrong = f"must be 1 where time is a precision and order is {cluster.order}, as all is on "
        yield path, f"{wrong}one cluster; leave it out"
    elif cluster.layout == "side_by_side" and 1 < cluster.iterations < FIRST:
        yield path, TOO_FEW_DEPLOYMENTS


def of_recovery(
    cluster: ClusterSection, scenarios: Mapping[str, Sequence[Scenario]]
) -> Iterator[Contradiction]:
    """Where an OSD cannot be taken out, or groups scrubbed, while a scenario loads the cluster."""
    asked = {one.disturbance[0]: name for name, each in scenarios.items()
             for one in each if one.disturbance}  # fmt: skip
    if not asked:
        return
    kind = next(iter(asked))
    path = ("benchmarks", asked[kind], kind)
    if cluster.use_existing:
        what = "takes an OSD out" if kind == "recovery" else "scrubs all pools"
        yield path, f"{what}, for which the campaign must deploy the cluster; leave it out"
        return
    if cluster.layout == "side_by_side":
        sentence = "works on OSDs of all groups, and does not go with side_by_side; "
        yield path, f"{sentence}measure it in another file"
    if "recovery" not in asked:
        return
    path = ("benchmarks", asked["recovery"], "recovery")
    osds, replicas = _fewest_osds(cluster), cluster.replication
    sizes = [profile.replication for profile in cluster.pool_profiles.values()]
    replication = max(sizes, default=3)
    codes = [code.erasure_k + code.erasure_m for code in cluster.erasure_profiles.values()]
    most = max([*(replicas if isinstance(replicas, list) else [replicas or replication]), *codes])
    if osds <= most:
        sentence = f"takes one of {counted(osds, 'OSD')} out, and the rest could not hold {most} "
        yield path, f"{sentence}pieces of each object; add OSDs, or lower replication"


def of_client_libraries(
    configurations: Mapping[str, Sequence[Overlay]], scenarios: Mapping[str, Sequence[Scenario]]
) -> Iterator[Contradiction]:
    """Where Ceph's libraries on clients are to change, and their kernel does all IO."""
    keys = {
        (name, overlay.name, key)
        for name, overlays in configurations.items()
        for overlay in overlays
        for key, changes in (
            ("clients", overlay.replaces_client_libraries),
            ("client", not overlay.is_for_kernel_clients),
        )
        if changes
    }
    for scenario in (one for each in scenarios.values() for one in each):
        for name, overlay, key in sorted(keys):
            if scenario.configuration == name and not scenario.uses_client_libraries:
                yield (
                    ("cluster", "configurations", name, overlay, key),
                    f"is not supported by {scenario.name}, which works on block devices; "
                    f"leave {key} out, or list other configurations under {scenario.name}",
                )


def of_clients(
    cluster: ClusterSection, scenarios: Mapping[str, Sequence[Scenario]]
) -> Iterator[Contradiction]:
    """Where a scenario takes more clients than there are."""
    have = len(cluster.clients)
    for name, each in scenarios.items():
        wanted = max((getattr(one, "clients", None) or 0 for one in each), default=0)
        if wanted > have:
            path = ("benchmarks", name, "clients")
            yield path, f"names {wanted}, and cluster.clients has {have}; add hosts there"


def of_pools(
    cluster: ClusterSection, configurations: Mapping[str, Sequence[Overlay]],
    scenarios: Mapping[str, Sequence[Scenario]],
) -> Iterator[Contradiction]:  # fmt: skip
    """Where headers of images would be in a pool that cannot hold them; and sizes that vary."""
    for scenario in (one for each in scenarios.values() for one in each):
        name = scenario.pool_profile
        for overlay in configurations[scenario.configuration]:
            name = overlay.pool_profile(name)
        has_headers = "data_pool_profile" in type(scenario).model_fields
        profile = cluster.pool_profiles.get(name)
        if has_headers and profile is not None and profile.erasure_profile:
            yield (
                ("benchmarks", scenario.name, "pool_profile"),
                f"{scenario.pool_profile} is erasure-coded in {scenario.configuration}, and cannot "
                "hold headers of images; name that pool as data_pool_profile",
            )
    if isinstance(cluster.replication, list) and any(
        overlay.name == "pools" for of in configurations.values() for overlay in of
    ):
        yield ("cluster", "replication"), "is a list, and pools names sizes too; keep one of both"


def _erasure(cluster: ClusterSection, name: str, profile: PoolProfile) -> Iterator[Contradiction]:
    wanted = profile.erasure_profile
    if wanted is None or cluster.use_existing:
        if profile.allow_ec_optimizations and wanted is None:
            path = ("cluster", "pool_profiles", name, "allow_ec_optimizations")
            yield path, "counts for erasure-coded pools alone; name an erasure_profile"
        return
    path = ("cluster", "pool_profiles", name, "erasure_profile")
    code = cluster.erasure_profiles.get(wanted)
    if code is None:
        yield path, f'"{wanted}" is none of cluster.erasure_profiles; add it there'
        return
    osds, pieces = _fewest_osds(cluster), code.erasure_k + code.erasure_m
    if osds < pieces:
        yield path, f"makes {pieces} pieces, and the cluster has {counted(osds, 'OSD')}; add OSDs"


def _sizes(
    cluster: ClusterSection, path: KeyPath, profile: PoolProfile, needs_cluster: bool
) -> Iterator[Contradiction]:
    if profile.pgp_size > profile.pg_size:
        yield (*path, "pgp_size"), f"is larger than pg_size, {profile.pg_size}; lower it"
    if profile.min_size is not None and profile.min_size > profile.replication:
        yield (*path, "min_size"), f"is larger than replication, {profile.replication}; lower it"
    of_all, osds = cluster.replication, _fewest_osds(cluster)
    copies = max(of_all) if isinstance(of_all, list) else of_all or profile.replication
    if needs_cluster and 0 < osds < copies and not profile.erasure_profile:
        way = "lower it" if of_all else f"say cluster.replication: {osds}"
        sentence = f"makes {copies} copies, and the cluster has {counted(osds, 'OSD')}"
        yield (*(path[:1] if of_all else path), "replication"), f"{sentence}; add OSDs, or {way}"


def _fewest_osds(cluster: ClusterSection) -> int:
    """How many OSDs a cluster has, with the least of what is listed."""
    shared = cluster.osds_per_device
    each = cluster.osds_per_node * (shared if isinstance(shared, int) else min(shared))
    return each * (1 if cluster.osd_drives else len(cluster.osds))


def _neighbours(cluster: ClusterSection) -> Iterator[Contradiction]:
    hosts = {cluster.head, *cluster.clients, *cluster.osds, *cluster.mons, *cluster.mgrs}
    for host in (cluster.neighbours.hosts or ()) if cluster.neighbours else ():
        if host not in hosts:
            sentence = f'"{host}" is no host of the campaign; name one of its own'
            yield ("cluster", "neighbours", "hosts"), sentence


def _order(cluster: ClusterSection) -> Iterator[Contradiction]:
    if cluster.order != "interleaved":
        return
    if cluster.rebuild_every_test or cluster.rebuild not in ("needed", "never"):
        sentence = "is interleaved: configurations take turns on one cluster; say rebuild: needed"
        yield ("cluster", "order"), sentence


def _devices(cluster: ClusterSection) -> Iterator[Contradiction]:
    if cluster.osd_file_size:
        if cluster.discard and not cluster.drives:
            sentence = "needs devices, and osd_file_size has OSDs on files, which are made anew"
            yield ("cluster", "discard"), f"{sentence} for each deployment; leave it out"
        return
    path: KeyPath = ("cluster", "osd_devices")
    devices = cluster.osd_devices
    if isinstance(devices, str):
        if cluster.osds_per_node > 1 and "{n}" not in devices:
            sentence = f"is one device for osds_per_node: {cluster.osds_per_node}; put {{n}} where "
            sentence += "the OSD's number goes, or list the devices"
            yield path, sentence
        return
    if isinstance(devices, dict):
        for unknown in devices.keys() - set(cluster.osds):
            sentence = "is none of the hosts in cluster.osds; add it there, or remove it"
            yield (*path, unknown), sentence
        lists = {(*path, host): devices.get(host, []) for host in cluster.osds}
    else:
        lists = {path: devices}
    for place, listed in lists.items():
        yield from _twice(place, listed, "device")
        if len(listed) != (count := cluster.osds_per_node):
            remedy = "add devices or lower" if len(listed) < count else "remove some or raise"
            have = f"names {counted(len(listed), 'device')} for osds_per_node: {count}"
            yield place, f"{have}; {remedy} osds_per_node"


def _twice(path: KeyPath, names: Sequence[str], kind: str) -> Iterator[Contradiction]:
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield path, f'names the {kind} "{name}" twice; keep one'


def _drives(cluster: ClusterSection) -> Iterator[Contradiction]:
    for name in cluster.osd_drives:
        if name not in cluster.drives:
            yield ("cluster", "osd_drives"), f'"{name}" is none of cluster.drives; add it there'
    for name, drive in cluster.drives.items():
        path = ("cluster", "drives", name)
        if drive.host not in cluster.clients:
            sentence = f'"{drive.host}" is none of the hosts in cluster.clients; add it there'
            yield (*path, "host"), sentence
        yield from _twice((*path, "raid0"), drive.devices, "device")


#: pydantic's name of an error -> what the value must be.
_MUST_BE = {
    "bool_type": "must be true or false",
    "dict_type": "must be a mapping of names to values",
    "model_type": "must be a mapping of names to values",
    "bool_parsing": "must be true or false",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "list_type": "must be a list",
    "string_type": "must be a text",
}
_LONGEST_VALUE = 60
#: Of a file, at its left edge.
SECTIONS = ("cluster", "benchmarks", "monitoring_profiles")
#: pydantic puts the kind of a union's member into the location; the file has no such key.
_UNION_MEMBER = re.compile(
    r"(literal|list|dict|nullable|function-[a-z]+|constrained-[a-z]+)\[.*|constrained-[a-z]+"
    r"|str|int|float|bool|\[key\]|MeasureUntil"
)


def sentences(model: type[BaseModel], error: ValidationError) -> Iterator[tuple[KeyPath, str]]:
    """For each value that is wrong, the keys that lead to it and one sentence."""
    by_location: dict[KeyPath, list[Mapping[str, Any]]] = defaultdict(list)
    for detail in error.errors():
        words = (p for p in detail["loc"] if not _UNION_MEMBER.fullmatch(str(p)))
        by_location[tuple(words)].append(detail)
    for location, details in by_location.items():
        # A mapping in which something is wrong was meant to be one, whatever else it could be.
        inside = any(
            other[: len(location)] == location != other for other in by_location if location
        )
        if inside and all(detail["type"] in _MUST_BE for detail in details):
            continue
        # Of a union, the member that the value was meant for says more than the others.
        meant = [detail for detail in details if detail["type"] not in _MUST_BE]
        if meant or len(details) == 1:
            yield location, _sentence(model, location, (meant or details)[0])
        else:
            kinds = " or ".join(_MUST_BE[detail["type"]] for detail in details)
            kinds, given = kinds.replace("or must be", "or"), details[0].get("input")
            yield location, f"{kinds}, not {_shown(given)}{_hint('int_type', location, given)}"


def _sentence(model: type[BaseModel], location: KeyPath, detail: Mapping[str, Any]) -> str:
    kind = detail["type"]
    if kind == "extra_forbidden":
        schema, key = model.model_json_schema(by_alias=False), str(location[-1])
        names = _names_at(schema, location[:-1])
        names += ["workloads"] if "op_size" in names else []
        if key in SECTIONS:
            return "this is a section; move it to the left edge"
        if below := [n for n in names if key in _names_at(schema, (*location[:-1], n))]:
            return f"unknown key; write it in {below[0]}: {{{key}: ...}}"
        also = _ALSO.get(key, key)
        # Options of Ceph are like none of the cluster's, but look so.
        so_like = (0.72, _OF_CEPH) if "conf_file" in names else ()
        return f"unknown key; {nearest(also if also in names else key, names, *so_like)}"
    if kind == "missing":
        return "is missing; docs/file.md describes it"
    if kind == "too_short":
        return "is empty; give at least one"
    given = detail.get("input")
    if kind == "string_pattern_mismatch":
        what, size = meaning_of(detail["ctx"]["pattern"]), parse_size(str(given))
        hosts = "each host" if what.startswith("one host") and "[" in str(given) else ""
        write = size_text(size) if size and "units" in what else hosts
        return f"must be {what}, not {_shown(given)}{'; write ' if write else ''}{write}"
    if kind in _MUST_BE:
        return f"{_MUST_BE[kind]}, not {_shown(given)}{_hint(kind, location, given)}"
    message = str(detail["msg"]).removeprefix("Value error, ").removeprefix("Input ")
    shown = "" if isinstance(given, dict) else f", not {_shown(given)}"
    hint = _hint(kind, location, given) if kind == "multiple_of" else ""
    return f"{message[:1].lower()}{message[1:]}{shown}{hint}"


_OF_CEPH = "docs/file.md lists all; options of Ceph go to conf_file, or to ceph_options"
#: What fio, and people, call keys.
_ALSO = {"bs": "op_size", "blocksize": "op_size", "rw": "mode", "ramp_time": "ramp",
         "runtime": "time", "rounds": "iterations", "runs": "iterations",
         "size": "replication"}  # fmt: skip
#: Of a section -> what a name in it has.
_INSIDE = {"mons": "{{a: {}}}", "mgrs": "{{{}: ~}}", "configurations": "{{{}: {{}}}}"}
_BYTES = {"op_size": 1, "vol_size": 1 << 20}


def _mapping_meant(location: KeyPath, given: Any) -> str:
    if given is None or given is True:
        return "; write {} for an empty one"
    if location[-1:] == ("mgrs",) and isinstance(given, list) and isinstance((*given, 0)[0], str):
        return f"; write {{{given[0]}: {{x: ~}}}}"
    inside = _INSIDE.get(str(location[-2])) if len(location) > 1 else None
    return f"; write {inside.format(given)}" if inside and isinstance(given, str) else ""


def _hint(kind: str, location: KeyPath, given: Any) -> str:
    if kind in ("dict_type", "model_type"):
        return _mapping_meant(location, given)
    if kind == "multiple_of":
        # 4000 is meant for 4 KiB, and a million for a MiB.
        return f"; write {1 << round(math.log2(max(given, 512)))}"
    if kind == "string_type" and location[-1] == "precision":
        return f"; write {given:g}%" if isinstance(given, (int, float)) else ""
    if kind == "list_type" and isinstance(given, str):
        return f"; write [{given}]"
    if kind == "string_type" and isinstance(given, list) and len(given) == 1:
        return f"; write {given[0]}"
    if isinstance(given, int) and location[-1] in ("osd_memory_target", "osd_file_size"):
        meant = given if given >> 20 else given << (30 if given < 64 else 20)
        return f"; write {size_text(meant)}"
    if kind != "int_type" or not isinstance(given, str):
        return ""
    unit = next((size for key, size in _BYTES.items() if key in location), 1 << 80)
    number = (parse_size(given) or 0) // unit or whole(given.removesuffix("s"))
    if given.endswith("m") and location[-1] in ("time", "ramp"):
        number = 60 * (whole(given[:-1]) or 0)
    return f"; write {number}" if number else ""


def nearest(name: str, names: Iterable[str], likeness: float = 0.5, otherwise: str = "") -> str:
    """A question with the name that was meant; else `otherwise`, or all there are, or none."""
    names = list(names)
    if not names:
        return "it takes none; leave it out"
    near = difflib.get_close_matches(name, names, n=1, cutoff=likeness)
    return f'did you mean "{near[0]}"?' if near else otherwise or f"valid are: {', '.join(names)}"


def kind_of(value: Any) -> str:
    """What the file's author would call the value."""
    if value is None:
        return "nothing"
    kinds = {dict: "a mapping", list: "a list", str: "a text", bool: "true or false"}
    return kinds.get(type(value), "a number")


def _shown(value: Any) -> str:
    if value is None or isinstance(value, (dict, list)):
        return kind_of(value)
    if isinstance(value, bool):
        return str(value).lower()
    try:
        text = repr(value)
    except ValueError:  # Python does not print integers of thousands of digits
        return "a number as large as that"
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."


def _names_at(schema: Mapping[str, Any], location: KeyPath) -> list[str]:
    node = schema
    for key in location:
        node = _resolve(schema, node)
        named = node.get("properties", {}).get(key)
        any_name = [*node.get("patternProperties", {}).values(), node.get("additionalProperties")]
        node = named or any_name[0] or {}
    return list(_resolve(schema, node).get("properties", {}))


def _resolve(schema: Mapping[str, Any], node: Mapping[str, Any]) -> Mapping[str, Any]:
    for choice in node.get("anyOf", ()):
        if "$ref" in choice:
            node = choice
    if "$ref" in node:
        resolved: Mapping[str, Any] = schema["$defs"][node["$ref"].rsplit("/", 1)[-1]]
        return resolved
    return node


#: What has to be done to a cluster before a cell can be measured on it, and why.
Change = tuple[Transition, str]


@dataclass(frozen=True)
class Deployed:
    """A cluster that the campaign deploys, changes, and tears down."""

    section: ClusterSection
    #: Before the first cell.
    first_change: ClassVar[Change] = (Transition.REBUILD, "first")

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
        return site.daemon_hosts

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

    def contradictions(self, needs_cluster: bool) -> Iterator[Contradiction]:
        """What does not go together; `needs_cluster`: whether a scenario works on Ceph."""
        yield from of_any(self.section)
        yield from of_deployed(self.section, needs_cluster)


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
    first_change: ClassVar[Change] = (Transition.NONE, "the cluster is there already")
    #: Whatever the file says of other clusters.
    rebuild: ClassVar[Rebuild] = "never"
    #: Where its OSDs are is asked of the cluster itself.
    osd_hosts: ClassVar[tuple[str, ...]] = ()
    #: What its ceph.conf says is its owner's, and proofs judge what is in force.
    conf_template: ClassVar[Optional[str]] = None

    def change(self, compared: Callable[[], Optional[Change]]) -> Optional[Change]:
        """None, whatever the file says of other clusters."""
        return None

    def daemon_hosts(self, site: Site) -> tuple[str, ...]:
        """None: its daemons run."""
        return ()

    def conf(self, ours: str) -> str:
        """The path of its own ceph.conf on every host; not `ours`."""
        return self.section.conf_file or "/etc/ceph/ceph.conf"

    @property
    def conf_said(self) -> Any:
        """What its ceph.conf says, where this machine has the file; else the path."""
        named = self.section.conf_file or ""
        return ceph_conf.read(Path(named)) if named and os.path.exists(named) else named

    def contradictions(self, needs_cluster: bool) -> Iterator[Contradiction]:
        """What does not go together; `needs_cluster` makes no difference."""
        yield from of_any(self.section)
        yield from of_existing(self.section)


Origin = Union[Deployed, SideBySide, Existing]


def origin_of(section: ClusterSection) -> Origin:
    """Where the section's cluster comes from."""
    if section.use_existing:
        return Existing(section)
    return SideBySide(section) if section.layout == "side_by_side" else Deployed(section)

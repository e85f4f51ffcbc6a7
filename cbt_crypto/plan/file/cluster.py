"""The `cluster` section: CBT's keys, ours, and what each means."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, Literal, Optional, Union

from pydantic import AfterValidator, Field, JsonValue, field_validator, model_validator
from typing_extensions import Self

from cbt_crypto.archive.documents import Baseline
from cbt_crypto.archive.folder import CLUSTER_DIMENSIONS
from cbt_crypto.hosts import directories
from cbt_crypto.plan.file.document import KeyPath
from cbt_crypto.plan.file.field_types import (
    AbsolutePath,
    ClientId,
    ConfigurationName,
    DaemonId,
    DriveName,
    FileSection,
    HostName,
    MonAddress,
    OwnDirectory,
    PoolName,
    Size,
    UserName,
)


class DriveSection(FileSection):
    """A drive of a host, or an MD RAID-0 that is made of several for the purpose."""

    host: HostName = Field(description="the host that has it; one of clients")
    device: Optional[AbsolutePath] = Field(None, description="its block device; it is overwritten")
    raid0: Optional[list[AbsolutePath]] = Field(
        None,
        min_length=2,
        description="instead of device: block devices of which an MD RAID-0 is made; they are "
        "overwritten",
    )
    chunk_kib: int = Field(512, ge=4, le=1 << 20, description="KiB of a chunk of the RAID-0")
    encrypt: Literal["array", "members"] = Field(
        "array", description="where luks puts its mappings: over the RAID-0, or under it"
    )
    plp: Optional[bool] = Field(
        None, description="whether it has power-loss protection; charts group drives by it"
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.device is None) == (self.raid0 is None):
            raise ValueError("takes one of device and raid0")
        return self

    @property
    def devices(self) -> tuple[str, ...]:
        """The block devices that it is made of."""
        return (self.device,) if self.device is not None else tuple(self.raid0 or ())


Role = Literal["head", "clients", "osds", "mons", "mgrs"]


def _words(arguments: str) -> str:
    try:
        shlex.split(arguments)
    except ValueError as error:
        raise ValueError("has a quotation mark that is not closed") from error
    return arguments


#: Arguments of a command, quoted as for a shell.
Arguments = Annotated[str, AfterValidator(_words)]


class CollectlProfile(FileSection):
    """collectl runs beside every cell, unless there is a `sampler`."""

    nodes: list[Role] = Field(
        ["clients", "osds", "mons"], description="roles on whose hosts collectl runs"
    )
    args: Arguments = Field(
        "-s+mYZ -i 1:10",
        description="what collectl records, and how often: every second, processes every 10 s",
    )


class SamplerProfile(FileSection):
    """Our own sampler runs in place of collectl; it needs nothing but Python on a host."""

    nodes: list[Role] = Field(
        ["clients", "osds", "mons"], description="roles on whose hosts the sampler runs"
    )


class PerfProfile(FileSection):
    """perf stat or perf record runs beside every cell."""

    nodes: list[Role] = Field(["osds"], description="roles on whose hosts perf runs")
    perf_cmd: str = Field("perf", description="command for perf(1)")
    args: Arguments = Field("stat -a -I 1000", description="perf's arguments")


class StacksProfile(FileSection):
    """perf samples the stacks of OSDs and kernel workers beside every cell; OSD hosts fold them."""

    frequency: int = Field(49, ge=1, le=999, description="samples a second of each CPU")
    unwind: Literal["dwarf", "fp"] = Field(
        "dwarf",
        description="how a program's callers are found: `dwarf` copies 8 KiB of stack for each "
        "sample; `fp` costs less, and finds few where Ceph was built without frame pointers",
    )
    perf_cmd: str = Field("perf", description="command for perf(1)")


class MonitoringProfiles(FileSection):
    """What watches the nodes: collectl or the sampler always does, perf on request."""

    collectl: Optional[CollectlProfile] = Field(
        None, description="how collectl is run, on every host of a role"
    )
    sampler: Optional[SamplerProfile] = Field(None, description="samples in place of collectl")
    perf: Optional[PerfProfile] = Field(None, description="runs perf too")
    stacks: Optional[StacksProfile] = Field(None, description="samples stacks by perf")

    @field_validator("collectl", "sampler", "perf", "stacks", mode="before")
    @classmethod
    def _a_name_alone_means_its_defaults(cls, value: Any) -> Any:
        return {} if value is None else value

    @model_validator(mode="before")
    @classmethod
    def _either_of_the_two_samples(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        if "sampler" in values and "collectl" in values:
            raise ValueError("has collectl and sampler; take one, as both record the same")
        return values if "sampler" in values else {"collectl": {}, **values}


Count = Annotated[int, Field(ge=1, le=16)]
#: Values of a dimension, each compared with the others.
Counts = Annotated[list[Count], Field(min_length=1)]
Rebuild = Literal["scenario", "configuration", "needed", "never"]
Order = Literal["rounds", "interleaved", "sequential"]
Layout = Literal["separate", "side_by_side"]


class ErasureProfile(FileSection):
    """How a pool's objects are coded; CBT's keys."""

    erasure_k: int = Field(ge=2, le=32, description="pieces that an object is cut into")
    erasure_m: int = Field(
        ge=1, le=16, description="coding pieces added; this number of pieces may be lost"
    )
    erasure_plugin: Literal["jerasure", "isa", "clay", "shec"] = Field(
        "jerasure",
        description="Ceph's erasure-code plugin; when none is named, Ceph 20.2 itself takes "
        "isa, this file jerasure in every release",
    )
    erasure_stripe_unit: Optional[int] = Field(
        None, ge=512, le=1 << 26, multiple_of=512,
        description="bytes of a piece of one stripe; Ceph's default, 4096, when absent",
    )  # fmt: skip


class PoolProfile(FileSection):
    """How a pool is made; CBT's keys."""

    pg_size: int = Field(128, ge=1, le=65536, description="pg_num of the pool")
    pgp_size: int = Field(128, ge=1, le=65536, description="pgp_num; pg_size when absent")
    replication: Count = Field(
        3, description="replicas of each object, on hosts of their own where there are enough hosts"
    )
    erasure_profile: Optional[PoolName] = Field(
        None,
        description="a name of cluster.erasure_profiles: the pool is erasure-coded and not "
        "replicated, and can only be a data_pool_profile",
    )
    min_size: Optional[Count] = Field(
        None, description="replicas that must be there for IO; Ceph's default when absent"
    )
    compression_mode: Optional[Literal["none", "passive", "aggressive", "force"]] = Field(
        None, description="BlueStore's compression of the pool; the OSDs' options when absent"
    )
    compression_algorithm: Optional[Literal["snappy", "zlib", "zstd", "lz4"]] = Field(
        None, description="its algorithm; the OSDs' options when absent"
    )
    allow_ec_optimizations: bool = Field(
        False, description="the faster erasure code of Tentacle; needs Ceph 20 and erasure_profile"
    )

    @model_validator(mode="before")
    @classmethod
    def _pgp_size_is_pg_size(cls, data: Any) -> Any:
        count = data.get("pg_size") if isinstance(data, dict) else None
        return {"pgp_size": count, **data} if isinstance(count, int) else data


class Neighbours(FileSection):
    """Load by stress-ng on some hosts during each cell, the same in all configurations."""

    hosts: Optional[list[HostName]] = Field(
        None, min_length=1, description="hosts that run stress-ng; default: those of `roles`"
    )
    roles: list[Role] = Field(
        ["osds"],
        min_length=1,
        description="hosts with these roles run stress-ng; ignored when `hosts` is set",
    )
    cpu: int = Field(1, ge=1, le=4096, description="stress-ng CPU workers on each host")
    cpu_load: int = Field(
        100, ge=1, le=100, description="percent of the time that each worker is busy"
    )
    args: Arguments = Field("", description="more options of stress-ng, for other stressors")
    least_percent: int = Field(
        25, ge=0, le=100, description="a cell fails when the workers got less than this percent "
        "of the CPU time they asked for",
    )  # fmt: skip
    stress_cmd: str = Field("stress-ng", description="command for stress-ng(1)")


class CephSettings(FileSection):
    """Settings of the published experiments, as keys. Each becomes options of ceph.conf."""

    osd_memory_target: Optional[Size] = Field(
        None,
        description="memory that each OSD aims for; the article used 16G, Ceph's default is 4G",
    )
    rbd_cache: bool = Field(False, description="librbd's cache; it hurts on fast OSDs")
    scrub: bool = Field(False, description="let scrubs start during the campaign")
    deep_scrub: bool = Field(False, description="let deep scrubs start during the campaign")
    pg_autoscaler: bool = Field(False, description="let Ceph change pg_num of the pools")
    balancer: bool = Field(False, description="let the manager move PGs between OSDs")


class ClusterSection(FileSection):
    """Hosts, daemons, devices, and the library of configurations."""

    type: Optional[Literal["overlays"]] = Field(
        None,
        description="tells a CBT with plugins that this package runs the file; nothing else reads "
        "it",
    )
    user: Optional[UserName] = Field(
        None, description="user for ssh; default: whoever runs the campaign"
    )
    head: HostName = Field(description="host on which ceph and rbd commands run")
    clients: list[HostName] = Field(min_length=1, description="hosts that run fio")
    osds: list[HostName] = Field(
        default_factory=list,
        description="hosts that run OSDs; may be left out with use_existing, or when no scenario "
        "needs a cluster",
    )
    mons: dict[HostName, dict[DaemonId, MonAddress]] = Field(
        default_factory=dict,
        description="monitors by host: {id: address}; may be left out where osds may; messenger v2 "
        "uses port 3300 or the one given",
    )
    mgrs: dict[HostName, dict[DaemonId, JsonValue]] = Field(
        default_factory=dict, description="managers by host: {id: ~}"
    )
    osds_per_node: int = Field(
        1,
        ge=1,
        le=256,
        description="OSDs on each of `osds`, one per device; with osds_per_device, devices on each",
    )
    osds_per_device: Union[Count, Counts] = Field(
        1,
        description="OSDs that share a device (equal logical volumes) or a file of osd_file_size "
        "(equal parts); a list is a dimension, with a new cluster for each value",
    )
    replication: Union[Count, Counts, None] = Field(
        None,
        description="replicas in all pools, instead of those in pool_profiles; a list is a "
        "dimension, with a new cluster for each value",
    )
    osd_drives: list[DriveName] = Field(
        default_factory=list,
        description="names from drives: all OSDs are on one of them at a time, with a new "
        "cluster for each; this is the dimension `drive`",
    )
    osd_devices: Union[AbsolutePath, list[AbsolutePath], dict[HostName, list[AbsolutePath]]] = (
        Field(
            "/dev/disk/by-partlabel/osd-device-{n}-data",
            description="block devices of the OSDs: a path with {n} for the OSD's number on its "
            "host (CBT's partition labels are the default), a list for every host, or lists by "
            "host",
        )
    )
    osd_file_size: Optional[Size] = Field(
        None, description="put the OSDs on sparse files of this size below tmp_dir instead"
    )
    drives: dict[DriveName, DriveSection] = Field(
        default_factory=dict,
        description="name: a drive that scenarios without Ceph work on, such as raw_device",
    )
    wipe: Union[bool, list[AbsolutePath]] = Field(
        False,
        description="allow devices of OSDs and drives that carry a foreign signature to be "
        "overwritten: true for all, or a list of patterns, e.g. "
        "[/dev/disk/by-partlabel/osd-device-*]; a mounted device and the system's own are "
        "always refused",
    )
    discard: bool = Field(
        False,
        description="discard all devices of OSDs and drives before each deployment, so that no "
        "configuration inherits the state that another left on a drive; a device that "
        "cannot discard is refused",
    )
    use_existing: bool = Field(
        False, description="measure a cluster that is there already; deploy and remove nothing"
    )
    proof: Literal["required", "none"] = Field(
        "required",
        description="`none`: with use_existing, measure without looking at the OSDs, for clusters "
        "whose hosts or admin sockets cannot be reached; every row then says `not proved`",
    )
    fs: Literal["bluestore"] = Field("bluestore", description="object store of the OSDs")
    conf_file: Optional[str] = Field(
        None, description="ceph.conf to start from; `-c` on the command line comes first"
    )
    client_id: ClientId = Field(
        "admin",
        description="with use_existing, the Ceph client of all commands and fio: `bench` is "
        "client.bench, whose key is where Ceph looks for it, on the head and the clients; "
        "`profile rbd` for monitors and OSDs is enough",
    )
    tmp_dir: OwnDirectory = Field(
        directories.DEFAULT,
        description="the only directory that is written to, on every host; refused if somebody "
        "else could write to it or replace it",
    )
    neighbours: Optional[Neighbours] = Field(
        None, description="stress-ng beside every cell, the same in all configurations"
    )
    iterations: int = Field(
        1,
        ge=1,
        le=1000,
        description="rounds, or times each cell is measured; a verdict needs at least 4. If "
        "`time` has a precision, the most deployments; a verdict needs 4",
    )
    warm_up: int = Field(
        0,
        ge=0,
        le=3600,
        description="seconds to run the first cell's workload on the first deployment before "
        "anything is measured: the first minutes on a new machine are slow",
    )
    rebuild_every_test: bool = Field(
        False, description="CBT's key: a new cluster for each cell, whatever `rebuild` says"
    )
    pool_profiles: dict[PoolName, PoolProfile] = Field(
        default_factory=lambda: {"rbd": PoolProfile(pg_size=128, pgp_size=128, replication=3)},
        description="name: how a pool is made; scenarios name one",
    )
    erasure_profiles: dict[PoolName, ErasureProfile] = Field(
        default_factory=dict, description="name: how an erasure-coded pool codes"
    )
    settings: CephSettings = Field(
        default_factory=lambda: CephSettings(osd_memory_target=None),
        description="settings of the published experiments, the same in every configuration",
    )
    configurations: dict[ConfigurationName, dict[str, dict[str, Any]]] = Field(
        {"Default": {}},
        min_length=1,
        description="name: {overlay: {option: value}}; `{}` is the cluster without overlays",
    )
    matrix: dict[ConfigurationName, dict[ConfigurationName, dict[str, dict[str, Any]]]] = Field(
        default_factory=dict,
        description="instead of configurations: factors, each a mapping of levels to overlays, "
        "the baseline's level first, `{wire: {crc: {}, secure: {secure_messenger: {}}}, "
        "cores: {all: {}, one: {cpuset: {osd_cores: 1}}}}`. Every combination is a configuration, "
        "as `secure, one`; the report says what each level does, and two together",
    )
    baseline: Union[str, dict[str, Any], None] = Field(
        None,
        description="what is 100 %: a configuration, or `{dimension: value}` of any other list in "
        "the file; the first configuration when absent",
    )
    rebuild: Rebuild = Field(
        "scenario",
        description="when the cluster is built anew: for every scenario as the article did, for "
        "every configuration, when a change of configuration needed it, or never",
    )
    order: Order = Field(
        "rounds",
        description="rounds: iterations are rounds, each of which measures every configuration "
        "once, in random order, on a deployment of its own; interleaved: all that need no rebuild "
        "take turns on one cluster, in short blocks that are compared pair by pair; sequential: "
        "one configuration after another, each with all its iterations, without a verdict",
    )
    layout: Layout = Field(
        "separate",
        description="side_by_side: all configurations share each deployment. Every drive is cut "
        "into a slice for each group of configurations that cannot change live into one another; "
        "a group has OSDs, a device class and pools of its own, and the others idle in its turns",
    )
    turns: Optional[int] = Field(
        None,
        ge=1,
        le=1000,
        description="with layout: side_by_side, turns of each configuration on each deployment, of "
        "which there are `iterations`, or as many as a precision takes; 6 when absent",
    )
    control: bool = Field(
        True,
        description="measure the baseline a second time, under the name control: the "
        "campaign's test of itself",
    )
    seed: Optional[int] = Field(
        None,
        ge=0,
        le=1 << 31,
        description="seed of the random order; made from the file when absent",
    )
    auth_cipher: Optional[Literal["aes", "aes256k"]] = Field(
        None,
        description="cipher of the cephx keys and tickets; the release's own default when absent. "
        "aes for kernel clients before Linux 7.0, which do not know aes256k",
    )
    deploy_timeout: int = Field(
        300, ge=10, le=86400, description="seconds that each step of a deployment may take"
    )
    ceph_cmd: str = Field(
        "ceph",
        description="command for ceph(8) on the head; with use_existing in words, as "
        "`cephadm shell -- ceph` or `kubectl -n rook-ceph exec deploy/rook-ceph-tools -- ceph`",
        alias="ceph-cmd",
    )
    rbd_cmd: str = Field("rbd", description="command for rbd(8), in the same way")
    ceph_osd_cmd: str = Field(
        "ceph-osd", alias="ceph-osd_cmd", description="command for ceph-osd(8)"
    )
    ceph_mon_cmd: str = Field(
        "ceph-mon", alias="ceph-mon_cmd", description="command for ceph-mon(8)"
    )
    ceph_mgr_cmd: str = Field(
        "ceph-mgr", alias="ceph-mgr_cmd", description="command for ceph-mgr(8)"
    )

    @field_validator("ceph_cmd", "rbd_cmd")
    @classmethod
    def _command_has_words(cls, value: str) -> str:
        if not shlex.split(value):
            raise ValueError("must be a command")
        return value

    @field_validator("client_id")
    @classmethod
    def _client_id_is_no_whole_name(cls, value: str) -> str:
        if value.startswith("client."):
            raise ValueError("must be the id alone: what follows `client.`")
        return value

    @field_validator("clients", "osds", mode="before")
    @classmethod
    def _one_host_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value


#: Its name, in the file's list of configurations and in every table.
CONTROL = "control"


def wants_control(cluster: ClusterSection, baseline: Baseline) -> bool:
    """Whether a control is added: where a deployment's values are compared with one of them."""
    return cluster.control and len(_compared(cluster, baseline.dimension)) > 1


def _compared(cluster: ClusterSection, dimension: str) -> Collection[Any]:
    if dimension in ("configuration", "drive"):
        return cluster.configurations if dimension == "configuration" else cluster.drives
    return listed_values(cluster, dimension) if dimension in CLUSTER_DIMENSIONS else ()


def name_taken(cluster: ClusterSection, baseline: Baseline) -> Iterator[tuple[KeyPath, str]]:
    """A sentence where the file gives that name to what it compares."""
    is_drive = baseline.dimension == "drive"  # which a report knows by its name alone
    is_taken = CONTROL in _compared(cluster, baseline.dimension)
    if is_taken and (is_drive or wants_control(cluster, baseline)):
        wrong = "is the name under which the baseline is measured a second time; rename it"
        wrong += "" if is_drive else ", or say control: false"
        yield ("cluster", f"{baseline.dimension}s", CONTROL), wrong


def controlled(cluster: ClusterSection, baseline: Baseline) -> ClusterSection:
    """The section with the control among the values that are compared, behind the baseline."""
    dimension, changed = baseline.dimension, dict[str, Any]()
    if dimension == "configuration":
        changed["configurations"] = behind_baseline(cluster.configurations, baseline)
    elif dimension == "drive":
        changed["drives"] = behind_baseline(cluster.drives, baseline)
        changed["osd_drives"] = in_section(cluster.osd_drives, baseline)
    else:
        changed[dimension] = in_section(listed_values(cluster, dimension), baseline)
    return cluster.model_copy(update=changed)


def behind_baseline(configurations: Mapping[str, Any], baseline: Baseline) -> dict[str, Any]:
    """Configurations with the control, which is what the baseline is, behind the baseline."""
    names = in_section(list(configurations), baseline)
    base = str(baseline.value)
    return {name: configurations[base if name == CONTROL else name] for name in names}


def in_section(listed: Any, baseline: Baseline) -> Any:
    """The values that a file lists, with the control where several are compared."""
    if not isinstance(listed, list) or baseline.value not in listed or len(listed) < 2:
        return listed
    position = listed.index(baseline.value) + 1
    return [*listed[:position], CONTROL, *listed[position:]]


def pieces_of(cluster: ClusterSection, pool: PoolProfile) -> int:
    """On how many OSDs an object of a pool is."""
    code = cluster.erasure_profiles.get(pool.erasure_profile or "")
    return pool.replication if code is None else code.erasure_k + code.erasure_m


def code_of(cluster: ClusterSection, pool: PoolProfile) -> dict[str, Any]:
    """A pool's erasure-code profile by Ceph's keys; empty for replicas.

    Pieces are on hosts of their own where there are enough hosts.
    """
    code = cluster.erasure_profiles.get(pool.erasure_profile or "")
    if code is None:
        return {}
    is_enough = len(set(cluster.osds)) >= pieces_of(cluster, pool)
    unit = code.erasure_stripe_unit
    return {
        "k": code.erasure_k,
        "m": code.erasure_m,
        "plugin": code.erasure_plugin,
        "crush-failure-domain": "host" if is_enough else "osd",
        **({"stripe_unit": unit} if unit else {}),
    }


def pool_state(cluster: ClusterSection, pool: PoolProfile) -> dict[str, Any]:
    """What is to be true of a pool that is made by this profile: see `pools.fault`."""
    flags = ["ec_overwrites"] if pool.erasure_profile else []
    counts = {"pg_num": pool.pg_size, "pg_placement_num": pool.pgp_size}
    return {
        **({} if cluster.settings.pg_autoscaler else counts),
        "size": pieces_of(cluster, pool),
        "flags": [*flags, *(["ec_optimizations"] if pool.allow_ec_optimizations else [])],
        "options": pool_options(pool),
        "code": code_of(cluster, pool),
    }


def pool_options(pool: PoolProfile) -> dict[str, str]:
    """The options that a pool is given when it is made."""
    said = {
        "compression_mode": pool.compression_mode,
        "compression_algorithm": pool.compression_algorithm,
    }
    return {option: value for option, value in said.items() if value is not None}


#: A value for each key of the section that is a list: (("replication", 3),).
Variant = tuple[tuple[str, Union[int, str]], ...]


def listed_values(cluster: ClusterSection, dimension: str) -> list[Any]:
    """The values of a dimension; none where the section has one value only."""
    value = cluster.osd_drives if dimension == "drive" else getattr(cluster, dimension)
    return list(value) if isinstance(value, list) else []


def variants(cluster: ClusterSection) -> tuple[Variant, ...]:
    """Every combination of the lists, the last varying fastest; one empty variant without lists."""
    listed = {key: values for key in CLUSTER_DIMENSIONS if (values := listed_values(cluster, key))}
    return tuple(tuple(zip(listed, values)) for values in itertools.product(*listed.values()))


def chosen(cluster: ClusterSection, variant: Variant) -> dict[str, Any]:
    """What the section has at a place, by its keys; of the control, the baseline's values."""
    named = cluster.baseline if isinstance(cluster.baseline, dict) else {}
    given = {key: named.get(key) if value == CONTROL else value for key, value in variant}
    drive = given.pop("drive", None)
    return given if drive is None else {**given, "osd_drives": [drive]}


def at(cluster: ClusterSection, variant: Variant = ()) -> ClusterSection:
    """The section with one value for each key; the first of its list where `variant` has none."""
    given = chosen(cluster, variant)
    values: dict[str, Any] = {}
    if drives := given.get("osd_drives", cluster.osd_drives):
        drive = cluster.drives[str(drives[0])]
        values.update(osds=[drive.host], osds_per_node=len(drive.devices))
        values["osd_drives"] = []  # chosen: `at` of the result changes nothing
        values["osd_devices"] = {drive.host: list(drive.devices)}
    for key in ("osds_per_device", "replication"):
        value = getattr(cluster, key)
        values[key] = given.get(key, value[0] if isinstance(value, list) else value)
    replication = values["replication"]
    if replication is not None:
        values["pool_profiles"] = {
            name: profile.model_copy(update={"replication": replication})
            for name, profile in cluster.pool_profiles.items()
        }
    return cluster.model_copy(update=values)


def words(variant: Variant) -> str:
    """For labels: `osds_per_device 4 replication 1`."""
    return " ".join(f"{key} {value}" for key, value in variant)

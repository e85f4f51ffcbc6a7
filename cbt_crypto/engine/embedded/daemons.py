"""Make and start daemons: their keys, their part of ceph.conf, their pools; and ask monitors."""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import secrets
import shlex
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from cbt_crypto.cluster_overlays import pools
from cbt_crypto.engine.embedded import admin_session_on_host
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.ceph_conf import mon_vector
from cbt_crypto.hosts.secret import keep
from cbt_crypto.hosts.site import HostScripts
from cbt_crypto.plan.file.cluster import (
    ClusterSection,
    PoolProfile,
    code_of,
    pieces_of,
    pool_options,
    pool_state,
)
from cbt_crypto.plan.layout import ceph_dir, conf_path, per_device, site_of
from cbt_crypto.units import size_bytes

#: What Ceph's own deployment gives each kind of daemon.
_CAPS = {
    "mon": {"mon": "allow *"},
    "client": {"mon": "allow *", "osd": "allow *", "mgr": "allow *"},
    "mgr": {"mon": "allow profile mgr", "osd": "allow *", "mds": "allow *"},
    "osd": {"mon": "allow profile osd", "osd": "allow *", "mgr": "allow profile osd"},
}
#: Before a secret, all little-endian: the cipher's number, seconds and nanoseconds, its length.
_HEADER = struct.Struct("<HIIH")
#: Ceph's names for those numbers.
_CIPHERS = {1: "aes", 2: "aes256k"}
_MONMAP_WORD = "@monmap-ciphers"

#: One of what `script` takes.
Step = dict[str, Any]


@dataclass(frozen=True)
class KeyForm:
    """How a release makes cephx keys: the cipher's number, a secret's bytes, maps with ciphers.

    `in_monmap` since 19.2.6 and 20.2.4.
    """

    number: int
    length: int
    in_monmap: bool = False

    @property
    def cipher(self) -> Optional[str]:
        """Ceph's name for it, or None for one that this program does not know."""
        return _CIPHERS.get(self.number)

    def new_key(self) -> str:
        """A new secret in this form, base64."""
        secret = secrets.token_bytes(self.length)
        seconds, fraction = divmod(time.time_ns(), 10**9)
        header = _HEADER.pack(self.number, seconds, fraction, self.length)
        return base64.b64encode(header + secret).decode()

    def keyring(self, entities: Iterable[str]) -> dict[str, str]:
        """Entity (`osd.3`, `client.admin`, `mon.`) -> its keyring section, with a new key."""
        return {entity: self._section(entity) for entity in entities}

    def monmap_options(self) -> str:
        """Options for monmaptool that allow this cipher and no other."""
        if not self.in_monmap or self.cipher is None:
            return ""
        options = ("--auth-service-cipher", "--auth-allowed-ciphers", "--auth-preferred-cipher")
        return " ".join(f"{option} {self.cipher}" for option in options)

    def _section(self, entity: str) -> str:
        caps = _CAPS[entity.partition(".")[0]]
        lines = [f"[{entity}]", f"\tkey = {keep(self.new_key())}"]
        lines += [f'\tcaps {service} = "{allowed}"' for service, allowed in caps.items()]
        return "\n".join(lines) + "\n"


def ask_script(
    cipher: Optional[str], authtool: str = "ceph-authtool", monmaptool: str = "monmaptool"
) -> str:
    """Shell text for a monitor's host that prints a key of `cipher`, if the release can choose."""
    return shell.call(__file__, "key_of", cipher or "", authtool, monmaptool, _MONMAP_WORD)


def key_form(printed: str) -> KeyForm:
    """The form of the key that `ask_script` printed. Raises ValueError where there is none."""
    match = re.search(r"^[A-Za-z0-9+/]{16,}={0,2}$", printed, re.MULTILINE)
    try:
        raw = base64.b64decode(match[0], validate=True) if match else b""
        number, _, _, length = _HEADER.unpack_from(raw)
    except (binascii.Error, struct.error):
        raise ValueError(f"ceph-authtool printed no key: {printed[-200:]!r}") from None
    if len(raw) != _HEADER.size + length:
        raise ValueError(f"ceph-authtool printed a key of {len(raw)} bytes that says {length}")
    return KeyForm(number, length, _MONMAP_WORD in printed)


def create(
    cluster: ClusterSection, name: str, pool: PoolProfile, device_class: Optional[str] = None
) -> list[Step]:
    """Make a pool, on OSDs of `device_class` if any; RBD may overwrite an erasure-coded one."""
    sizes = {"pool": name, "pg_num": pool.pg_size, "pgp_num": pool.pgp_size}
    if pool.erasure_profile is None:
        replicated = {**sizes, "pool_type": "replicated", "size": pool.replication}
        options = pool_options(pool).items()
        sets = [mon("osd pool set", pool=name, var=key, val=value) for key, value in options]
        if device_class is None:
            return [mon("osd pool create", **replicated), *sets]
        rule = {"root": "default", "type": failure_domain(cluster), "class": device_class}
        return [
            mon("osd crush rule create-replicated", name=device_class, **rule),
            mon("osd pool create", **replicated, rule=device_class),
            *sets,
        ]
    code = _code(cluster, pool, device_class)
    words = [f"{key}={value}" for key, value in code.items()]
    profile = f"cbt-crypto-{pool.erasure_profile}" + (f"-{device_class}" if device_class else "")
    optimizations = {"allow_ec_optimizations": "true"} if pool.allow_ec_optimizations else {}
    values = {"allow_ec_overwrites": "true", **optimizations, **pool_options(pool)}
    return [
        mon("osd erasure-code-profile set", name=profile, profile=words, force=True,
             yes_i_really_mean_it=True),
        mon("osd pool create", **sizes, pool_type="erasure", erasure_code_profile=profile),
        *(mon("osd pool set", pool=name, var=key, val=val) for key, val in values.items()),
    ]  # fmt: skip


def alike(name: str, like: str, twins: Mapping[int, int]) -> list[Step]:
    """Place a new pool as `like` is, on the `twins` of its OSDs: CRUSH would add luck."""
    return [
        mon("osd set-require-min-compat-client", version="luminous"),
        {"alike": name, "like": like, "twins": {str(osd): twin for osd, twin in twins.items()}},
    ]


def fault(
    cluster: ClusterSection, pool: PoolProfile, name: str, dump: str,
    device_class: Optional[str] = None,
) -> Optional[str]:  # fmt: skip
    """What contradicts in `ceph osd dump` that the pool is as the file wants it."""
    code = _code(cluster, pool, device_class)
    return pools.fault({**pool_state(cluster, pool), "code": code}, name, json.loads(dump))


def failure_domain(cluster: ClusterSection) -> str:
    """Hosts where there are enough for the replicas of every pool, else OSDs."""
    replicas = max(pieces_of(cluster, pool) for pool in cluster.pool_profiles.values())
    return "host" if len(set(cluster.osds)) >= replicas else "osd"


def _code(
    cluster: ClusterSection, pool: PoolProfile, device_class: Optional[str]
) -> dict[str, Any]:
    code = code_of(cluster, pool)
    return {**code, "crush-device-class": device_class} if code and device_class else code


def mon(prefix: str, **arguments: Any) -> Step:
    """A step that asks a monitor."""
    return {"mon": {"prefix": prefix, **arguments}}


Sections = dict[str, dict[str, str]]


#: Manager modules that are loaded. Each takes up to seconds on a cluster that lives for minutes,
#: and some work in the background while a cell is measured.
_MODULES = ("balancer", "pg_autoscaler", "status")
#: Option of a manager's command line, in the shell text that follows `without_modules`.
WITHOUT_MODULES = '--mgr-disabled-modules="$modules" '


def without(sections: Sections, base: Sections) -> Sections:
    """People's ceph.conf less other daemons' sections and options that lead out of `tmp_dir`."""
    decided = {name for options in base.values() for name in options}
    return {
        section: {name: value for name, value in options.items() if name not in decided}
        for section, options in sections.items()
        if section in ("global", "mon", "mgr", "osd", "client")
    }


def without_modules(conf: str, ceph_conf: str = "ceph-conf") -> str:
    """Shell text that sets `$modules` to the release's modules that a manager shall do without."""
    wanted = "|".join(_MODULES)
    return (
        f"folder=$({shlex.quote(ceph_conf)} -c {shlex.quote(conf)} "
        "--show-config-value mgr_module_path)\n"
        f'modules=$(ls "$folder" | grep -vxE \'({wanted})\' | tr "\\n" " ")'
    )


def file_size(cluster: ClusterSection) -> int:
    """Bytes of one OSD's file, in whole MiB: its part of `osd_file_size`; 0 without files."""
    size = size_bytes(cluster.osd_file_size) if cluster.osd_file_size else 0
    return size // per_device(cluster) >> 20 << 20


def base_options(cluster: ClusterSection, fsid: str) -> Sections:
    """Identity, paths and authentication of a cluster below `tmp_dir`; msgr2 alone is bound."""
    base = ceph_dir(cluster)
    mons = {name: address for named in cluster.mons.values() for name, address in named.items()}
    sections: Sections = {
        "global": {
            "fsid": fsid,
            "mon_host": " ".join(mon_vector(address) for address in mons.values()),
            "mon_initial_members": ",".join(mons),
            "auth_allow_insecure_global_id_reclaim": "false",
            "ms_bind_msgr1": "false",
            "keyring": f"{base}/keyring",
            "run_dir": f"{base}/run",
            "admin_socket": f"{base}/run/$name.asok",
            "pid_file": f"{base}/run/$name.pid",
            "log_file": f"{base}/log/$name.log",
            "crash_dir": f"{base}/crash",
        },
        "client": {"admin_socket": "", "log_file": "/dev/null"},
        # Monitors gather changes for 1 s by default, which each step of a deployment would wait
        # for. They are not in the way of client IO, so nothing that is measured changes.
        "mon": {"mon_data": f"{base}/mon.$id", "paxos_propose_interval": "0.05"},
        "mgr": {"mgr_data": f"{base}/mgr.$id"},
        "osd": {"osd_data": f"{base}/osd.$id", "osd_objectstore": cluster.fs},
    }
    if cluster.osd_file_size:
        sections["osd"]["bluestore_block_size"] = str(file_size(cluster))
    sections.update({f"osd.{osd.id}": {"host": osd.host} for osd in site_of(cluster).osds})
    return sections


def setting_options(cluster: ClusterSection) -> Sections:
    """The keys of `cluster.settings` and the pool profiles as options."""
    settings = cluster.settings
    options = {
        "auth_cluster_required": "cephx",
        "auth_service_required": "cephx",
        "auth_client_required": "cephx",
        "rbd_cache": str(settings.rbd_cache).lower(),
        "osd_pool_default_pg_autoscale_mode": "on" if settings.pg_autoscaler else "off",
        "mon_max_pg_per_osd": str(_pgs_per_osd(cluster)),
        # Else a large pool starts with 1,024 placement groups and grows while it is measured.
        "mon_osd_max_initial_pgs": "65536",
        "osd_crush_chooseleaf_type": "1" if failure_domain(cluster) == "host" else "0",
        "mon_allow_pool_size_one": "true",
        # Else each new OSD measures itself for some seconds, and schedules by what it found: a
        # difference between configurations that nobody asked for.
        "osd_mclock_skip_benchmark": "true",
    }
    if settings.osd_memory_target:
        options["osd_memory_target"] = str(size_bytes(settings.osd_memory_target))
    return {"global": options}


def _pgs_per_osd(cluster: ClusterSection) -> int:
    # One OSD a device is counted, however many there are: of configurations side by side, each
    # has pools of its own on its share of a device's OSDs.
    osds = max(1, len(cluster.osds) * cluster.osds_per_node)
    copies = sum(pool.pg_size * pieces_of(cluster, pool) for pool in cluster.pool_profiles.values())
    return max(250, 2 * math.ceil(copies / osds))


quote = shlex.quote


class Daemons:
    """The daemons of one cluster, all below one directory that is the same on every host."""

    def __init__(self, section: ClusterSection, program: Callable[[str], str]) -> None:
        self._section = section
        self._program = program
        self._base = ceph_dir(section)
        self._conf = conf_path(section)

    def start(self, program: str, name: str, sudo: str = "", options: str = "") -> str:
        """Shell text that starts a daemon, and returns when it has read its data.

        `name` is `osd.0` or the like; `sudo` and `options` end in a space, or are empty.
        """
        daemon_id = name.partition(".")[2]
        keys = f"{self._base}/daemons.keyring"
        mark = 'CBT_CRYPTO_MARK="$CBT_CRYPTO_MARK"'
        return (
            f"{sudo}env {mark} {quote(program)} -c {quote(self._conf)} -i {quote(daemon_id)} "
            f"--keyring {quote(keys)} {options}>> {quote(f'{self._base}/log/{name}.out')} 2>&1"
        )

    def first_maps(self, fsid: str, addresses: Mapping[str, str], form: KeyForm) -> str:
        """Shell text that makes the monitors' first maps; `addresses` are by monitor."""
        words = ["--fsid", fsid, *form.monmap_options().split()]
        words += [w for name, one in addresses.items() for w in ("--addv", name, mon_vector(one))]
        tools = [self._program(f"{it}maptool") for it in ("osd", "mon")]
        return shell.call(__file__, "make_maps", self._base, self._conf, *tools, *words) + "\n"

    def mon_scripts(self, first_maps: str = "") -> HostScripts:
        """Start the monitors; make them before, when there is text that makes their maps."""
        return {
            host: first_maps
            + together([self._mon_script(name, bool(first_maps)) for name in named])
            for host, named in self._section.mons.items()
        }

    def _mon_script(self, name: str, make: bool) -> str:
        program = self._program(self._section.ceph_mon_cmd)
        said = quote(f"{self._base}/log/mon.{name}.out")
        start = self.start(program, f"mon.{name}")
        start += f" || {{ tail -n 3 {said} >&2; exit 1; }}"  # as that its port is taken
        if not make:
            return start
        return (
            f"{quote(program)} -c {quote(self._conf)} -i {quote(name)} "
            "--mkfs --monmap monmap --osdmap osdmap --keyring daemons.keyring >&2\n" + start
        )

    def mgr_scripts(self) -> HostScripts:
        """Manager host -> shell text that starts its managers without waiting."""
        return {host: self._mgr_script(names) for host, names in self._section.mgrs.items()}

    def _mgr_script(self, names: Iterable[str]) -> str:
        program = self._program(self._section.ceph_mgr_cmd)
        starts = [self.start(program, f"mgr.{name}", options=WITHOUT_MODULES) for name in names]
        # A manager needs seconds to load its modules before it detaches: do not wait for it, nor
        # for the program that knows where they are.
        detached = [f"setsid {start} </dev/null &" for start in starts]
        find = without_modules(self._conf, self._program("ceph-conf"))
        said = quote(f"{self._base}/log/mgr.modules.log")
        return "\n".join(("(", find, *detached, f") </dev/null >>{said} 2>&1 &"))


def together(scripts: Sequence[str]) -> str:
    """Shell text that runs scripts at once, and fails when one of them fails."""
    if len(scripts) == 1:
        return scripts[0]
    starts = "\n".join(f'(\n{script}\n) & pids="$pids $!"' for script in scripts)
    return (
        f"pids=\n{starts}\nstatus=0\n"
        "for pid in $pids; do wait $pid || status=$?; done\n[ $status = 0 ]"
    )


def script(ceph_cmd: str, conf: str, steps: Sequence[Step], timeout: int, session: str = "") -> str:
    """Shell text for the head that takes `steps`, within `timeout` seconds in all.

    One process takes them: to start `ceph` costs 0.5 to 1 s. By files whose names begin with
    `session`, an earlier script's is found again; it ends where it fails, or they are removed.

    A step is `{"mon": {"prefix": ..., ...}}`, a monitor command; `{"wait": "osds", "count": n,
    "since": epoch}`, until n OSDs are up that came up after that epoch of the OSD map;
    `{"wait": "mgr"}`; or `{"wait": "pgs", "pools": [...], "clean_at": epoch}`, until all their
    groups are active+clean: it prints the epoch of which each group itself said so, and with that
    as `clean_at` asks none again while the map is the same. `{"placed": name}` answers with the
    OSDs of each of a pool's groups, `{"alike": name, "like": name, "twins": {...}}` puts those of
    the one where those of the other are, on twins, and `{"end": true}` ends a `session`.
    """
    words = ("python_of_ceph", ceph_cmd, conf, str(timeout), json.dumps(list(steps)), session)
    calls = [shlex.join(words)]
    if session:
        request = json.dumps({"timeout": timeout, "steps": steps})
        calls.insert(0, shlex.join(("ask_session", session, request)))
    program = shell.program(admin_session_on_host)
    return f"{shell.calling(__file__, chr(10).join(calls))} <<'PROGRAM'\n{program}PROGRAM"


def answers(output: str) -> list[str]:
    """What each step printed, from the script's output."""
    return [str(json.loads(line)) for line in output.splitlines() if line.startswith('"')]


def up_from(osd_dump: str) -> dict[int, int]:
    """OSD -> epoch since which it is up, of `osd dump`; without those that are down."""
    try:
        epochs = {
            entry["osd"]: entry["up_from"] for entry in json.loads(osd_dump)["osds"] if entry["up"]
        }
    except (ValueError, KeyError, TypeError):
        return {}
    return {int(osd): int(epoch) for osd, epoch in epochs.items()}

"""A cluster that upstream's `cluster.ceph.Ceph` deploys, under a campaign's overlays.

Ours are the checks between its steps, and steps that reach beyond `tmp_dir` (docs/upstream.md).
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shlex
import socket
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Optional

from typing_extensions import override

from cbt_crypto.cluster_overlays.stack import BoundStack
from cbt_crypto.engine.contract import Section
from cbt_crypto.engine.embedded.ceph import Ceph, ExistingCeph
from cbt_crypto.engine.upstream import checkout, execution
from cbt_crypto.engine.upstream.checkout import Modules, Settings, sections
from cbt_crypto.engine.upstream.execution import Common
from cbt_crypto.errors import RunError
from cbt_crypto.hosts import ceph_conf
from cbt_crypto.hosts.devices import rbd_images
from cbt_crypto.hosts.directories import temporary_place
from cbt_crypto.hosts.directory_on_host import Refused, check_directory
from cbt_crypto.hosts.remote import kill_osds_scripts, kill_script
from cbt_crypto.hosts.site import HostScripts, Site
from cbt_crypto.plan.file.cluster import at
from cbt_crypto.plan.layout import ceph_dir, conf_path, section_of, site_of

quote = shlex.quote


#: What upstream's object calls of itself, and its benchmarks of their cluster: ours instead.
_REPLACED = (
    "distribute_conf", "get_mon_hosts", "mkimage", "setup_fs", "unmount_all",
)  # fmt: skip


#: What maps images for CBT's client endpoints.
_MAPPERS = ("rbd-nbd", "rbd-fuse")
#: What CephFS has besides: upstream's attribute, its key in the file, and the program.
_OF_FILES = (
    ("ceph_mds_cmd", "ceph-mds_cmd", "ceph-mds"),
    ("ceph_fuse_cmd", "ceph-fuse_cmd", "ceph-fuse"),
    ("mount_cmd", "mount_cmd", "mount.ceph"),
)


def kernel_mode(sections: Mapping[str, Mapping[str, str]]) -> str:
    """How a kernel's client must speak to a cluster of this ceph.conf: "secure" or "crc"."""
    modes = ceph_conf.of_kind(sections, "client").get("ms_client_mode", "")
    return "secure" if modes.startswith("secure") else "crc"


class UpstreamCeph:
    """Has upstream's object, `theirs`, take the steps of a deployment."""

    #: What has the campaign's directory on every host, and speaks to the monitors.
    _own: type[Ceph] = Ceph

    def __init__(
        self,
        modules: Modules,
        common: Common,
        settings: Settings,
        config: Section,
        hooks: BoundStack,
    ) -> None:
        self.section = at(section_of(config))
        self.site = site_of(self.section)
        self._common = common
        self._settings = settings
        self._kind = modules.Ceph
        self.theirs = modules.Ceph(
            {**config, **checkout.for_upstream(self.section), **self._of_this_place()}
        )
        self.own = self._own(self.section.model_dump(exclude_unset=True), hooks, common)
        self.remote = self.own.remote
        self.hooks = hooks
        self.conf_text = ""
        #: What loads the cluster in the cells to come: its name, and its path.
        self.programs: Mapping[str, str] = {}
        self.tmp_conf = conf_path(self.section)
        self.base = ceph_dir(self.section)
        self.ceph_cmd = f"{execution.directory(self.base)}/ceph"
        self.rbd_cmd = f"{execution.directory(self.base)}/rbd"
        self._point_to_our_programs()
        for name in _REPLACED:
            setattr(self.theirs, name, getattr(self, name))
        self.theirs.mkpool, self.theirs.rmpool = self._make_pool, self._remove_pool
        self.theirs.check_health = self._upstreams_check_health

    def _point_to_our_programs(self) -> None:
        """Upstream's own attributes, which name what it starts and where keys are."""
        where = execution.directory(self.base)
        theirs = self.theirs
        theirs.tmp_conf = self.tmp_conf
        theirs.ceph_mon_cmd = f"{where}/ceph-mon"
        theirs.ceph_mgr_cmd = f"{where}/ceph-mgr"
        theirs.ceph_osd_cmd = f"{where}/ceph-osd"
        theirs.rados_cmd = f"{where}/rados"
        theirs.ceph_cmd = self.ceph_cmd
        theirs.rbd_cmd = self.rbd_cmd
        theirs.rbd_nbd_cmd, theirs.rbd_fuse_cmd = (f"{where}/{name}" for name in _MAPPERS)
        for attribute, _, program in _OF_FILES:
            setattr(theirs, attribute, f"{where}/{program}")
        # Restarts a daemon that crashed: a measurement wants to know instead.
        theirs.ceph_run_cmd = "env"
        theirs.mnt_dir = f"{self.section.tmp_dir}/mnt"
        theirs.client_keyring = f"{self.base}/keyring"
        theirs.client_secret = f"{self.base}/secret"
        # What follows upstream's own waits is exact, and waits as long as it takes.
        theirs.health_wait = 0

    @property
    def config(self) -> Section:
        """The section, with what upstream reads of it."""
        section: Section = self.theirs.config
        return section

    @property
    def tmp_dir(self) -> str:
        """Upstream's, which is below the campaign's."""
        return str(self.theirs.tmp_dir)

    @property
    def pid_dir(self) -> str:
        """Where daemons have their pid files."""
        return str(self.theirs.pid_dir)

    @property
    def use_existing(self) -> bool:
        """CBT's: whether somebody else deployed it."""
        return self.own.use_existing

    # -- the life of a cluster --------------------------------------------------------------

    def initialize(self) -> None:
        """Tear down what is there, have upstream deploy anew, and wait until every OSD is up."""
        self.shutdown()
        self.cleanup()
        self.hooks.prepare_hosts(self.own.run)
        self.own.epoch = 0
        self.theirs.ruleset_map = {}
        self.theirs.cur_ruleset = 1
        self.write_programs()
        self.distribute_conf()
        self.setup_fs()
        self.make_mons()
        self.start_mgrs()
        self.make_osds()
        with checkout.failures_named("make the profiles of pools"):
            self.theirs.make_profiles()
        self.start_mdss()
        self.own.run(self.hooks.after_osds(), "finish the deployment")

    def write_programs(self) -> None:
        """Write the programs that upstream starts, as the overlays now want them."""
        section = self.section
        more = {name: str(self.config.get(f"{name}_cmd", name)) for name in _MAPPERS}
        rados = str(self.config.get("rados_cmd", "rados"))
        names = execution.Names(
            {"ceph": section.ceph_cmd, "rbd": section.rbd_cmd, **more},
            {"fio": "fio", "rados": rados, **self.programs},
            section.ceph_mon_cmd, section.ceph_mgr_cmd, section.ceph_osd_cmd,
            *(str(self.config.get(key, program)) for _, key, program in _OF_FILES),
        )  # fmt: skip
        hooks = (self.hooks.wrap_osd, self.hooks.stack.wrap_client, self.hooks.osd_device)
        scripts = execution.install(self.site, self.base, names, *hooks)
        # By the one file upstream starts perf once on a host.
        one_pid = f"echo 1 > {self.base}/run/{checkout.ONE_PID}"
        self.own.run(
            {host: f"{text}\n{one_pid}" for host, text in scripts.items()},
            "write the programs that upstream starts",
        )

    def adopt(self, site: Site) -> None:
        """Work beside a cluster that is there: only what a killed campaign left is torn down."""
        self.site = site
        self.own.adopt(site)
        self.write_programs()

    def shutdown(self) -> None:
        """End every process that carries our mark, and undo the overlays' work."""
        try:
            if self._settings.client_endpoints:
                self.unmount_all()
        finally:
            self.own.shutdown()

    def cleanup(self) -> None:
        """Remove the cluster's files and the BlueStore labels on its devices."""
        self.own.cleanup()

    def purge(self) -> None:
        """Remove `tmp_dir` on every host, if it is ours."""
        self.own.purge()
        self._forget_local_keys()

    def restart(self) -> None:
        """Stop the daemons, distribute ceph.conf again, and start them on their data."""
        (stat,) = self.own.ask([{"mon": {"prefix": "osd stat", "format": "json"}}])
        # What is waited for then came up after this moment.
        self.own.epoch = int(json.loads(stat)["epoch"])
        hosts = (*self.site.mons, *self.site.mgrs, *self.site.osd_hosts, *self._mdss)
        stop = {host: kill_script() for host in hosts}
        self.own.run(kill_osds_scripts(self.site), "stop the OSDs")
        self.own.run(stop, "stop the daemons")
        self.write_programs()
        self.distribute_conf()
        kinds = {"mon": "monitors", "mgr": "managers", "osd": "OSDs", "mds": "MDSs"}
        for kind, what in kinds.items():
            self.own.run(self._start_scripts(kind), f"start the {what}")
        self.own.ask([self.own.all_osds()])
        self.own.run(self.hooks.after_osds(), "finish the restart")

    def _start_scripts(self, kind: str) -> HostScripts:
        """The commands with which upstream started them: it has no restart."""
        where, conf = execution.directory(self.base), quote(self.tmp_conf)
        keyring = quote(f"{self.base}/client.admin/keyring")
        section: Any = self.section
        site = self.site
        osds = {host: [str(osd.id) for osd in site.osds_of(host)] for host in site.osd_hosts}
        daemons = {"mon": section.mons, "mgr": section.mgrs, "osd": osds, "mds": self._mdss}[kind]
        keys = f" --keyring={keyring}" if kind == "mon" else ""
        start = f"$SUDO {where}/ceph-{kind} -c {conf} -i"
        return {
            host: "\n".join(f"{start} {quote(name)}{keys}" for name in named)
            for host, named in daemons.items()
        }

    # -- steps ------------------------------------------------------------------------------

    def distribute_conf(self) -> None:
        """Put ceph.conf below `tmp_dir`; upstream's own replaces /etc/ceph/ceph.conf."""
        hooks = self.hooks
        devices = (hooks.osd_device, hooks.osd_db_device)
        made = sections(self.own.addressed(), self.site, hooks.ceph_conf(), *devices)
        # By default a kernel speaks to msgr1 alone, which the monitors do not.
        made.setdefault("client", {})["rbd_default_map_options"] = f"ms_mode={kernel_mode(made)}"
        self.conf_text = ceph_conf.render(made)
        user = f"{self.section.user}@" if self.section.user else ""
        nodes = ",".join(f"{user}{host}" for host in self.site.hosts)
        with tempfile.NamedTemporaryFile("w", prefix="cbt-crypto-", dir=temporary_place()) as file:
            file.write(self.conf_text)
            file.flush()
            with checkout.failures_named("copy ceph.conf"):
                self._common.pdcp(nodes, "", file.name, self.tmp_conf).communicate()

    def get_mon_hosts(self) -> dict[str, dict[str, str]]:
        """Monitors by host: {id: address}, msgr2's, as upstream's would speak msgr1 alone."""
        hosts: dict[str, dict[str, str]] = {}
        for host, named in self.own.addressed().mons.items():
            hosts[host] = {n: ceph_conf.mon_vector(at).strip("[]") for n, at in named.items()}
        return hosts

    def setup_fs(self) -> None:
        """Prepare the devices. BlueStore needs none of the file systems that upstream makes."""
        claims = {host: self.own.claim_devices(host) for host in self.site.osd_hosts}
        self.own.run(claims, "claim the devices")
        self.own.run(self.own.volumes(), "divide the devices")
        make = f"truncate -s {self.section.osd_file_size}"
        files = {}
        for host in self.site.osd_hosts:
            of_files = (osd for osd in self.site.osds_of(host) if osd.is_file)
            files[host] = "\n".join(f"{make} {quote(osd.device)}" for osd in of_files)
        self.own.run(files, "make the OSDs' files")
        self.own.run(self.hooks.before_osds(), "prepare the devices")

    def make_mons(self) -> None:
        """Make and start the monitors. Raises HostError when none answers."""
        # Upstream brings the keys to the machine that runs it, in the same place.
        make_own(f"{self.base}/client.admin", self.section.user)
        self._step("make the monitors", self._kind.make_mons)
        self.own.ask(self.own.quiet())

    def start_mgrs(self) -> None:
        """Start the managers, by upstream's own step. Raises RunError."""
        self._step("start the managers", self._kind.start_mgrs)

    def start_mdss(self) -> None:
        """Start the MDSs, by upstream's own step, where an endpoint is CephFS. Raises RunError."""
        if self._mdss:
            self._step("start the MDSs", self._kind.start_mds)

    @property
    def _mdss(self) -> Mapping[str, Mapping[str, Any]]:
        return (self._settings.cluster.get("mdss") or {}) if self._serves_files else {}

    @property
    def _serves_files(self) -> bool:
        section = self._settings.client_endpoints
        endpoints = section.values() if isinstance(section, dict) else ()
        drivers = (each.get("driver") for each in endpoints if isinstance(each, dict))
        return any(str(driver).startswith("cephfs-") for driver in drivers)

    def make_osds(self) -> None:
        """Make and start the OSDs, and wait until they are up."""
        with self._settings_of_this_place():
            self._step("make the OSDs", self._kind.make_osds)
        self.own.ask([self.own.all_osds()])

    def _of_this_place(self) -> dict[str, Any]:
        """What upstream reads, where the file lists several values for the cluster."""
        counts = [len(self.site.osds_of(host)) for host in self.site.osd_hosts]
        coded = {"replication": "erasure", "ec_overwrites": True}
        return {
            "osds": list(self.site.osd_hosts),
            "osds_per_node": max(counts, default=0),
            "pool_profiles": {
                name: profile.model_dump(exclude_none=True)
                | (coded if profile.erasure_profile is not None else {})
                for name, profile in self.section.pool_profiles.items()
            },
        }

    @contextlib.contextmanager
    def _settings_of_this_place(self) -> Iterator[None]:
        """Upstream's make_osds reads its settings, which hold the file's own values otherwise."""
        cluster = self._settings.cluster
        before = dict(cluster)
        cluster.update(self._of_this_place())
        try:
            yield
        finally:
            cluster.clear()
            cluster.update(before)

    def check_health(self) -> None:
        """Wait until OSDs are up and our PGs active+clean; upstream takes silence for health."""
        self.own.check_health()

    @property
    def up_from(self) -> Mapping[int, int]:
        """Since when each OSD is up."""
        return self.own.up_from

    @property
    def placed(self) -> Mapping[str, Collection[int]]:
        """As of the contract: nothing, as this engine makes no pool with a class of its own."""
        return self.own.placed

    def _upstreams_check_health(self, *_: object, **__: object) -> int:
        """What upstream calls to wait for health, with the arguments that it passes."""
        self.check_health()
        return 0

    def unmount_all(self) -> None:
        """Unmount what CBT's client endpoints have mounted on clients."""
        text = rbd_images.unmount_below(f"{self.section.tmp_dir}/mnt")
        self.own.run(dict.fromkeys(self.site.clients, text), "unmount the client endpoints")

    # -- pools and images -------------------------------------------------------------------

    def mkpool(
        self, name: str, profile: str, application: str, base_name: Optional[str] = None
    ) -> None:
        """Make a pool; nothing when the campaign has it already."""
        if name in self.own.pools:
            return
        with checkout.failures_named(f"make the pool {name}"):
            self._kind.mkpool(self.theirs, name, profile, application, base_name)
        pool = self.section.pool_profiles.get(profile)
        if pool is not None and (min_size := pool.min_size) is not None:
            step = {"prefix": "osd pool set", "pool": name, "var": "min_size", "val": str(min_size)}
            self.own.ask([{"mon": step}])
        self.own.pools.add(name)

    def rmpool(self, name: str, profile: str) -> None:
        """Remove a pool, and the note that we made it. Raises RunError."""
        if self._serves_files:
            self._remove_files(name)
        with checkout.failures_named(f"remove the pool {name}"):
            self._kind.rmpool(self.theirs, name, profile)
        self.own.pools.discard(name)

    def _remove_files(self, pool: str) -> None:
        """Remove the file system on a pool, which upstream makes anew and never removes."""
        (said,) = self.own.ask([{"mon": {"prefix": "fs ls", "format": "json"}}])
        for each in json.loads(said):
            if pool in (each["metadata_pool"], *each["data_pools"]):
                fs = {"fs_name": each["name"]}
                sure = {"yes_i_really_mean_it": True}
                self.own.ask([{"mon": {"prefix": "fs fail", **fs}},
                              {"mon": {"prefix": "fs rm", **fs, **sure}}])  # fmt: skip

    _make_pool, _remove_pool = mkpool, rmpool

    def mkimage(
        self, name: str, size: int, pool: str, data_pool: Optional[str] = None, order: int = 22
    ) -> None:
        """Make an image. Raises HostError when it is not there then: upstream only logs it."""
        self._kind.mkimage(self.theirs, name, size, pool, data_pool, order)
        ask = f"{quote(self.rbd_cmd)} -c {quote(self.tmp_conf)} info {quote(f'{pool}/{name}')}"
        self.own.run({self.site.head: f"{ask} >/dev/null"}, f"make image {name}")

    # -- how ----------------------------------------------------------------------------------

    def endings(self) -> list[execution.Ending]:
        """How the programs that upstream started ended, since this was last asked."""
        notes = execution.read_notes(self.base)
        return execution.endings(
            self.own.run({host: notes for host in self.site.hosts}, "see what upstream ignored")
        )

    def _step(self, what: str, take: Callable[[Any], None]) -> None:
        with checkout.failures_named(what):
            take(self.theirs)
        failed = [ending for ending in self.endings() if ending.status != 0]
        if failed:
            raise RunError(f"{what}: {failed[0].sentence()}")

    def _forget_local_keys(self) -> None:
        """This machine may be none of the hosts; upstream left the keys here all the same."""
        for name in ("client.admin/keyring.tmp", "monmap.tmp"):
            with contextlib.suppress(OSError):
                os.unlink(f"{self.base}/{name}")
        for directory in (f"{self.base}/client.admin", self.base, self.section.tmp_dir):
            with contextlib.suppress(OSError):
                os.rmdir(directory)


class ExistingUpstreamCeph(UpstreamCeph):
    """A cluster that is there already; upstream's pools say for which archive they were made."""

    _own = ExistingCeph

    @property
    def _made_for(self) -> str:
        return rbd_images.made_for(socket.gethostname(), str(self.config["archive_dir"]))

    @override
    def shutdown(self) -> None:
        """Remove the pools that were made for this archive, too."""
        super().shutdown()
        makes_pools = any(name in checkout.BENCHMARKS for name in self._settings.benchmarks)
        for name, made_for in self._pools().items() if makes_pools else ():
            if self._made_for in made_for:
                super().rmpool(name, "")

    def _pools(self) -> dict[str, list[Any]]:
        (said,) = self.own.ask([{"mon": {"prefix": "osd dump", "format": "json"}}])
        return rbd_images.pools_made(said)

    def _make_pool(
        self, name: str, profile: str, application: str, base_name: Optional[str] = None
    ) -> None:
        super().mkpool(name, profile, application, base_name)
        step = {"prefix": "osd pool application set", "pool": name, "app": application,
                "key": rbd_images.MADE_FOR, "value": self._made_for}  # fmt: skip
        self.own.ask([{"mon": step}])

    def _remove_pool(self, name: str, profile: str) -> None:
        """Remove a pool that was made for this archive. Raises RunError for another."""
        pools = self._pools()
        if name not in pools:
            return
        if self._made_for not in pools[name]:
            raise RunError(
                f"the pool {name}, which upstream CBT would make anew, is there and was not made "
                "for this archive; rename it, or remove it yourself"
            )
        super().rmpool(name, profile)

    @override
    def mkpool(
        self, name: str, profile: str, application: str, base_name: Optional[str] = None
    ) -> None:
        """Its owner has made the pools, but for those of upstream's benchmarks."""


def make_own(path: str, user: Optional[str]) -> None:
    """Make it here, which may be no host of the campaign; RunError where others may write to it."""
    os.makedirs(path, mode=0o700, exist_ok=True)
    trusted = {0, os.geteuid()}
    with contextlib.suppress(KeyError):
        trusted.add(pwd.getpwnam(user or "root").pw_uid)
    try:
        check_directory(path, trusted)
    except Refused as error:
        why = str(error).partition(";")[0]
        raise RunError(f"this machine: {why}, and keys come there; name another tmp_dir") from None

"""A cluster that upstream's `cluster.ceph.Ceph` deploys, under a campaign's overlays.

Every step that makes something is upstream's own. Not upstream's are those that would reach beyond
`tmp_dir` (`shutdown` ends daemons by name, `distribute_conf` replaces what is in /etc/ceph, and
so on: docs/upstream.md), and the checks between the steps, as upstream goes on whatever happens.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Optional

from cbt_crypto.engine.embedded.ceph import Hooks
from cbt_crypto.engine.embedded.options import mon_vector
from cbt_crypto.engine.upstream import programs
from cbt_crypto.engine.upstream.common import Common
from cbt_crypto.engine.upstream.conf import sections
from cbt_crypto.engine.upstream.failure import told
from cbt_crypto.engine.upstream.modules import Modules
from cbt_crypto.engine.upstream.safe_cluster import Directory
from cbt_crypto.engine.upstream.settings import Settings, for_upstream, write_one_pid
from cbt_crypto.errors import RunError
from cbt_crypto.hosts import ceph_conf
from cbt_crypto.hosts.remote import kill_script
from cbt_crypto.hosts.site import HostScripts
from cbt_crypto.plan.file.dimensions import at
from cbt_crypto.plan.layout import ceph_dir, conf_path, section_of, site_of

if TYPE_CHECKING:
    UpstreamsOwn = Any
else:
    UpstreamsOwn = object

quote = shlex.quote


class UpstreamCeph(Hooks, UpstreamsOwn):  # type: ignore[misc]
    """Stands before upstream's class, which `ceph_class` puts behind it."""

    #: Set by `ceph_class`.
    common: Common
    settings: Settings

    def __init__(self, config: Mapping[str, Any]) -> None:
        """`config` is `settings.cluster`, after `initialize`. Touches nothing."""
        self.section = at(section_of(config))
        self.site = site_of(self.section)
        super().__init__({**config, **for_upstream(self.section), **self._of_this_place()})
        self.own = Directory(self.section.model_dump(exclude_unset=True), self.common, self)
        self.remote = self.own.remote
        self.conf_text = ""
        self.tmp_conf = conf_path(self.section)
        self.base = ceph_dir(self.section)
        self._point_to_our_programs()

    def _point_to_our_programs(self) -> None:
        """Upstream's own attributes, which name what it starts and where keys are."""
        where = programs.directory(self.base)
        self.ceph_mon_cmd = f"{where}/ceph-mon"
        self.ceph_mgr_cmd = f"{where}/ceph-mgr"
        self.ceph_osd_cmd = f"{where}/ceph-osd"
        self.rados_cmd = f"{where}/rados"
        self.ceph_cmd = f"{where}/ceph"
        self.rbd_cmd = f"{where}/rbd"
        # Restarts a daemon that crashed: a measurement wants to know instead.
        self.ceph_run_cmd = "env"
        self.client_keyring = f"{self.base}/keyring"
        self.client_secret = f"{self.base}/secret"
        # What follows upstream's own waits is exact, and waits as long as it takes.
        self.health_wait = 0

    # -- the life of a cluster --------------------------------------------------------------

    def initialize(self) -> None:
        """Take down what is there, have upstream deploy anew, and wait until every OSD is up."""
        self.shutdown()
        self.cleanup()
        if self.use_existing:
            self.write_programs()
            return
        self.prepare_hosts()
        self.own.new_epoch()
        self.ruleset_map: dict[str, int] = {}
        self.cur_ruleset = 1
        self.write_programs()
        self.distribute_conf()
        self.setup_fs()
        self.make_mons()
        self.start_mgrs()
        self.make_osds()
        with told("make the profiles of pools"):
            self.make_profiles()
        self.own.run(self.after_osds(), "finish the deployment")

    def write_programs(self) -> None:
        """Write the programs that upstream starts, as the overlays now want them."""
        section = self.section
        names = programs.Names(
            section.ceph_cmd, section.rbd_cmd, section.ceph_mon_cmd, section.ceph_mgr_cmd,
            section.ceph_osd_cmd,
        )  # fmt: skip
        scripts = programs.install(
            self.site, self.base, names, self.osd_command, self.client_command
        )
        one_pid = write_one_pid(f"{self.base}/run")
        self.own.run(
            {host: f"{text}\n{one_pid}" for host, text in scripts.items()},
            "write the programs that upstream starts",
        )

    def client_command(self, host: str, command: str) -> str:
        """The command that starts one client process."""
        return command

    def shutdown(self) -> None:
        """End every process that carries our mark, and undo the overlays' work."""
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
        self.own.forget_older()
        stop = {host: kill_script() for host in self._daemon_hosts()}
        self.own.run(stop, "stop the daemons")
        self.write_programs()
        self.distribute_conf()
        self.own.run(self._start_scripts("mon"), "start the monitors")
        self.own.run(self._start_scripts("mgr"), "start the managers")
        self.own.run(self._start_scripts("osd"), "start the OSDs")
        self.own.wait_for_osds()
        self.own.run(self.after_osds(), "finish the restart")

    def _start_scripts(self, kind: str) -> HostScripts:
        """The commands with which upstream started them: it has no restart."""
        where, conf = programs.directory(self.base), quote(self.tmp_conf)
        keyring = quote(f"{self.base}/client.admin/keyring")
        if kind == "osd":
            return {
                host: "\n".join(
                    f"$SUDO {where}/ceph-osd -c {conf} -i {osd.id}"
                    for osd in self.site.osds_of(host)
                )
                for host in self.site.osd_hosts
            }
        daemons = self.section.mons if kind == "mon" else self.section.mgrs
        keys = f" --keyring={keyring}" if kind == "mon" else ""
        return {
            host: "\n".join(
                f"$SUDO {where}/ceph-{kind} -c {conf} -i {quote(name)}{keys}" for name in named
            )
            for host, named in daemons.items()
        }

    # -- steps ------------------------------------------------------------------------------

    def distribute_conf(self) -> None:
        """Put ceph.conf below `tmp_dir`; upstream's own replaces /etc/ceph/ceph.conf."""
        made = sections(
            self.own.addressed, self.site, self.extra_conf(), self.osd_device, self.osd_db_device
        )
        self.conf_text = ceph_conf.render(made)
        nodes = self._nodes(self.site.hosts)
        with tempfile.NamedTemporaryFile("w", prefix="cbt-crypto-", suffix=".conf") as file:
            file.write(self.conf_text)
            file.flush()
            with told("copy ceph.conf"):
                self.common.pdcp(nodes, "", file.name, self.tmp_conf).communicate()

    def get_mon_hosts(self) -> dict[str, dict[str, str]]:
        """Monitors by host: {id: address}, msgr2's, as upstream's would speak msgr1 alone."""
        return {
            host: {name: mon_vector(address).strip("[]") for name, address in named.items()}
            for host, named in self.own.addressed.mons.items()
        }

    def setup_fs(self) -> None:
        """Prepare the devices. BlueStore needs none of the file systems that upstream makes."""
        self.own.claim_devices()
        size = self.section.osd_file_size
        files = {
            host: "\n".join(
                f"truncate -s {size} {quote(osd.device)}"
                for osd in self.site.osds_of(host)
                if osd.is_file
            )
            for host in self.site.osd_hosts
        }
        self.own.run(files, "make the OSDs' files")
        self.own.run(self.before_osds(), "prepare the devices")

    def make_mons(self) -> None:
        """Make and start the monitors. Raises HostError when none answers."""
        # Upstream brings the keys to the machine that runs it, in the same place.
        os.makedirs(f"{self.base}/client.admin", mode=0o700, exist_ok=True)
        with told("make the monitors"):
            super().make_mons()
        self._nothing_failed("make the monitors")
        self.own.quiet()

    def start_mgrs(self) -> None:
        """Start the managers."""
        with told("start the managers"):
            super().start_mgrs()
        self._nothing_failed("start the managers")

    def make_osds(self) -> None:
        """Make and start the OSDs, and wait until they are up."""
        with told("make the OSDs"), self._settings_of_this_place():
            super().make_osds()
        self._nothing_failed("make the OSDs")
        self.own.wait_for_osds()

    def _of_this_place(self) -> dict[str, Any]:
        """What upstream reads, where the file lists several values for the cluster."""
        counts = [len(self.site.osds_of(host)) for host in self.site.osd_hosts]
        return {
            "osds": list(self.site.osd_hosts),
            "osds_per_node": max(counts, default=0),
            "pool_profiles": {
                name: profile.model_dump(exclude_none=True)
                for name, profile in self.section.pool_profiles.items()
            },
        }

    @contextlib.contextmanager
    def _settings_of_this_place(self) -> Iterator[None]:
        """Upstream's make_osds reads its settings, which hold the file's own values otherwise."""
        cluster = self.settings.cluster
        before = dict(cluster)
        cluster.update(self._of_this_place())
        try:
            yield
        finally:
            cluster.clear()
            cluster.update(before)

    def disable_scrub(self) -> None:
        """Keep out what would disturb a measurement, as `cluster.settings` says."""
        self.own.quiet()

    def check_health(
        self, check_list: Any = None, logfile: Any = None, recstatsfile: Any = None
    ) -> int:
        """Wait until every OSD is up and our pools' placement groups are active+clean.

        Upstream takes a cluster that does not answer for a healthy one, so it is not asked.
        """
        self.own.check_health()
        return 0

    def unmount_all(self) -> None:
        """Nothing of a campaign is ever mounted, so targetcli need not be there."""

    # -- pools and images -------------------------------------------------------------------

    def mkpool(
        self, name: str, profile: str, application: str, base_name: Optional[str] = None
    ) -> None:
        """Make a pool; nothing when the campaign has it already."""
        if self.use_existing or self.own.knows_pool(name):
            return
        with told(f"make the pool {name}"):
            super().mkpool(name, profile, application, base_name)
        min_size = self.section.pool_profiles[profile].min_size
        if min_size is not None:
            step = {"prefix": "osd pool set", "pool": name, "var": "min_size", "val": str(min_size)}
            self.own.ask({"mon": step})
        self.own.note_pool(name)

    def rmpool(self, name: str, profile: str) -> None:
        """Remove a pool."""
        with told(f"remove the pool {name}"):
            super().rmpool(name, profile)
        self.own.forget_pool(name)

    def mkimage(
        self, name: str, size: int, pool: str, data_pool: Optional[str] = None, order: int = 22
    ) -> None:
        """Make an image. Raises HostError when it is not there then: upstream only logs it."""
        super().mkimage(name, size, pool, data_pool, order)
        ask = f"{quote(self.rbd_cmd)} -c {quote(self.tmp_conf)} info {quote(f'{pool}/{name}')}"
        self.own.run({self.site.head: f"{ask} >/dev/null"}, f"make image {name}")

    def set_osd_param(self, param: str, value: str) -> None:
        """Nothing: upstream's writes to /sys of whatever devices carry CBT's partition labels."""

    # -- how ----------------------------------------------------------------------------------

    def endings(self) -> list[programs.Ending]:
        """How the programs that upstream started ended, since this was last asked."""
        notes = programs.read_notes(self.base)
        return programs.endings(
            self.own.run({host: notes for host in self.site.hosts}, "see what upstream ignored")
        )

    def _nothing_failed(self, what: str) -> None:
        failed = [ending for ending in self.endings() if ending.status != 0]
        if failed:
            raise RunError(f"{what}: {failed[0].sentence()}")

    def _run(self, scripts: HostScripts, what: str, timeout: Optional[float] = None) -> Any:
        return self.own.run(scripts, what, timeout)

    def _nodes(self, hosts: tuple[str, ...]) -> str:
        user = f"{self.section.user}@" if self.section.user else ""
        return ",".join(f"{user}{host}" for host in hosts)

    def _daemon_hosts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.site.mons, *self.site.mgrs, *self.site.osd_hosts)))

    def _forget_local_keys(self) -> None:
        """This machine may be none of the hosts; upstream left the keys here all the same."""
        for name in ("client.admin/keyring.tmp", "monmap.tmp"):
            with contextlib.suppress(OSError):
                os.unlink(f"{self.base}/{name}")
        for directory in (f"{self.base}/client.admin", self.base, self.section.tmp_dir):
            with contextlib.suppress(OSError):
                os.rmdir(directory)


def ceph_class(modules: Modules, common: Common, settings: Settings) -> type[Any]:
    """Upstream's class under our hooks: `cls(config)`, as the contract has it."""
    return type("Ceph", (UpstreamCeph, modules.Ceph), {"common": common, "settings": settings})

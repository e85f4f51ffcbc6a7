"""A Ceph cluster below one directory: monitors, managers and BlueStore OSDs, with cephx and msgr2.

Every step is one call for all hosts and all daemons of its kind.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import tempfile
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Optional

from typing_extensions import override

from cbt_crypto.cluster_overlays.stack import BoundStack, Stack
from cbt_crypto.engine.contract import Section
from cbt_crypto.engine.embedded import common, daemons
from cbt_crypto.engine.embedded.daemons import Daemons, KeyForm, Step, mon, together
from cbt_crypto.errors import HostError
from cbt_crypto.hosts import ceph_conf, directories
from cbt_crypto.hosts.devices import destroy, lvm_and_md, rbd_images
from cbt_crypto.hosts.devices.lvm_and_md import Group, LogicalVolume
from cbt_crypto.hosts.directories import prefix, temporary_place
from cbt_crypto.hosts.remote import Execution, Remote, kill_osds_scripts, kill_script
from cbt_crypto.hosts.shell import answer_limit, joined
from cbt_crypto.hosts.site import HostScripts, Osd, Site
from cbt_crypto.plan.file.cluster import ClusterSection, at, pool_options
from cbt_crypto.plan.layout import ceph_dir, conf_path, site_of

quote = shlex.quote

#: An OSD opens and closes its device many times, as it is made and again as it starts; and each
#: close waits until a thread looks up from its poll, a quarter of a second by default.
_POLL = "bdev_aio_poll_ms"
_SHORT_POLL_MS = "10"
#: Nor does mkfs then look through the empty store that it has just written.
_QUICK_MKFS = f"--{_POLL}={_SHORT_POLL_MS} --bluestore-fsck-on-mkfs=false"

#: Seconds for unmounting and unmapping: the kernel gives up on OSDs that are gone after 120.
_UNMAPPED_S = 150

_SHORT_POLL = mon("config set", who="osd", name=_POLL, value=_SHORT_POLL_MS)


class Ceph:
    """A cluster as CBT's contract has it. `config` is the `cluster` section of the file."""

    #: CBT's: whether somebody else deployed it.
    use_existing = False

    def __init__(
        self, config: Section, hooks: Optional[BoundStack] = None, execution: Execution = common
    ) -> None:
        """Touches nothing. `hooks` change what is deployed, and `execution` reaches hosts.

        Raises pydantic's ValidationError for a section that is not valid.
        """
        self.config = dict(config)
        section = {key: value for key, value in config.items() if key != "archive_dir"}
        self.section = at(ClusterSection.model_validate(section))
        self.site = site_of(self.section)
        self.hooks = hooks or BoundStack(self.site, Stack(()))
        self.tmp_dir = self.section.tmp_dir
        self.tmp_conf = conf_path(self.section)
        self.archive_dir = str(config.get("archive_dir", ""))
        self.pid_dir = f"{ceph_dir(self.section)}/run"
        self.log_dir = f"{ceph_dir(self.section)}/log"
        self.ceph_cmd = self.section.ceph_cmd
        self.rbd_cmd = self.section.rbd_cmd
        self.ceph_osd_cmd = self.section.ceph_osd_cmd
        self.fsid = ""
        self.conf_text = ""
        self.remote = Remote(execution, self.tmp_dir, self.section.user)
        self._base = ceph_dir(self.section)
        self._volume_notes = f"{self.tmp_dir}/volumes"
        self._daemons = Daemons(self.section, self.hooks.program)
        self._keys: dict[str, str] = {}
        self.epoch = 0
        self._forms: dict[str, KeyForm] = {}
        self.pools: set[str] = set()
        #: Epoch of the OSD map of which all placement groups were clean.
        self._clean_at = 0
        self.up_from: Mapping[int, int] = {}
        self.placed: Mapping[str, Collection[int]] = {}

    # -- the life of a cluster --------------------------------------------------------------

    def initialize(self) -> None:
        """Tear down what is there, deploy anew, and wait until every OSD is up."""
        self._clear()
        self.hooks.prepare_hosts(self.run)
        self._new_identity()
        self.distribute_conf()
        # What is made of devices and files needs no monitor yet.
        limit = self.section.deploy_timeout
        making = self._at_once(joined([*self._prepared(), self._mkfs_scripts()]))
        made = self.remote.begin(making, "make the OSDs", limit)
        try:
            self.make_mons()
            self.start_mgrs()
            self.ask([*self.quiet(), _SHORT_POLL])
        except HostError:
            with contextlib.suppress(HostError):
                made()
            raise
        made()
        self._start_osds(self._device_classes())
        self.run(self.hooks.after_osds(), "finish the deployment")

    def _clear(self) -> None:
        """`shutdown` and `cleanup`, each host by itself once all daemons have ended."""
        try:
            self._end_daemons()
        except HostError:
            self._undo()
            raise
        self.pools.clear()
        cleared = joined((*(scripts for _, scripts in self._undoing()), self._emptied()))
        self.run(self._at_once(cleared), "clear the host")

    def adopt(self, site: Site) -> None:
        """Work beside a cluster that is there: only what a killed campaign left is torn down."""
        self.site = site
        self.shutdown()
        self.cleanup()

    def shutdown(self) -> None:
        """End every process that carries our mark, on every host, and undo the overlays' work."""
        try:
            self._end_daemons()
        finally:
            # A host that does not answer keeps nothing up on the others.
            self._undo()

    def _end_daemons(self) -> None:
        # While OSDs may still answer, as a file system writes out what it holds.
        self.remote.attempt(self._unmapped(), _UNMAPPED_S, "unmap the volumes")
        # The cluster is thrown away, so there is nothing for its daemons to write out.
        self.run(dict.fromkeys(self.site.hosts, kill_script(signals=("KILL",))), "end the daemons")

    def _undo(self) -> None:
        for what, scripts in self._undoing():
            self.run(scripts, what)

    def _undoing(self) -> list[tuple[str, HostScripts]]:
        """What undoes what was laid over and made on the devices, step by step."""
        hosts = [osd.host for osd in self.site.osds if not osd.is_file]
        remove = dict.fromkeys(hosts, lvm_and_md.remove_volumes(self._volume_notes))
        undone = joined((self.hooks.take_down(), self._unmapped()), keep_going=True)
        return [("take the overlays down", undone), ("remove the volumes", remove)]

    def _unmapped(self) -> HostScripts:
        return dict.fromkeys(self.site.clients, rbd_images.detach_all(self.tmp_dir))

    def cleanup(self) -> None:
        """Remove the cluster's files and the BlueStore labels on its devices."""
        self.pools.clear()
        self.run(self._emptied(), "prepare tmp_dir")

    def _emptied(self) -> HostScripts:
        script = f"{destroy.empty_all(self.tmp_dir)}\n"
        script += directories.make_without(self.tmp_dir, os.path.basename(self._base))
        base = quote(self._base)
        script += f"(umask 077; mkdir -p {base}/run {base}/log {base}/crash)"
        return dict.fromkeys(self.site.hosts, script)

    def purge(self) -> None:
        """Remove `tmp_dir` on every host, if it is ours."""
        script = directories.remove(self.tmp_dir)
        self.run({host: script for host in self.site.hosts}, "remove tmp_dir")

    def restart(self) -> None:
        """Stop the daemons, distribute ceph.conf again, and start them on their data."""
        # The last session of a ceph.conf that is about to change, and of monitors that end.
        stat = self.ask([mon("osd stat", format="json"), {"end": True}])[0]
        self.epoch = int(json.loads(stat)["epoch"])
        mgrs = self.section.mgrs.items()
        files = {h: [f"{self.pid_dir}/mgr.{name}.pid" for name in names] for h, names in mgrs}
        self.run(kill_osds_scripts(self.site, files), "stop the OSDs")
        stop = dict.fromkeys(self.site.daemon_hosts, kill_script())
        self.run(stop, "stop the daemons")
        self.distribute_conf()
        self.run(self._daemons.mon_scripts(), "start the monitors")
        self.start_mgrs()
        # An OSD that meets monitors without a quorum waits 3 s and tries again.
        self.ask([_SHORT_POLL])
        self._start_osds()
        self.run(self.hooks.after_osds(), "finish the restart")

    # -- steps ------------------------------------------------------------------------------

    def distribute_conf(self) -> None:
        """Put ceph.conf everywhere, and the keys where they are needed; mode 0600."""
        base = daemons.base_options(self.addressed(), self.fsid)
        of_file = ceph_conf.read(Path(self.section.conf_file)) if self.section.conf_file else {}
        chosen = daemons.setting_options(self.section), daemons.without(of_file, base)
        sections = ceph_conf.merged(*chosen, base, self.hooks.ceph_conf())
        self.conf_text = ceph_conf.render(sections)
        with tempfile.TemporaryDirectory(prefix=prefix("conf"), dir=temporary_place()) as staging:
            self._copy(staging, "ceph.conf", self.conf_text, self.site.hosts)
            admin_hosts = dict.fromkeys((self.site.head, *self.site.clients))
            self._copy(staging, "keyring", self._keys["client.admin"], admin_hosts)
            for name, sections_of_it in self.hooks.client_confs().items():
                text = ceph_conf.render(ceph_conf.merged(sections, sections_of_it))
                self._copy(staging, f"ceph.{name}.conf", text, admin_hosts)
            self._copy(staging, "daemons.keyring", "".join(self._keys.values()),
                       self.site.daemon_hosts)  # fmt: skip

    def make_mons(self) -> None:
        """Make and start the monitors, with every daemon's key and all OSDs in the first map."""
        addresses = {n: a for named in self.addressed().mons.values() for n, a in named.items()}
        maps = self._daemons.first_maps(self.fsid, addresses, self._key_form())
        self.run(self._daemons.mon_scripts(maps), "make the monitors")

    def start_mgrs(self) -> None:
        """Start the managers; nothing waits for them but what needs them."""
        self.run(self._daemons.mgr_scripts(), "start the managers")

    def setup_fs(self) -> None:
        """Prepare the devices: what the overlays lay over them, when each is noted as ours."""
        self.run(joined(self._prepared()), "prepare the devices")

    def make_osds(self) -> None:
        """Make and start the OSDs, all at once, and wait until they are up."""
        self.ask([*self.quiet(), _SHORT_POLL])
        self.run(self._mkfs_scripts(), "make the OSDs")
        self._start_osds(self._device_classes())

    def _prepared(self) -> list[HostScripts]:
        claims = {host: self.claim_devices(host) for host in self.site.osd_hosts}
        return [claims, self.volumes(), self.hooks.before_osds()]

    def _at_once(self, scripts: HostScripts) -> HostScripts:
        return {
            host: destroy.at_once(self.tmp_dir, text) if self.site.devices_of(host) else text
            for host, text in scripts.items()
        }

    def _start_osds(self, when_up: Sequence[Step] = ()) -> None:
        """Start all and wait until they are up; `_POLL` is set meanwhile, behind ceph.conf's."""
        self.run(self._start_scripts(), "start the OSDs")
        self.ask([self.all_osds(), *when_up, mon("config rm", who="osd", name=_POLL)])

    def _device_classes(self) -> list[Step]:
        """Give OSDs the classes that hooks want, when they are up: before, there are none."""
        wanted: dict[str, list[str]] = {}
        for osd in self.site.osds:
            name = self.hooks.device_class(osd)
            if name:
                wanted.setdefault(name, []).append(f"osd.{osd.id}")
        steps = []
        for name, ids in wanted.items():
            # One that Ceph chose has to go first.
            steps.append(mon("osd crush rm-device-class", ids=ids))
            steps.append(mon("osd crush set-device-class", ids=ids, **{"class": name}))
        return steps

    def check_health(self) -> None:
        """Wait until every OSD is up and every placement group of our pools is active+clean."""
        pgs = {"wait": "pgs", "pools": sorted(self.pools), "clean_at": self._clean_at}
        steps = [self.all_osds(), {"wait": "mgr"}, pgs, mon("osd dump", format="json")]
        placed = [name for name in sorted(self.pools) if self.hooks.pool_class(name)]
        answers = self.ask([*steps, *({"placed": name} for name in placed)])
        clean_at = "".join(answers[2:3])
        self._clean_at = int(clean_at) if clean_at.isdigit() else 0
        self.up_from = daemons.up_from("".join(answers[3:4]))
        self.placed = {name: json.loads(answer) for name, answer in zip(placed, answers[4:])}

    def quiet(self) -> list[Step]:
        """What `cluster.settings` keeps from disturbing a measurement."""
        settings = self.section.settings
        flags = {"noscrub": settings.scrub, "nodeep-scrub": settings.deep_scrub}
        steps = [mon("osd set", key=flag) for flag, wanted in flags.items() if not wanted]
        if not settings.balancer:
            steps.append(mon("config set", who="mgr", name="mgr/balancer/active", value="false",
                              force=True))  # fmt: skip
        return steps

    # -- pools and images -------------------------------------------------------------------

    def mkpool(self, name: str, profile: str, application: str) -> None:
        """Make a pool by one of `pool_profiles`; nothing when we have made it already."""
        if name in self.pools:
            return
        pool = self.section.pool_profiles[self.hooks.stack.pool_profile(profile)]
        device_class = self.hooks.pool_class(name)
        steps = [
            *daemons.create(self.section, name, pool, device_class),
            mon("osd pool application enable", pool=name, app=application),
        ]
        if pool.min_size is not None:
            steps.append(mon("osd pool set", pool=name, var="min_size", val=str(pool.min_size)))
        for like in sorted(self.pools):
            twins = self.hooks.twins(like, name)
            if twins:
                steps += daemons.alike(name, like, twins)
                break
        is_plain = pool.erasure_profile is None and not pool_options(pool)
        answers = self.ask([*steps, *([] if is_plain else [mon("osd dump", format="json")])])
        fault = None if is_plain else (
            daemons.fault(self.section, pool, name, answers[-1], device_class)
        )  # fmt: skip
        if fault:
            raise HostError(self.site.head, f"make the pool {name}", "is not as asked for", fault)
        self.pools.add(name)

    # -- how ----------------------------------------------------------------------------------

    def _new_identity(self) -> None:
        self.fsid = str(uuid.uuid4())
        self.epoch = self._clean_at = 0
        mgrs = [f"mgr.{name}" for names in self.section.mgrs.values() for name in names]
        osds = [f"osd.{osd.id}" for osd in self.site.osds]
        self._keys = self._key_form().keyring(["mon.", "client.admin", *mgrs, *osds])

    def _key_form(self) -> KeyForm:
        tools = [self.hooks.program(name) for name in ("ceph-authtool", "monmaptool")]
        if tools[0] not in self._forms:
            host, cipher = self.site.mons[0], self.section.auth_cipher
            what = f"make a key{f' for {cipher}' if cipher else ''}"
            printed = self.run({host: daemons.ask_script(cipher, *tools)}, what)[host]
            try:
                self._forms[tools[0]] = daemons.key_form(printed)
            except ValueError as error:
                raise HostError(host, what, "failed", str(error)) from error
        return self._forms[tools[0]]

    def addressed(self) -> ClusterSection:
        """The section with the addresses at which the monitors really are."""
        real, site = self.hooks.stack.mon_address, self.hooks.site
        mons = {
            host: {name: real(site, host, address) for name, address in named.items()}
            for host, named in self.section.mons.items()
        }
        return self.section.model_copy(update={"mons": mons})

    def _copy(self, staging: str, name: str, text: str, hosts: Iterable[str]) -> None:
        path = os.path.join(staging, name)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        user = f"{self.section.user}@" if self.section.user else ""
        nodes = ",".join(f"{user}{host}" for host in hosts)
        handle = common.pdcp(nodes, "", path, f"{self._base}/{name}")
        _, stderr = handle.communicate(self.section.deploy_timeout)
        # pdcp's exit status is 0 when a host could not be reached; its stderr tells.
        if handle.returncode or handle.timed_out or "exited with exit code" in stderr:
            raise HostError(nodes, f"copy {name}", "failed", stderr.strip()[-600:])

    def _start_scripts(self) -> HostScripts:
        return {
            host: together([self._start_script(osd) for osd in self.site.osds_of(host)])
            for host in self.site.osd_hosts
        }

    def _start_script(self, osd: Osd) -> str:
        sudo = "" if osd.is_file else "$SUDO "
        start = self._daemons.start(self.hooks.program(self.ceph_osd_cmd), f"osd.{osd.id}", sudo)
        # Some packages make OSDs look for their classes relative to the working directory.
        return f"cd /\n{self.hooks.wrap_osd(osd, start)}"

    def _mkfs_scripts(self) -> HostScripts:
        scripts = {}
        for host in self.site.osd_hosts:
            osds = self.site.osds_of(host)
            devices = [osd for osd in osds if not osd.is_file]
            on_files = together([self._file_script(osd) for osd in osds if osd.is_file])
            scripts[host] = (self._format(devices) if devices else "") + on_files
        return scripts

    def _file_script(self, osd: Osd) -> str:
        size = f"{daemons.file_size(self.section) >> 20}M"
        file = f"truncate -s {size} {quote(osd.device)}\nmkdir -p {quote(osd.data_dir)}"
        return f"{file}\nuuid={uuid.uuid4()}\n{self._mkfs(osd)}"

    def _format(self, osds: Iterable[Osd]) -> str:
        folders = "".join(f"mkdir -p {quote(osd.data_dir)}\n" for osd in osds)
        mkfs = {self.hooks.osd_device(osd): self._mkfs(osd) for osd in osds}
        return f"{folders}{destroy.format_osds(self.tmp_dir, mkfs)}\n"

    def _mkfs(self, osd: Osd) -> str:
        ceph_osd = self.hooks.program(self.ceph_osd_cmd)
        program = f"{quote(ceph_osd)} -c {quote(self.tmp_conf)} -i {osd.id}"
        device, db_device = self.hooks.osd_device(osd), self.hooks.osd_db_device(osd)
        paths = f"--bluestore-block-path={quote(device)}"
        if db_device:
            paths += f" --bluestore-block-db-path={quote(db_device)}"
        log = quote(f"{self.log_dir}/osd.{osd.id}.mkfs.log")
        # mkfs talks to nobody: its key is in the monitors already.
        mkfs = (
            f'{program} --mkfs --osd-uuid "$uuid" --no-mon-config {paths} '
            f"--keyring {quote(self._base)}/daemons.keyring {_QUICK_MKFS}"
        )
        return f"{mkfs} > {log} 2>&1 || {{ tail -n 5 {log} >&2; exit 1; }}"

    def claim_devices(self, host: str) -> str:
        """Shell text that claims a host's devices: from then on a killed run can be cleared."""
        devices = self.site.devices_of(host)
        return destroy.claim(self.tmp_dir, devices, self.site.discard) if devices else ""

    def volumes(self) -> HostScripts:
        """A volume for each OSD, where several share a device."""
        shared: dict[str, dict[str, list[Osd]]] = {}
        for osd in self.site.osds:
            if osd.disk:
                shared.setdefault(osd.host, {}).setdefault(osd.disk, []).append(osd)
        return {
            host: lvm_and_md.make_volumes(
                [
                    Group(
                        lvm_and_md.group_name(self._base, host, disk),
                        disk,
                        tuple(LogicalVolume(f"osd.{osd.id}-data") for osd in osds),
                    )
                    for disk, osds in disks.items()
                ],
                self._volume_notes,
            )
            for host, disks in shared.items()
        }

    def all_osds(self) -> Step:
        """Wait until every OSD is up."""
        return {"wait": "osds", "count": len(self.site.osds), "since": self.epoch}

    def ask(self, steps: Sequence[Step]) -> list[str]:
        """Take monitor steps in one process on the head; return what each printed."""
        timeout = self.section.deploy_timeout
        session = f"{self.pid_dir}/session"
        script = daemons.script(self.ceph_cmd, self.tmp_conf, steps, timeout, session)
        output = self.run({self.site.head: script}, "wait for the cluster", timeout + 15)
        return daemons.answers(output[self.site.head])

    def run(
        self, scripts: HostScripts, what: str, timeout: Optional[float] = None
    ) -> dict[str, str]:
        """Run scripts within `deploy_timeout`. Raises HostError."""
        return self.remote.run(scripts, what, timeout or self.section.deploy_timeout)


class ExistingCeph(Ceph):
    """Only the campaign's own directories and processes beside it come and go."""

    use_existing = True

    @override
    def _undoing(self) -> list[tuple[str, HostScripts]]:
        """Clients may have mapped images; nothing was laid over its devices, or made on them."""
        return [("unmap the volumes", self._unmapped())]

    @override
    def check_health(self) -> None:
        """Its owner sees to its health: it is only asked since when its OSDs are up."""
        limit = answer_limit(self.site.ceph_cmd)
        ask = f"timeout {limit} {self.site.ceph_command} osd dump --format json"
        answers = self.run({self.site.head: ask}, "ask since when OSDs are up", limit + 30)
        self.up_from = daemons.up_from(answers[self.site.head])

    @override
    def mkpool(self, name: str, profile: str, application: str) -> None:
        """Its owner has made the pools."""

"""BlueStore's database and log of each OSD on a second, usually faster device."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Optional, Union

from pydantic import Field, StringConstraints, model_validator
from typing_extensions import Self, override

from cbt_crypto.cluster_overlays import base
from cbt_crypto.cluster_overlays.base import Absent, Finding, Overlay, StorageFacts, Verdict
from cbt_crypto.hosts import directories, shell
from cbt_crypto.hosts.devices import destroy, lvm_and_md
from cbt_crypto.hosts.devices.destroy import device_guard
from cbt_crypto.hosts.devices.lvm_and_md import Group, LogicalVolume
from cbt_crypto.hosts.requirement import Requirement
from cbt_crypto.hosts.site import HostOutputs, HostScripts, Osd, Site
from cbt_crypto.units import size_bytes

_Path = Annotated[str, StringConstraints(pattern=r"^/[^\x00-\x1f]*$")]
# A file of this name that is there already is somebody else's, or a link to what is.
_MAKE_FILE = "(set -C; : > {file})\ntruncate -s {size} {file}"
_REMOVE_FILE = "[ -L {file} ] || [ ! -f {file} ] || [ ! -O {file} ] || rm {file}"
_METADATA = "@metadata"
_LINKS = "@links"
_STORAGE = "@storage"


class DbDevice(Overlay):
    """Put RocksDB and its log of each OSD on a second device."""

    name: ClassVar[str] = "db_device"
    if_absent: ClassVar[Absent] = {"devices": None, "directory": None, "size": ""}
    needs_root: ClassVar[bool] = True

    devices: Union[_Path, list[_Path], dict[str, list[_Path]], None] = Field(
        None,
        description="the devices that a host's OSDs share: a path, a list that the OSDs go "
        "through in turn, or lists by host; each OSD gets a logical volume",
    )
    directory: Optional[_Path] = Field(
        None,
        description="for OSDs on files: a directory on the second device, which gets a file for "
        "each OSD",
    )
    size: str = Field(
        pattern=r"^[1-9][0-9]{0,6}[KMGT]$",
        description="size of one OSD's database and log, e.g. 30G",
    )

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.devices is None) == (self.directory is None):
            raise ValueError("name either devices or directory")
        return self

    @property
    @override
    def is_divisible(self) -> bool:
        return self.devices is None

    def _disk(self, osd: Osd) -> str:
        devices = self.devices
        if isinstance(devices, str):
            return devices
        listed = devices.get(osd.host, []) if isinstance(devices, dict) else devices
        return listed[osd.number % len(listed)] if listed else ""

    def _group(self, osd: Osd) -> str:
        return lvm_and_md.group_name(_base(osd), osd.host, self._disk(osd))

    def _path(self, osd: Osd) -> str:
        if self.directory:
            campaign = hashlib.sha256(f"{_base(osd)}@{osd.host}".encode()).hexdigest()[:8]
            return f"{self.directory}/cbt-crypto-{campaign}-osd.{osd.id}-db"
        return lvm_and_md.path(self._group(osd), f"osd.{osd.id}-db")

    @override
    def osd_db_device(self, osd: Osd, device: Optional[str]) -> Optional[str]:
        return self._path(osd) if self.is_present else device

    @override
    def requirements(self, site: Site) -> Sequence[Requirement]:
        if self.directory:
            return [self._directory(site, host) for host in site.osd_hosts]
        needs = [Requirement("lvm2", site.osd_hosts, lvm_and_md.REQUIREMENT)]
        for host in site.osd_hosts:
            osds = site.osds_of(host)
            if not all(self._disk(osd) for osd in osds):
                sentence = f"db_device names no device of {host}; add it to its devices"
                needs.append(Requirement("db_device", (host,), f"echo {shlex.quote(sentence)}"))
                continue
            for disk in dict.fromkeys(self._disk(osd) for osd in osds):
                count = sum(self._disk(osd) == disk for osd in osds)
                needs.append(device_guard(site, host, disk, "db_device.devices"))
                needs.append(_room(host, disk, count, self.size))
        return needs

    def _check_way(self) -> str:
        return directories.check_way(f"{self.directory}/file")

    def _directory(self, site: Site, host: str) -> Requirement:
        path = shlex.quote(self.directory or "")
        script = (
            f"if [ ! -d {path} ]; then "
            f"echo {path} 'is no directory there; fix db_device.directory'\n"
            f"elif said=$(exec 2>&1\n{self._check_way()}); then echo ok\n"
            f'else echo db_device.directory {path} "$said"; fi'
        )
        if not all(osd.is_file for osd in site.osds_of(host)):
            script = "echo 'db_device: a directory is for OSDs on files; name devices'"
        return Requirement("directory of db_device", (host,), script)

    @override
    def before_osds(self, site: Site) -> HostScripts:
        if not self.is_present:
            return {}
        if self.directory:
            first = f"{self._check_way()}{self._of_mount('note_mount', site)}"
            return self._for_files(site, first, _MAKE_FILE)
        return {host: self._volumes(site, host) for host in site.osd_hosts}

    def _of_mount(self, function: str, site: Site) -> str:
        directory = self.directory or ""
        # Configurations, and groups side by side, may have a directory each.
        name = hashlib.sha256(directory.encode()).hexdigest()[:8]
        note = f"{site.tmp_dir}/db_device.{name}.mount"
        return shell.call(__file__, function, note, directory)

    def _for_files(self, site: Site, first: str, script: str) -> HostScripts:
        scripts = {}
        for host in site.osd_hosts:
            files = [shlex.quote(self._path(osd)) for osd in site.osds_of(host)]
            each = [script.format(file=file, size=self.size) for file in files]
            scripts[host] = "\n".join([first, *each])
        return scripts

    def _volumes(self, site: Site, host: str) -> str:
        groups: dict[str, list[Osd]] = {}
        for osd in site.osds_of(host):
            groups.setdefault(self._disk(osd), []).append(osd)
        claim = destroy.claim(site.tmp_dir, groups, site.discard)
        made = []
        for disk, osds in groups.items():
            volumes = tuple(LogicalVolume(f"osd.{osd.id}-db", self.size) for osd in osds)
            made.append(Group(self._group(osds[0]), disk, volumes))
        return f"{claim}\n{lvm_and_md.make_volumes(made, _notes(site))}"

    @override
    def take_down(self, site: Site) -> HostScripts:
        if not self.is_present:
            return {}
        if self.directory:
            # Where its file system is not mounted, rm finds no files: they would be left behind.
            return self._for_files(site, self._of_mount("is_mounted", site), _REMOVE_FILE)
        return dict.fromkeys(site.osd_hosts, lvm_and_md.remove_volumes(_notes(site)))

    @override
    def probe(self, site: Site) -> HostScripts:
        scripts = {host: self._look(site, host) for host in site.osd_hosts}
        if self.is_present and site.osds:
            ask = f"echo {_METADATA}; {site.ceph_command} osd metadata -f json"
            scripts[site.head] = f"{scripts.get(site.head, '')}\n{ask}"
        return scripts

    def _look(self, site: Site, host: str) -> str:
        osds = site.osds_of(host)
        links = "\n".join(_links(osd) for osd in osds)
        if not self.is_present:
            return f"echo {_LINKS}\n{links}"
        layers_asked = {f"osd.{osd.id}": self._layers_of(osd) for osd in osds}
        return f"echo {_LINKS}\n{links}\necho {_STORAGE}\n{base.storage_script(layers_asked)}"

    def _layers_of(self, osd: Osd) -> dict[str, Any]:
        path = self._path(osd)
        devices, file = ({}, path) if self.directory else ({"db": path}, None)
        return {"pid_file": osd.pid_file, "devices": devices, "file": file}

    @override
    def judge(self, site: Site, before: HostOutputs, after: HostOutputs) -> Verdict:
        looks = [_Look(site, outputs) for outputs in (before, after)]
        findings = {}
        for osd in site.osds:
            faults = [self._fault(osd, look) for look in looks]
            links = [look.links.get(f"osd.{osd.id}") for look in looks]
            if links[0] != links[-1]:
                faults.append("its database moved during the cell")
            evidence = looks[-1].evidence(osd)
            findings[osd] = Finding(next((fault for fault in faults if fault), None), evidence)
        where = self.directory or "a second device"
        claim = f"have their database on {where}" if self.is_present else "have no second device"
        if not self.is_present and any(osd.is_existing for osd in site.osds):
            claim = "have the devices for their database that they were deployed with"
        return base.judge_all(self, findings, claim)

    def _fault(self, osd: Osd, look: _Look) -> Optional[str]:
        name = f"osd.{osd.id}"
        if name not in look.links:
            return "its host did not say what it is made of"
        if not self.is_present and osd.is_existing:
            # Nothing is claimed of it: what it has stands in the evidence.
            return None
        if not self.is_present:
            others = [part for part, target in look.links[name].items() if target]
            return f"it has a {others[0]}" if others else None
        return self._metadata_fault(look, name) or self._storage_fault(osd, look.storage.get(name))

    def _metadata_fault(self, look: _Look, name: str) -> Optional[str]:
        metadata = look.metadata.get(name)
        if metadata is None:
            return "the monitors have no metadata of it"
        if metadata.get("bluefs_dedicated_db") != "1":
            return "its metadata says that it has no database device of its own"
        if metadata.get("bluefs_db_size") not in (None, str(size_bytes(self.size))):
            size = metadata["bluefs_db_size"]
            return f"its database device has {size} bytes and not {size_bytes(self.size)}"
        return None

    def _storage_fault(self, osd: Osd, facts: Optional[StorageFacts]) -> Optional[str]:
        fault = base.closed_fault(facts)
        if fault or facts is None:
            return fault
        if self.directory:
            return None  # `closed_fault` has seen that the file is open
        wanted = facts["named"].get("db")
        below = [layer["device"] for layers in facts["opened"].values() for layer in layers]
        return None if wanted in below else f"it has nothing open on {self._path(osd)}"


class _Look:
    """What one probe said: links of data directories, opened devices, and Ceph's metadata."""

    def __init__(self, site: Site, outputs: HostOutputs) -> None:
        self.links: dict[str, dict[str, str]] = {}
        self.storage: dict[str, StorageFacts] = {}
        self.metadata: dict[str, Mapping[str, str]] = {}
        for host, output in outputs.items():
            # The monitors are asked on the head.
            asked = (_LINKS, _STORAGE, *((_METADATA,) if host == site.head else ()))
            for kind, text in shell.sections(output, *asked):
                if kind == _LINKS:
                    self.links.update(site.own(host, _links_in(text)))
                elif kind == _STORAGE:
                    self.storage.update(base.storage_of(site, {host: text}))
                else:
                    with contextlib.suppress(ValueError):
                        self.metadata.update({f"osd.{of['id']}": of for of in json.loads(text)})

    def evidence(self, osd: Osd) -> dict[str, Any]:
        name = f"osd.{osd.id}"
        metadata = self.metadata.get(name, {})
        shown = {key: value for key, value in metadata.items() if key.startswith("bluefs")}
        return {
            "links": self.links.get(name, {}),
            **({"metadata": shown} if shown else {}),
            **({"opened": self.storage[name].get("opened")} if name in self.storage else {}),
        }


def _links_in(text: str) -> dict[str, dict[str, str]]:
    links: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        osd, part, target = (*line.split(" ", 2), "")[:3]
        links.setdefault(osd, {})[part] = target
    return links


def _links(osd: Osd) -> str:
    """Shell text that prints where an OSD's directory says its database and log are."""
    of_process = osd.pid_file if osd.is_existing else ""
    return shell.call(__file__, "links_of", f"osd.{osd.id}", osd.data_dir, of_process)


def _base(osd: Osd) -> str:
    return os.path.dirname(osd.data_dir)


def _notes(site: Site) -> str:
    return f"{site.tmp_dir}/volumes.db"


def _room(host: str, disk: str, count: int, size: str) -> Requirement:
    words = (disk, str(count * size_bytes(size)), f"{count} OSDs with {size} each")
    return Requirement(f"room on {disk}", (host,), shell.call(__file__, "room", *words))

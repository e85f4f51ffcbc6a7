"""Daemons of another build of Ceph, below a prefix next to the host's own packages.

A prefix is an installed build, unpacked packages, or a root file system with its own C library.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Optional

from pydantic import Field
from typing_extensions import Self, override

from cbt_crypto.cluster_overlays import ceph_build_on_host, ceph_running_on_host
from cbt_crypto.cluster_overlays.base import Overlay, Seen, Transition, Verdict, Watch
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.requirement import Requirement
from cbt_crypto.hosts.site import HostOutputs, HostScripts, Site

#: Those of the client programs that do IO by Ceph's libraries in every scenario.
_CLIENTS = ("fio", "rados")


class CephBuild(Overlay):
    """Deploy with the Ceph below a prefix, or with that of the host's packages."""

    name: ClassVar[str] = "ceph_build"

    prefix: Optional[str] = Field(
        None,
        pattern=r"^/[A-Za-z0-9_+.~/-]*[A-Za-z0-9_+.~-]$",
        description="directory with a build of Ceph, the same on all hosts; the host's own "
        "packages when absent",
    )
    version: Optional[str] = Field(
        None,
        pattern=r"^[0-9]+(\.[0-9]+)*(-.*)?$",
        description="what the version that daemons report must begin with, such as 20.2",
    )
    clients: bool = Field(
        False,
        description="client processes too get their librbd from the prefix, which must be built "
        "for the C library of the clients",
    )

    @property
    @override
    def replaces_client_libraries(self) -> bool:
        return self.clients and self.prefix is not None

    @override
    def requirements(self, site: Site) -> list[Requirement]:
        if self.prefix is None:
            return []
        script = shell.python(shell.program(ceph_build_on_host), self._asked(site))
        needs = [Requirement(f"build {self.prefix}", site.daemon_hosts, script, "ceph")]
        if self.clients:
            sentence = (
                f"ceph_build: fio does not start with the libraries below {self.prefix}; it has "
                "another C library, or leave `clients` out"
            )
            asked = {"prefix": self.prefix, "as_root": False, "libraries_alone": True}
            owners = shell.python(shell.program(ceph_build_on_host), asked)
            check = f'said=$(\n{owners}\n)\n[ "$said" = ok ] || {{ echo "$said"; exit; }}\n'
            check += f"{self._client_environment} fio --version >/dev/null 2>&1"
            check = f"(\n{check} && echo ok || echo {shlex.quote(sentence)}\n)"
            needs.append(Requirement("librbd of clients", site.clients, check))
        return needs

    def _asked(self, site: Site, **more: Any) -> dict[str, Any]:
        as_root = any(not osd.is_file for osd in site.osds)
        return {"prefix": self.prefix, "as_root": as_root, **more}

    @override
    def before_daemons(self, site: Site, introductions: HostOutputs) -> HostScripts:
        if self.prefix is None:
            return {}
        asked = self._asked(site, folder=self._folder(site))
        script = shell.python(shell.program(ceph_build_on_host), asked)
        return dict.fromkeys(site.daemon_hosts, script)

    @override
    def program(self, site: Site, name: str) -> str:
        if self.prefix is None or os.path.basename(name) not in ceph_build_on_host.PROGRAMS:
            return name
        return f"{self._folder(site)}/{os.path.basename(name)}"

    def _folder(self, site: Site) -> str:
        number = hashlib.sha256(str(self.prefix).encode()).hexdigest()[:8]
        return f"{site.tmp_dir}/build-{number}"

    @property
    def _client_environment(self) -> str:
        multiarch = "/$(uname -m)-linux-gnu"
        folders = [f"{top}/{lib}" for lib in ("lib", "lib64", f"lib{multiarch}")
                   for top in (self.prefix, f"{self.prefix}/usr")]  # fmt: skip
        paths = ":".join(f"{folder}{below}" for folder in folders for below in ("", "/ceph"))
        return f'env LD_LIBRARY_PATH="{paths}"'

    @override
    def wrap_client(self, host: str, command: str) -> str:
        own = f"{self._client_environment} " if self.replaces_client_libraries else ""
        return f"{own}{command}"

    @override
    def transition_to(self, new: Self) -> Transition:
        same = (self.prefix, self.clients) == (new.prefix, new.clients)
        return Transition.NONE if same else Transition.REBUILD

    @override
    def probe(self, site: Site) -> HostScripts:
        if not site.osds:
            return {}
        folder = os.path.dirname(site.osds[0].pid_file)
        look = shell.python(shell.program(ceph_running_on_host), folder)
        return dict.fromkeys(site.daemon_hosts, look)

    @override
    def judge(self, site: Site, before: HostOutputs, after: HostOutputs) -> Verdict:
        looks = [_parsed(site, outputs) for outputs in (before, after)]
        daemons = looks[-1]
        faults = [fault for look in looks for fault in self._faults(site, look)]
        versions = sorted({str(about.get("version")) for about in daemons.values()})
        folders = sorted({os.path.dirname(about.get("exe", "")) for about in daemons.values()})
        where = f"below {self.prefix}" if self.prefix else f"from {' and '.join(folders)}"
        reason = f"{len(daemons)} daemons run Ceph {' and '.join(versions)} {where}"
        reason += "; so do client processes" if self.replaces_client_libraries else ""
        return Verdict(not faults, faults[0] if faults else reason, {"daemons": daemons})

    @override
    def watch(self, site: Site) -> Mapping[str, Watch]:
        asked = {"programs": _CLIENTS, "tmp_dir": site.tmp_dir}
        watch = Watch(shell.program(ceph_running_on_host), asked)
        return {} if site.drives else dict.fromkeys(site.active_clients, watch)

    @override
    def judge_seen(self, site: Site, seen: Mapping[str, Sequence[Seen]]) -> Optional[str]:
        if not self.replaces_client_libraries:
            return None
        for host, paths in _mapped_by_clients(seen).items():
            if not paths:
                return f"no client process was seen on {host} have Ceph's libraries mapped"
            for path in paths:
                fault = self._fault_of_file(path)
                if fault:
                    return f"a client process on {host}: {fault}"
        return None

    @override
    def evidence_seen(self, site: Site, seen: Mapping[str, Sequence[Seen]]) -> Mapping[str, Any]:
        return {"client_libraries": _mapped_by_clients(seen)}

    def _faults(self, site: Site, daemons: Mapping[str, Any]) -> Iterator[str]:
        missing = {f"osd.{osd.id}" for osd in site.osds} - set(daemons)
        if missing:
            yield f"{min(missing)} did not say which build it is of"
        if not any(name.startswith("mon.") for name in daemons):
            yield "no monitor said which build it is of"
        for name, about in daemons.items():
            fault = self._fault(about)
            if fault:
                yield f"{name}: {fault}"
        versions = {about.get("version") for about in daemons.values()}
        if len(versions) > 1:
            yield f"daemons are of several versions: {', '.join(sorted(map(str, versions)))}"

    def _fault(self, about: Mapping[str, Any]) -> Optional[str]:
        if "error" in about:
            return f"its process could not be read: {about['error']}"
        if self.version is not None and not f"{about['version']}.".startswith(f"{self.version}."):
            return f"it is of Ceph {about['version']} and not {self.version}"
        files = [about["exe"], *about["mapped"]]
        if not about["mapped"]:
            return "nothing of Ceph is mapped in its process"
        return next(filter(None, map(self._fault_of_file, files)), None)

    def _fault_of_file(self, path: str) -> Optional[str]:
        if path.endswith(" (deleted)"):
            return f"{path.removesuffix(' (deleted)')} was replaced while it ran"
        if self.prefix is not None and not path.startswith(f"{self.prefix}/"):
            return f"it runs {path}, which is not below {self.prefix}"
        return None


def _mapped_by_clients(seen: Mapping[str, Sequence[Seen]]) -> dict[str, list[str]]:
    return {
        host: sorted(
            {path for look in looks if isinstance(look.value, list) for path in look.value}
        )
        for host, looks in seen.items()
    }


def _parsed(site: Site, outputs: HostOutputs) -> dict[str, Any]:
    """By daemon; a monitor or manager that several hosts speak for has each one's answer."""
    daemons: dict[str, Any] = {}
    for host, output in outputs.items():
        for line in filter(lambda line: line.startswith("{"), output.splitlines()):
            with contextlib.suppress(ValueError):
                daemons.update(site.heard(host, json.loads(line), daemons))
    return daemons

"""OSDs, and client processes, on some of their host's cores."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Optional, Union

from pydantic import Field, NonNegativeInt, model_validator
from typing_extensions import Self, override

from cbt_crypto.cluster_overlays import base, cpuset_on_host
from cbt_crypto.cluster_overlays.base import Finding, Overlay, Seen, Transition, Verdict, Watch
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.requirement import Requirement
from cbt_crypto.hosts.site import HostOutputs, HostScripts, Osd, Site


class CpuSet(Overlay):
    """Confine the OSDs of each host to whole cores, and keep client processes off them."""

    name: ClassVar[str] = "cpuset"
    if_absent: ClassVar[base.Absent] = {}
    always_beside: ClassVar[bool] = True
    needs_root: ClassVar[bool] = True
    change: ClassVar[Transition] = Transition.LIVE

    osd_cores: Optional[int] = Field(
        None,
        ge=1,
        description="whole cores for the OSDs of a host together, or for each with per_osd; "
        "OSDs are not confined when absent",
    )
    per_osd: bool = Field(False, description="give each OSD osd_cores of its own")
    smt: bool = Field(True, description="use all hyperthreads of these cores, not only the first")
    numa: Union[Literal["one", "spread"], NonNegativeInt] = Field(
        "one",
        description="take the cores of an OSD set from one NUMA node that has enough; or from "
        "all nodes in turn (with per_osd, place one OSD after another on the next node); or from "
        "the node of this number",
    )
    clients: Literal["all", "rest"] = Field(
        "all",
        description="cores that client processes may use: all, or the rest, which are those "
        "that the OSDs of the same host do not have",
    )
    client_cores: Optional[int] = Field(
        None, ge=1, description="use only this many whole cores of those, on each client host"
    )

    @model_validator(mode="after")
    def _something_to_do(self) -> Self:
        if self.osd_cores is None and self.client_cores is None:
            raise ValueError("name osd_cores, client_cores or both")
        if self.clients == "rest" and self.osd_cores is None:
            raise ValueError("clients: rest needs osd_cores, to know what the rest is")
        return self

    @override
    def requirements(self, site: Site) -> Sequence[Requirement]:
        return [
            Requirement("cores for cpuset", (host,), self._on_host("check", site, host))
            for host in self._hosts(site)
        ]

    @override
    def after_osds(self, site: Site) -> HostScripts:
        return {host: self._on_host("apply", site, host) for host in self._hosts(site)}

    @override
    def wrap_client(self, host: str, command: str) -> str:
        if not self._confines_clients:
            return command
        join = shlex.quote(shell.calling(__file__, 'join_clients "$0" "$@"'))
        return f'SUDO="$SUDO" sh -c {join} {shlex.quote(_base(host))} {command}'

    @override
    def probe(self, site: Site) -> HostScripts:
        return {host: self._on_host("show", site, host) for host in self._hosts(site)}

    @override
    def watch(self, site: Site) -> Mapping[str, Watch]:
        source = shell.program(cpuset_on_host)
        return {host: Watch(source, self._asked("show", site, host)) for host in self._hosts(site)}

    @override
    def judge_seen(self, site: Site, seen: Mapping[str, Sequence[Seen]]) -> Optional[str]:
        for host, looks in seen.items():
            for look in looks:
                for name, cpus in look.value["osds"].items():
                    # Where Ceph pins an OSD to another node, what is expected changes with it.
                    expected = looks[0].value["osds"].get(name, cpus)["expected"]
                    wrong = [allowed for allowed in cpus["found"] if allowed != expected]
                    if wrong:
                        return (
                            f"{name} on {host}: threads could use CPUs {wrong[0]} and not "
                            f"{expected} for a part of the cell"
                        )
                clients = look.value.get("clients", {})
                if clients.get("expected") != clients.get("in_force"):
                    return f"client processes on {host} had other CPUs for a part of the cell"
        return None

    @override
    def judge(self, site: Site, before: HostOutputs, after: HostOutputs) -> Verdict:
        looks = [_facts(outputs) for outputs in (before, after)]
        findings = {osd: self._osd_finding(osd, looks) for osd in site.osds}
        claim = "may use every CPU"
        if self.is_present and self.osd_cores is not None:
            claim = "run on their cores"
        elif any("numa_node" in finding.evidence for finding in findings.values()):
            claim = "may use every CPU, or all of the NUMA node that Ceph chose for them"
        verdict = base.judge_all(self, findings, claim)
        if not self._confines_clients:
            return verdict
        hosts = {host: looks[1].get(host, {}).get("clients") for host in site.clients}
        faults = [h for look in looks for h in site.clients if not _clients_confined(look, h)]
        reason = f"{verdict.reason}; client processes have "
        reason += f"no such cores on {faults[0]}" if faults else "theirs"
        evidence = {**verdict.evidence, "clients": hosts}
        return Verdict(verdict.proved and not faults, reason, evidence)

    def _osd_finding(self, osd: Osd, looks: Sequence[Mapping[str, Any]]) -> Finding:
        name = f"osd.{osd.id}"
        faults = [self._osd_fault(look.get(osd.host), name) for look in looks]
        before, of_osd = (look.get(osd.host, {"osds": {}})["osds"].get(name, {}) for look in looks)
        if not any(faults) and before["expected"] != of_osd["expected"]:
            faults.append(
                f"Ceph moved it from CPUs {before['expected']} to {of_osd['expected']} in the "
                "middle of the cell"
            )
        return Finding(next((fault for fault in faults if fault), None), of_osd)

    def _osd_fault(self, facts: Optional[Mapping[str, Any]], osd: str) -> Optional[str]:
        if not facts or osd not in facts["osds"]:
            return "its host did not say on which CPUs it runs"
        expected = facts["osds"][osd]["expected"]
        threads: Mapping[str, int] = facts["osds"][osd]["threads"]
        if not threads:
            return "it is not running"
        wrong = {cpus: count for cpus, count in threads.items() if cpus != expected}
        if not wrong:
            return None
        cpus, count = next(iter(wrong.items()))
        return f"{count} of {sum(threads.values())} threads may use CPUs {cpus} and not {expected}"

    @override
    def take_down(self, site: Site) -> HostScripts:
        hosts = dict.fromkeys((*site.osd_hosts, *site.clients))
        return {host: shell.call(__file__, "remove_groups", _group(site, host)) for host in hosts}

    @property
    def _confines_clients(self) -> bool:
        return self.clients == "rest" or self.client_cores is not None

    def _hosts(self, site: Site) -> tuple[str, ...]:
        clients = site.clients if self._confines_clients else ()
        return tuple(dict.fromkeys((*site.osd_hosts, *clients)))

    def _on_host(self, action: str, site: Site, host: str) -> str:
        return shell.python(shell.program(cpuset_on_host), self._asked(action, site, host))

    def _asked(self, action: str, site: Site, host: str) -> dict[str, Any]:
        return {
            "action": action,
            "group": _group(site, host),
            "options": self.model_dump() if self.is_present else None,
            "osds": {
                f"osd.{osd.id}": {"pid_file": osd.pid_file, "socket": osd.admin_socket}
                for osd in site.osds_of(host)
            },
            "client": host in site.clients,
        }


def _base(host: str) -> str:
    """How the name of our cgroup begins; of the host, as several may share a kernel."""
    return f"cbt-crypto-{host}"


def _group(site: Site, host: str) -> str:
    """The cgroup of this campaign: no other on the host has its `tmp_dir`."""
    return f"{_base(host)}.{hashlib.sha256(site.tmp_dir.encode()).hexdigest()[:8]}"


def _facts(outputs: HostOutputs) -> dict[str, Any]:
    """Host -> what `show` printed; hosts with other output are left out."""
    facts = {}
    for host, output in outputs.items():
        try:
            facts[host] = {"osds": {}, **json.loads(output)}
        except (ValueError, TypeError):
            continue
    return facts


def _clients_confined(look: Mapping[str, Any], host: str) -> bool:
    clients = look.get(host, {}).get("clients")
    return bool(clients) and clients["expected"] == clients["in_force"]

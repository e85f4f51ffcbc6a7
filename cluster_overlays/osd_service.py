"""What systemd's unit and cephadm's container give an OSD: its environment and its limits."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Optional

from pydantic import Field
from typing_extensions import Self, override

from cbt_crypto.cluster_overlays import base, ceph_running_on_host
from cbt_crypto.cluster_overlays.base import Absent, Finding, Overlay, Transition, Verdict
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.requirement import Requirement
from cbt_crypto.hosts.site import HostOutputs, HostScripts, Osd, Site

#: tcmalloc's variable, which packages set in /etc/default/ceph and cephadm in its containers.
CACHE = "TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES"
#: The value there.
CACHE_BYTES = 128 << 20
#: LimitNOFILE of ceph-osd@.service.
OPEN_FILES = 1 << 20

# The kernel lets nobody but a capable root raise a limit, and containers often lack that: then as
# far as it goes. An overlay that the file names has been refused before it comes to that.
_START = """
export PATH="$PATH:/usr/sbin:/sbin"
prlimit --pid $$ --nofile={files}:{files} 2> /dev/null || ulimit -n "$(ulimit -Hn)"
{command}
""".strip()

_CHECK = "prlimit --nofile={files}:{files} true 2> /dev/null && echo ok || echo {sentence}"


class OsdService(Overlay):
    """Start OSDs as a package's service does, or with another environment and other limits."""

    name: ClassVar[str] = "osd_service"
    always_beside: ClassVar[bool] = True
    if_absent: ClassVar[Absent] = {"tcmalloc_cache": CACHE_BYTES, "open_files": OPEN_FILES}

    tcmalloc_cache: int = Field(
        CACHE_BYTES, ge=1 << 20, le=1 << 40,
        description=f"bytes of {CACHE}: freed memory that all threads of an OSD keep together",
    )  # fmt: skip
    open_files: int = Field(
        OPEN_FILES, ge=1024, le=1 << 30, description="files that an OSD may have open"
    )

    @override
    def requirements(self, site: Site) -> Sequence[Requirement]:
        sentence = (
            f"osd_service: an OSD cannot get {self.open_files} open files there; leave the "
            "overlay out, or raise the limit of whoever starts it"
        )
        needs = []
        for host in site.osd_hosts:
            sudo = "" if all(osd.is_file for osd in site.osds_of(host)) else "$SUDO "
            check = _CHECK.format(files=self.open_files, sentence=shlex.quote(sentence))
            needs.append(Requirement("open files of OSDs", (host,), sudo + check))
        return needs

    @override
    def wrap_osd(self, osd: Osd, command: str) -> str:
        # One shell, root's where the OSD is: sudo would not hand an environment on.
        started = _START.format(files=self.open_files, command=command)
        variables = f'CBT_CRYPTO_MARK="${{CBT_CRYPTO_MARK-}}" {CACHE}={self.tcmalloc_cache}'
        if osd.is_file:
            return f'env {variables} SUDO="${{SUDO-}}" sh -euc {shlex.quote(started)}'
        return f"${{SUDO-}} env {variables} SUDO= sh -euc {shlex.quote(started)}"

    @override
    def transition_to(self, new: Self) -> Transition:
        alike = (self.tcmalloc_cache, self.open_files) == (new.tcmalloc_cache, new.open_files)
        return Transition.NONE if alike else Transition.RESTART

    @override
    def probe(self, site: Site) -> HostScripts:
        name = ceph_running_on_host.read_settings.__name__
        start = f"print(json.dumps({name}(json.loads(sys.argv[1]))))"
        source = shell.definitions(ceph_running_on_host) + start
        files = {h: {f"osd.{o.id}": o.pid_file for o in site.osds_of(h)} for h in site.osd_hosts}
        return {host: shell.python(source, of_host) for host, of_host in files.items()}

    @override
    def judge(self, site: Site, before: HostOutputs, after: HostOutputs) -> Verdict:
        looks = [base.storage_of(site, outputs) for outputs in (before, after)]
        findings = {osd: self._finding(osd, [look.get(f"osd.{osd.id}") for look in looks])
                    for osd in site.osds}  # fmt: skip
        if any(osd.is_existing for osd in site.osds):
            return base.judge_all(self, findings, "run as they were deployed")
        verdict = base.judge_all(self, findings, "have the environment and limits of a service")
        few = {facts["open_files"] for facts in verdict.evidence.values() if "open_files" in facts}
        few -= {str(self.open_files)}
        users = {str(facts["user"]) for facts in verdict.evidence.values() if "user" in facts}
        note = f", and run as {', '.join(sorted(users))}" if users - {"root"} else ""
        if few:
            note += f", but only {min(few)} open files, as their host allows no more"
        return Verdict(verdict.proved, verdict.reason + note, verdict.evidence)

    def _finding(self, osd: Osd, looks: Sequence[Optional[Mapping[str, Any]]]) -> Finding:
        faults = () if osd.is_existing else map(self._fault, looks)
        return Finding(next(filter(None, faults), None), looks[-1] or {})

    def _fault(self, facts: Optional[Mapping[str, Any]]) -> Optional[str]:
        if not facts:
            return "its host did not say how it was started"
        cache = facts["environment"].get(CACHE)
        if cache != str(self.tcmalloc_cache):
            return f"it runs with {CACHE}={cache or ''} and not {self.tcmalloc_cache}"
        for name, value in facts["environment"].items():
            if value and name != CACHE and self.is_present:
                return f"it runs with {name}={value}, which a service does not have"
        if facts["open_files"] == str(self.open_files):
            return None
        is_all = facts["open_files"] == facts["open_files_allowed"]
        if not self.is_present and is_all and int(facts["open_files"]) < self.open_files:
            return None
        return f"it may open {facts['open_files']} files and not {self.open_files}"

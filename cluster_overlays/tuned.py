"""A TuneD profile on hosts of some roles; the profile they had before comes back afterwards."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field
from typing_extensions import override

from cbt_crypto.cluster_overlays.base import Absent, Overlay, Transition, Verdict
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.requirement import Requirement
from cbt_crypto.hosts.site import HostOutputs, HostScripts, Site

Role = Literal["head", "clients", "osds", "mons", "mgrs"]

#: What may stand there.
_ARGUMENTS = re.compile(r"off|auto_profile|profile [A-Za-z0-9_.+-]+( [A-Za-z0-9_.+-]+)*")

_ACTIVE = "Current active profile: "
_VERIFIED = "Verification succeeded"
_FAILED = "verify: failed: "
#: Kernel arguments take a reboot, which no campaign does: such a difference is only reported.
_KERNEL_ARGUMENTS = "plugin_bootloader"


class Tuned(Overlay):
    """Activate a TuneD profile."""

    name: ClassVar[str] = "tuned"
    if_absent: ClassVar[Absent] = {"profile": "", "roles": ()}
    needs_root: ClassVar[bool] = True
    change: ClassVar[Transition] = Transition.LIVE
    is_for_drives: ClassVar[bool] = True

    profile: str = Field(
        pattern=r"^[A-Za-z0-9_.+-]+( [A-Za-z0-9_.+-]+)*$",
        description="a profile of `tuned-adm list`; several, separated by spaces, are merged",
    )
    roles: tuple[Role, ...] = Field(
        ("osds", "clients"),
        min_length=1,
        description="the profile is activated on hosts with these roles",
    )

    @override
    def requirements(self, site: Site) -> Sequence[Requirement]:
        hosts = site.role(*self.roles)
        if not hosts:
            return ()
        script = shell.call(__file__, "check_profiles", self.profile)
        return [Requirement(f"TuneD profile {self.profile}", hosts, script)]

    @override
    def after_osds(self, site: Site) -> HostScripts:
        apply = {
            host: shell.call(__file__, "activate", self.profile, _memory(site, host))
            for host in site.role(*self.roles)
        }
        return {**self.take_down(site), **apply}

    @override
    def way_back(self, site: Site) -> HostScripts:
        return {
            host: shell.call(__file__, "show_way_back", _memory(site, host))
            for host in site.role(*self.roles)
        }

    @override
    def put_back(self, site: Site, way_back: HostOutputs) -> HostScripts:
        before = {host: text.strip() for host, text in way_back.items()}
        return {
            host: shell.call(
                __file__, "keep_way_back", self.profile, _memory(site, host),
                before[host] if _ARGUMENTS.fullmatch(before.get(host, "")) else "",
            )
            for host in site.role(*self.roles)
        }  # fmt: skip

    @override
    def take_down(self, site: Site) -> HostScripts:
        return {host: shell.call(__file__, "restore", _memory(site, host)) for host in site.hosts}

    @override
    def probe(self, site: Site) -> HostScripts:
        scripts = {
            host: f"[ ! -e {shlex.quote(_memory(site, host))} ] || echo not restored\n"
            "cat /etc/tuned/active_profile 2> /dev/null || :"
            for host in site.hosts
        }
        return {**scripts, **dict.fromkeys(site.role(*self.roles), shell.call(__file__, "probe"))}

    @override
    def judge(self, site: Site, before: HostOutputs, after: HostOutputs) -> Verdict:
        named = site.role(*self.roles)
        faults = ["no host here has its roles"] if self.is_present and not named else []
        for look in (before, after):
            for host in site.hosts:
                output = look.get(host)
                if output is None:
                    faults.append(f"{host} did not answer")
                elif host in named:
                    faults += self._faults(host, output.splitlines())
                elif "not restored" in output.splitlines():
                    faults.append(f"{host} has not got its own profile back")
        reason = faults[0] if faults else self._claim(named, after)
        return Verdict(not faults, reason, dict(after))

    def _faults(self, host: str, lines: Sequence[str]) -> list[str]:
        active = [line[len(_ACTIVE) :] for line in lines if line.startswith(_ACTIVE)]
        if active != [self.profile]:
            return [f"{host} runs {active[0] if active else 'no TuneD profile'}"]
        if any(line.startswith(_VERIFIED) for line in lines):
            return []
        failed = [line for line in lines if _FAILED in line]
        grave = [line.partition(_FAILED)[2] for line in failed if _KERNEL_ARGUMENTS not in line]
        if grave or not failed:
            difference = grave[0] if grave else "see /var/log/tuned/tuned.log there"
            return [f"{host} differs from its TuneD profile: {difference}"]
        return []

    def _claim(self, named: Sequence[str], outputs: HostOutputs) -> str:
        if not named:
            return "no TuneD profile of ours is in force"
        claim = f"{self.profile} is active on {len(named)} of {len(named)} hosts"
        if any(_KERNEL_ARGUMENTS in outputs[host] for host in named):
            claim += ", without the kernel arguments that it would set at the next boot"
        return claim


def _memory(site: Site, host: str) -> str:
    """The file with the way back; its presence says that the host's own profile is not in force."""
    return f"{site.tmp_dir}/tuned.{host}"

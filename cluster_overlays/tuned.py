"""A TuneD profile on hosts of some roles; the profile they had before comes back afterwards."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field
from typing_extensions import Self, override

from cbt_crypto.cluster_overlays.base import Overlay, Transition, Verdict
from cbt_crypto.hosts.requirement import Requirement
from cbt_crypto.hosts.site import HostOutputs, HostScripts, Site

Role = Literal["head", "clients", "osds", "mons", "mgrs"]

# $1 is the profile. `tuned-adm active` tells whether the daemon runs only in its words.
_CHECK = """
if ! command -v tuned-adm > /dev/null; then
    echo "tuned-adm is missing; install tuned"
elif $SUDO tuned-adm active 2>&1 | grep -qE 'Cannot talk to|not running'; then
    echo "TuneD is not running; start it, e.g. with: systemctl start tuned"
else
    for profile in $1; do
        $SUDO tuned-adm profile_info "$profile" > /dev/null 2>&1 ||
            { echo "TuneD has no profile $profile; 'tuned-adm list' shows those it has"; exit 0; }
    done
    echo ok
fi
""".strip()

_ACTIVE_NOW = "$($SUDO tuned-adm active | sed -n 's/^Current active profile: //p')"

_BEFORE = f"""
before={_ACTIVE_NOW}
if [ -z "$before" ]; then before=off
elif grep -qx auto /etc/tuned/profile_mode 2> /dev/null; then before=auto_profile
else before="profile $before"; fi
""".strip()

# $1 is the profile, $2 the file that keeps what to return to.
_APPLY = f"""
if [ ! -e "$2" ]; then
    {_BEFORE}
    echo "$before" > "$2.new"
    mv "$2.new" "$2"
fi
$SUDO tuned-adm profile $1
""".strip()

# $1 is that file.
_WAY_BACK = f"""
if [ -e "$1" ]; then cat "$1"; else
    {_BEFORE}
    echo "$before"
fi
""".strip()

# $1 is the profile, $2 that file, $3 what was in it, or nothing. A profile that is not in force
# any more is somebody else's choice since.
_PUT_BACK = f"""
if [ ! -e "$2" ] && command -v tuned-adm > /dev/null && [ "{_ACTIVE_NOW}" = "$1" ]; then
    if [ -n "$3" ]; then echo "$3" > "$2"; else
        echo "the TuneD profile $1 is in force, and nobody knows which was before;" \\
            "if it is not yours: tuned-adm list, tuned-adm profile NAME"
    fi
fi
""".strip()

#: What may stand there.
_ARGUMENTS = re.compile(r"off|auto_profile|profile [A-Za-z0-9_.+-]+( [A-Za-z0-9_.+-]+)*")

# $1 is that file: it holds the arguments for tuned-adm.
_RESTORE = """
if [ -e "$1" ]; then
    $SUDO tuned-adm $(cat "$1")
    rm -f "$1"
fi
""".strip()

# tuned-adm says only that something differs; what does is in the daemon's log.
_PROBE = """
$SUDO tuned-adm active || :
if ! $SUDO tuned-adm verify --ignore-missing; then
    $SUDO awk '/verifying profile/ { n = 0 } /verify: failed: / { failed[n++] = $0 }
        END { for (i = 0; i < n; i++) print failed[i] }' /var/log/tuned/tuned.log
fi
""".strip()

_ACTIVE = "Current active profile: "
_VERIFIED = "Verification succeeded"
_FAILED = "verify: failed: "
#: Kernel arguments take a reboot, which no campaign does: such a difference is only reported.
_KERNEL_ARGUMENTS = "plugin_bootloader"


class Tuned(Overlay):
    """Activate a TuneD profile."""

    name: ClassVar[str] = "tuned"
    needs_root: ClassVar[bool] = True
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

    @classmethod
    @override
    def absent(cls) -> Self:
        return cls.make_absent(profile="", roles=())

    @override
    def requirements(self, site: Site) -> Sequence[Requirement]:
        hosts = self._hosts(site)
        if not hosts:
            return ()
        return [Requirement(f"TuneD profile {self.profile}", hosts, _call(_CHECK, self.profile))]

    @override
    def after_osds(self, site: Site) -> HostScripts:
        apply = {
            host: _call(_APPLY, self.profile, _memory(site, host)) for host in self._hosts(site)
        }
        return {**self.take_down(site), **apply}

    @override
    def way_back(self, site: Site) -> HostScripts:
        return {host: _call(_WAY_BACK, _memory(site, host)) for host in self._hosts(site)}

    @override
    def put_back(self, site: Site, way_back: HostOutputs) -> HostScripts:
        before = {host: text.strip() for host, text in way_back.items()}
        return {
            host: _call(
                _PUT_BACK, self.profile, _memory(site, host),
                before[host] if _ARGUMENTS.fullmatch(before.get(host, "")) else "",
            )
            for host in self._hosts(site)
        }  # fmt: skip

    @override
    def take_down(self, site: Site) -> HostScripts:
        return {host: _call(_RESTORE, _memory(site, host)) for host in site.hosts}

    @override
    def probe(self, site: Site) -> HostScripts:
        scripts = {
            host: f"[ ! -e {shlex.quote(_memory(site, host))} ] || echo not restored\n"
            "cat /etc/tuned/active_profile 2> /dev/null || :"
            for host in site.hosts
        }
        return {**scripts, **dict.fromkeys(self._hosts(site), _PROBE)}

    @override
    def judge(self, site: Site, before: HostOutputs, after: HostOutputs) -> Verdict:
        named = self._hosts(site)
        faults = []
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

    @override
    def transition_to(self, new: Self) -> Transition:
        return Transition.NONE if self == new else Transition.LIVE

    def _hosts(self, site: Site) -> tuple[str, ...]:
        return tuple(dict.fromkeys(host for role in self.roles for host in site.role(role)))


def _memory(site: Site, host: str) -> str:
    """The file with the way back; its presence says that the host's own profile is not in force."""
    return f"{site.tmp_dir}/tuned.{host}"


def _call(script: str, *arguments: str) -> str:
    return f"set -- {' '.join(shlex.quote(argument) for argument in arguments)}\n{script}"

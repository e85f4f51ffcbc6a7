"""What `check` looks at on a host beyond tools: who we are there, clock, space, network, load.

Each fact is a Requirement that also shows what it found. Some only warn: a figure taken with
`powersave` is a true figure, and people may have their reasons.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from cbt_crypto.hosts.requirement import Fact
from cbt_crypto.hosts.site import Site
from cbt_crypto.units import counted

#: Seconds by which clocks may differ without a warning, and without an error.
CLOCK_WARN_S, CLOCK_LIMIT_S = 0.1, 1.0
#: Processes of this load, in CPUs, are worth a word.
_BUSY_SHARE = 0.25


@dataclass(frozen=True)
class Login(Fact):
    """The user we are on the host; `user` is who we are to be, None for whoever it is."""

    user: Optional[str] = None

    def judge(self, output: str) -> Optional[str]:
        """Another user's files would be in the way."""
        login = output.strip()
        if self.user is None or login == self.user:
            return None
        return f"ssh logs in as {login or 'nobody'} and not as {self.user}; mend ~/.ssh/config"


@dataclass(frozen=True)
class Space(Fact):
    """Free bytes for tmp_dir; `needed` of them are to be there."""

    needed: int = 0

    def shown(self, output: str) -> str:
        """Free space, as `12.3 GiB`; `?` when the host did not say."""
        return f"{int(output) / 2**30:.1f} GiB" if output.strip().isdigit() else "?"

    def judge(self, output: str) -> Optional[str]:
        """Too little ends a campaign in its middle."""
        if not output.strip().isdigit() or int(output) >= self.needed:
            return None
        return (
            f"{self.shown(output)} are free for tmp_dir and the campaign needs about "
            f"{self.needed / 2**30:.1f} GiB; make room, or name another tmp_dir"
        )


@dataclass(frozen=True)
class Governor(Fact):
    """The CPUs' frequency governor."""

    def shown(self, output: str) -> str:
        """Its name, `none` where the machine has none."""
        return output.strip().replace("\n", "+") or "none"

    def advice(self, output: str) -> Optional[str]:
        """Anything but performance makes figures depend on what ran before."""
        if self.shown(output) in ("none", "performance"):
            return None
        return (
            f"CPU governor is {self.shown(output)}, so figures depend on what ran before; "
            "cpupower frequency-set -g performance"
        )


@dataclass(frozen=True)
class LoadAverage(Fact):
    """`load CPUs` and, after it, foreign processes of kinds that would be in the way."""

    def shown(self, output: str) -> str:
        """Load of the last minute over processors, as `0.3/64`."""
        words = output.split()
        return f"{words[0]}/{words[1]}" if len(words) > 1 else "?"

    def advice(self, output: str) -> Optional[str]:
        """Whatever else runs is measured too."""
        words = output.split()
        others = sorted(set(words[2:]))
        if others:
            return (
                f"{', '.join(others)} of somebody else runs there; unless it is of the cluster "
                "that use_existing measures, end it, or expect its traces"
            )
        try:
            load, cpus = float(words[0]), int(words[1])
        except (IndexError, ValueError):
            return None
        if load <= max(0.5, cpus * _BUSY_SHARE):
            return None
        many = counted(cpus, "CPU")
        return f"load is {load:g} on {many} before anything was started; end what runs there"


@dataclass(frozen=True)
class NetworkFact(Fact):
    """`interface MTU speed`, the speed in Mbit/s."""

    def shown(self, output: str) -> str:
        """Interface, MTU and link speed, as `eth0 9000 25G`."""
        words = output.split()
        if len(words) < 2:
            return "?"
        speed = int(words[2]) if len(words) > 2 and words[2].isdigit() else 0
        return f"{words[0]} {words[1]}" + (f" {speed / 1000:g}G" if speed else "")


@dataclass(frozen=True)
class Version(Fact):
    """A program's version: the first word of its output that looks like one."""

    def shown(self, output: str) -> str:
        """The version alone, as `18.2.7`."""
        match = re.search(r"\d+\.\d+[\w.]*", output)
        return match.group() if match else "?"


def facts(site: Site, user: Optional[str], data_bytes_per_osd: int) -> list[Fact]:
    """The facts that the check shows of every host, and room for the data of OSDs on files."""
    hosts = site.hosts
    return [
        Login("user", hosts, "id -un", "user", user=user),
        Fact("sudo", hosts, _SUDO, "sudo"),
        *(_space(site, host, data_bytes_per_osd) for host in hosts),
        NetworkFact("network", hosts, _NETWORK, "network"),
        Governor("governor", hosts, _GOVERNOR, "governor"),
        Fact("SMT", hosts, "cat /sys/devices/system/cpu/smt/control", "SMT"),
        LoadAverage("load", hosts, _LOAD, "load"),
    ]


def version_facts(programs: Mapping[str, tuple[str, Sequence[str]]]) -> list[Fact]:
    """Column -> (program, hosts) as facts."""
    return [
        Version(
            f"version of {program}", tuple(hosts), f"{shlex.quote(program)} --version 2>&1", column
        )
        for column, (program, hosts) in programs.items()
    ]


def _space(site: Site, host: str, data_bytes_per_osd: int) -> Space:
    files = sum(osd.is_file for osd in site.osds_of(host))
    path = shlex.quote(site.tmp_dir)
    script = f"""\
parent={path}; while [ ! -e "$parent" ]; do parent=$(dirname "$parent"); done
echo $(( $(df -Pk "$parent" | awk 'NR == 2 {{ print $4 }}') * 1024 ))"""
    return Space("space", (host,), script, "space", needed=(1 << 29) + files * data_bytes_per_osd)


_SUDO = """\
if [ "$(id -u)" = 0 ]; then echo root; elif [ -n "$SUDO" ]; then echo yes; else echo none; fi"""

# The interface by which we came; for this machine itself, the first that has an address.
_NETWORK = r"""
address=$(echo "${SSH_CONNECTION:-}" | cut -d' ' -f3)
name=$(ip -o -4 addr show scope global | awk -v a="$address" '
    { split($4, parts, "/"); if (first == "") first = $2; if (parts[1] == a) found = $2 }
    END { print found != "" ? found : first }')
[ -n "$name" ] || exit 0
echo "$name" "$(cat "/sys/class/net/$name/mtu")" "$(cat "/sys/class/net/$name/speed" 2>/dev/null)"
"""

_GOVERNOR = "cat /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor 2>/dev/null | sort -u"

# `mark` is the campaign's; a survey has it.
_LOAD = r"""
echo "$(cut -d' ' -f1 /proc/loadavg) $(getconf _NPROCESSORS_ONLN)"
for comm in /proc/[0-9]*/comm; do
    read -r name < "$comm" || continue
    case $name in ceph-osd|ceph-mon|fio|etcd) ;; *) continue ;; esac
    $SUDO grep -qzxF "CBT_CRYPTO_MARK=$mark" "${comm%comm}environ" || echo "$name"
done 2>/dev/null"""

"""Every host asked everything at once, and what came of it: findings by host and column."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from cbt_crypto.archive.files import one_line
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.remote import NONSENSE, HostResult, Remote, clock_bounds, clock_difference
from cbt_crypto.hosts.requirement import CLUSTER, Fact, Requirement
from cbt_crypto.hosts.site import Site
from cbt_crypto.units import counted, grouped

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
        return f"ssh logs in as {login or 'nobody'} and not as {self.user}; fix ~/.ssh/config"


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
                "that use_existing measures, end it, or expect it to show in the figures"
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
        match = re.search(r"(?<!\d)\d+\.\d+[\w.]*", output)
        return match.group() if match else "?"


def facts(site: Site, user: Optional[str], data_bytes_per_osd: int) -> list[Fact]:
    """The facts that the check shows of every host, and room for the data of OSDs on files."""
    hosts = site.hosts
    load = shell.calling(shell.__file__, shell.call(__file__, "load"))
    return [
        Login("user", hosts, "id -un", "user", user=user),
        Fact("sudo", hosts, shell.call(__file__, "root_by"), "sudo"),
        *(_space(site, host, data_bytes_per_osd) for host in hosts),
        NetworkFact("network", hosts, shell.call(__file__, "network"), "network"),
        Governor("governor", hosts, shell.call(__file__, "governors"), "governor"),
        Fact("SMT", hosts, "cat /sys/devices/system/cpu/smt/control", "SMT"),
        LoadAverage("load", hosts, load, "load"),
    ]


def version_facts(programs: Mapping[str, tuple[str, Sequence[str]]]) -> list[Fact]:
    """Column -> (program, hosts) as facts."""
    versions: list[Fact] = []
    for column, (program, hosts) in programs.items():
        ask = f"{shlex.quote(program)} --version 2>&1"
        versions.append(Version(f"version of {program}", tuple(hosts), ask, column))
    return versions


def _space(site: Site, host: str, data_bytes_per_osd: int) -> Space:
    files = sum(osd.is_file for osd in site.osds_of(host))
    script = shell.call(__file__, "room_for", site.tmp_dir)
    return Space("space", (host,), script, "space", needed=(1 << 29) + files * data_bytes_per_osd)


_BEGIN = "@cbt-crypto-requirement"
#: Characters of an answer that cannot be read.
_SHOWN = 80
#: And of anything that is found: a host may say as much as it likes, which nobody reads.
_LONGEST = 5000
_CLOCK = "@cbt-crypto-clock"
_TIMEOUT_S = 120


@dataclass(frozen=True)
class HostFinding:
    """One thing found of a host, or of the file: no `column`. `error`, `warning`: what to do."""

    host: str
    column: str
    shown: str
    error: Optional[str] = None
    warning: Optional[str] = None

    def __post_init__(self) -> None:
        for name, text in vars(self).items():
            told = text if text is None else one_line(text[:_LONGEST])
            object.__setattr__(self, name, told)


def survey(remote: Remote, hosts: Sequence[str], needs: Sequence[Requirement]) -> list[HostFinding]:
    """Ask every host in one call; one that cannot be reached is a finding too."""
    by_host = _by_host(needs)
    scripts = {host: _script(by_host.get(host, [])) for host in hosts}
    sent = time.time()
    longest_s = max((sum(n.takes_s for _, n in of) for of in by_host.values()), default=0)
    limit_s = _TIMEOUT_S + longest_s
    results = remote.attempt(scripts, limit_s, "look at the host")
    received = time.time()
    findings: list[HostFinding] = []
    for host, result in results.items():
        findings.append(_reached(host, result, limit_s))
        if result.status == 0:
            findings += _findings(host, by_host.get(host, []), parts_of(result.stdout))
    reached = {host: result.stdout for host, result in results.items() if result.status == 0}
    clocks = _clocks(reached, sent, received)
    return [*findings, *clocks, *_differences(findings), *_clusters(findings)]


def parts_of(text: str) -> dict[str, str]:
    """Number of the requirement -> what its script printed."""
    return {
        line.removeprefix(_BEGIN).strip(): printed.partition(_CLOCK)[0].strip()
        for line, printed in shell.sections(text, _BEGIN)
    }


def _by_host(needs: Sequence[Requirement]) -> dict[str, list[tuple[int, Requirement]]]:
    """Host -> what is asked of it, with its numbers in `needs`: fast for a thousand hosts."""
    return grouped(
        (host, (index, need))
        for index, need in enumerate(needs)
        for host in dict.fromkeys(need.hosts)
    )


def _script(needs: Iterable[tuple[int, Requirement]]) -> str:
    # A campaign with this mark may be ending here now, and would end this too.
    unmark = "mark=$CBT_CRYPTO_MARK; unset CBT_CRYPTO_MARK\n"
    clock = f'echo; echo {_CLOCK} "$(date +%s.%N)"\n'
    return unmark + clock + "".join(
        shell.section(f"{_BEGIN} {index}", need.script).rstrip() + " 2>&1 || :\n"
        for index, need in needs
    ) + clock  # fmt: skip


def _reached(host: str, result: HostResult, limit_s: int) -> HostFinding:
    if result.status == 0:
        return HostFinding(host, "ssh", "ok")
    if result.timed_out:
        return HostFinding(host, "ssh", "no", f"does not answer within {limit_s} s; look at it")
    error = f"cannot be reached{_why(result)}; ssh to it must work without a password"
    if result.status is not None:
        error = f"cannot be read{_why(result)}; fix its shell or PATH"
    return HostFinding(host, "ssh", "no", error)


def _why(result: HostResult) -> str:
    lines = [line for line in result.stderr.splitlines() if "exited with exit code" not in line]
    return f": {lines[-1].strip()}" if lines else ""


def _findings(
    host: str, needs: Iterable[tuple[int, Requirement]], parts: Mapping[str, str]
) -> list[HostFinding]:
    findings = []
    for index, need in needs:
        # What a host did not say anything about is judged too, and found wanting.
        output = parts.get(str(index), "")
        try:
            error = need.judge(output)
            shown, warning = "no" if error else "ok", None
            if isinstance(need, Fact):
                shown, warning = need.shown(output), need.advice(output)
        except NONSENSE:
            shown, warning = "no", None
            error = (
                f"{need.name}: gave an answer that cannot be understood: {output[:_SHOWN]}; "
                "see what runs there"
            )
        findings.append(HostFinding(host, need.column, shown, error, warning))
    return findings


def _clocks(reached: Mapping[str, str], sent: float, received: float) -> list[HostFinding]:
    """Offsets against the first host, the head: monitors and windows go by its clock."""
    bounds = {host: _bounds(text, sent, received) for host, text in reached.items()}
    head = next((clock for clock in bounds.values() if clock is not None), None)
    return [
        _clock(host, None if clock is None or head is None else clock_difference(clock, head))
        for host, clock in bounds.items()
    ]


def _bounds(text: str, sent: float, received: float) -> Optional[tuple[float, float]]:
    lines = [line.split() for line in text.splitlines() if line.startswith(_CLOCK)]
    try:
        return clock_bounds(float(lines[0][1]), float(lines[-1][1]), sent, received)
    except (IndexError, ValueError):
        return None


def _clock(host: str, offset: Optional[float]) -> HostFinding:
    if offset is None:
        warning = "its clock cannot be read; see what date +%s.%N prints there"
        return HostFinding(host, "clock", "?", warning=warning)
    shown = f"{offset:+.1f} s" if abs(offset) >= CLOCK_WARN_S else "ok"
    sentence = (
        f"its clock is {abs(offset):.1f} s {'ahead of' if offset > 0 else 'behind'} the head's; "
        "start chrony or systemd-timesyncd on both"
    )
    if abs(offset) > CLOCK_LIMIT_S:
        return HostFinding(host, "clock", shown, error=sentence)
    return HostFinding(host, "clock", shown, warning=sentence if shown != "ok" else None)


def _differences(findings: Sequence[HostFinding]) -> list[HostFinding]:
    """Hosts whose Ceph, fio or MTU is another than that of the first host that has one."""
    differing = []
    for column, what in (("ceph", "Ceph"), ("fio", "fio"), ("network", "MTU")):
        values = {f.host: _compared(f) for f in findings if f.column == column}
        known = {host: value for host, value in values.items() if value}
        first = next(iter(known), None)
        for host, value in known.items():
            if first is not None and value != known[first]:
                sentence = f"{what} is {value} and {known[first]} on {first}; make them the same"
                differing.append(HostFinding(host, column, "", warning=sentence))
    return differing


def _clusters(findings: Sequence[HostFinding]) -> list[HostFinding]:
    """Hosts that are let into another cluster than the head: what they write there is nobody's."""
    of_host = {f.host: f.shown for f in findings if f.column == CLUSTER and not f.error}
    head = next(iter(of_host), "")
    return [
        HostFinding(
            host,
            CLUSTER,
            "no",
            f"its ceph.conf is of the cluster {fsid}..., and that of {head} of "
            f"{of_host[head]}...; give both the same",
        )
        for host, fsid in of_host.items()
        if fsid != of_host[head]
    ]


def _compared(finding: HostFinding) -> Optional[str]:
    """The version, or the MTU of an interface that leads to other machines."""
    words = finding.shown.split()
    if finding.column == "network":
        return words[1] if len(words) > 1 and words[0] != "lo" else None
    return finding.shown if finding.shown[:1].isdigit() else None

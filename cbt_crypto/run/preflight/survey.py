"""Every host asked everything at once, and what came of it: findings by host and column."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from cbt_crypto.hosts import shell
from cbt_crypto.hosts.remote import HostResult, Remote, clock_bounds, clock_difference
from cbt_crypto.hosts.requirement import CLUSTER, Fact, Requirement
from cbt_crypto.run.preflight.host_facts import CLOCK_LIMIT_S, CLOCK_WARN_S

_BEGIN = "@cbt-crypto-requirement"
_CLOCK = "@cbt-crypto-clock"
_TIMEOUT_S = 120


@dataclass(frozen=True)
class HostFinding:
    """One thing found of one host. `error` and `warning` say what to do."""

    host: str
    column: str
    shown: str
    error: Optional[str] = None
    warning: Optional[str] = None


def survey(remote: Remote, hosts: Sequence[str], needs: Sequence[Requirement]) -> list[HostFinding]:
    """Ask every host in one call; one that cannot be reached is a finding too."""
    by_host = _by_host(needs)
    scripts = {host: _script(by_host.get(host, [])) for host in hosts}
    sent = time.time()
    limit_s = _TIMEOUT_S + max(
        (sum(n.takes_s for _, n in of) for of in by_host.values()), default=0
    )
    results = remote.attempt(scripts, limit_s, "look at the host")
    received = time.time()
    findings: list[HostFinding] = []
    for host, result in results.items():
        findings.append(_reached(host, result, limit_s))
        if result.status == 0:
            findings += _findings(host, by_host.get(host, []), parts_of(result.stdout))
    reached = {host: result.stdout for host, result in results.items() if result.status == 0}
    return [
        *findings,
        *_clocks(reached, sent, received),
        *_differences(findings),
        *_clusters(findings),
    ]


def parts_of(text: str) -> dict[str, str]:
    """Number of the requirement -> what its script printed."""
    return {
        line.removeprefix(_BEGIN).strip(): printed.partition(_CLOCK)[0].strip()
        for line, printed in shell.sections(text, _BEGIN)
    }


def _by_host(needs: Sequence[Requirement]) -> dict[str, list[tuple[int, Requirement]]]:
    """Host -> what is asked of it, with the numbers of these in `needs`.

    With a thousand hosts, of which each has needs of its own, going through all for each takes
    longer than anything else of a check.
    """
    by_host: dict[str, list[tuple[int, Requirement]]] = {}
    for index, need in enumerate(needs):
        for host in dict.fromkeys(need.hosts):
            by_host.setdefault(host, []).append((index, need))
    return by_host


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
    if result.status is not None:
        return HostFinding(
            host, "ssh", "no", f"cannot be looked at{_why(result)}; mend its shell or PATH"
        )
    error = f"cannot be reached{_why(result)}; ssh to it must work without a password"
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
        error = need.judge(output)
        shown, warning = "no" if error else "ok", None
        if isinstance(need, Fact):
            shown, warning = need.shown(output), need.advice(output)
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
        begin, end = float(lines[0][1]), float(lines[-1][1])
    except (IndexError, ValueError):
        return None
    return clock_bounds(begin, end, sent, received)


def _clock(host: str, offset: Optional[float]) -> HostFinding:
    if offset is None:
        return HostFinding(
            host,
            "clock",
            "?",
            warning="its clock cannot be read; see what date +%s.%N prints there",
        )
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

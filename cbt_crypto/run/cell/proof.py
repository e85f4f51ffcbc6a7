"""Prove that each cell's configuration is in force: before, meanwhile, after. docs/overlays.md"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Optional

from cbt_crypto.cluster_overlays import base
from cbt_crypto.cluster_overlays.base import Finding, Overlay, Seen, Verdict, Watch
from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.engine.contract import Looked, Looks
from cbt_crypto.errors import RunError
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.secret import document_without
from cbt_crypto.hosts.site import HostOutputs, HostScripts, Osd, Site, name_of
from cbt_crypto.run.cell import daemons_on_host, watch
from cbt_crypto.run.cell.watch import WatchRecord
from cbt_crypto.run.targets.drive import DriveProof

#: Of the verdict in proof.json, and of what is watched.
NAME = "osds"
#: OSD -> the epoch of the OSD map since which it is up.
UpFrom = Mapping[int, int]


def watch_daemons(site: Site) -> Mapping[str, Watch]:
    """The processes of OSDs."""
    source = shell.program(daemons_on_host)
    asked: dict[str, dict[str, Any]] = {host: {} for host in site.osd_hosts}
    for osd in site.osds:
        asked[osd.host][name_of(osd)] = {"pid_file": osd.pid_file, "socket": osd.admin_socket}
    return {host: Watch(source, osds) for host, osds in asked.items()}


def judge_daemons(
    site: Site, seen: Mapping[str, Sequence[Seen]], up_from: Sequence[UpFrom]
) -> Verdict:
    """Whether each OSD is one process all the time, and `up_from` is alike before and after."""
    findings = {osd: _finding(osd, seen.get(osd.host, ()), up_from) for osd in site.osds}
    strangers = {osd for look in up_from for osd in look} - {o.id for o in (*site.osds, *site.idle)}
    if strangers:  # as where somebody enlarges his cluster
        sentence = f"osd.{min(strangers)} is up, too, and nobody looked at it"
        return Verdict(False, sentence, {name_of(o): f.evidence for o, f in findings.items()})
    return base.judge_all(Overlay(), findings, "were the same processes throughout, and up")


def lost_osds(site: Site, seen: Mapping[str, Sequence[Seen]]) -> Optional[str]:
    """A sentence on the first OSD that ended and is not back, or None, without the monitors."""
    for osd in site.osds:
        looks = [look.value.get(name_of(osd)) for look in seen.get(osd.host, ())]
        if looks and looks[0] and not looks[-1]:
            return f"{name_of(osd)} on {osd.host}: {_fault(looks, ())}"
    return None


def _finding(osd: Osd, seen: Sequence[Seen], up_from: Sequence[UpFrom]) -> Finding:
    looks = [look.value.get(name_of(osd)) for look in seen]
    runs = [run for n, run in enumerate(looks) if n == 0 or run != looks[n - 1]]
    epochs = [look.get(osd.id) for look in up_from]
    evidence = {"pid": None, "start_ticks": None, "up_from": epochs[-1] if epochs else None}
    if runs and runs[-1]:
        evidence |= {"pid": runs[-1][0], "start_ticks": runs[-1][1]}
    return Finding(_fault(runs, epochs), evidence)


def _fault(runs: Sequence[Any], epochs: Sequence[Optional[int]]) -> Optional[str]:
    if not runs or runs[0] is None:
        return "it was not running when the cell began"
    if runs[-1] is None:
        return f"process {runs[0][0]} ended during the cell"
    if len(runs) > 1:
        return f"it was restarted during the cell (process {runs[0][0]}, then {runs[-1][0]})"
    if None in epochs:
        return "the monitors did not say since when it is up"
    if len(set(epochs)) > 1:
        return (
            "the monitors marked it down during the cell (it is up since epoch "
            f"{epochs[-1]} of the OSD map, and was since {epochs[0]})"
        )
    return None


def served_operations(site: Site, records: Mapping[str, WatchRecord]) -> dict[str, dict[str, int]]:
    """OSD name -> clients' operations in the cell, and its placement groups, if told twice."""
    served = {}
    for host, record in records.items():
        looks = [site.own(host, look) for look in record.counted.get(NAME, [])]
        first, last = (looks[0], looks[-1]) if len(looks) > 1 else ({}, {})
        for name in filter(last.__contains__, first):
            served[name] = {**last[name], "ops": last[name]["ops"] - first[name]["ops"]}
    return served


_BEGIN = "@cbt-crypto-probe"
_LOOK = "@cbt-crypto-look"
_MARKERS = (_BEGIN, _LOOK, watch.MARKER)
#: How many answers of the cluster a look at all hosts may take the time of.
_ANSWERS = 5


@dataclass
class Evidence:
    """All that is known of one cell: probes by overlay, what was watched, OSDs' up_from."""

    before: Looked = field(default_factory=dict)
    after: Looked = field(default_factory=dict)
    watched: Mapping[str, WatchRecord] = field(default_factory=dict)
    up_from: tuple[UpFrom, UpFrom] = ({}, {})


class CellProof:
    """Looks at the hosts before a cell, during it and after it, and judges what was seen."""

    def __init__(self, remote: Remote, stack: Stack, site: Site, waived: bool = False) -> None:
        self._remote, self._stack, self._site = remote, stack, site
        self._is_waived = waived
        self._limit_s = _ANSWERS * shell.answer_limit(site.ceph_cmd)
        self._proving = [] if waived else _proving(stack, site)
        of_daemons = {} if waived else {NAME: watch_daemons(site)}
        of_overlays = {overlay.name: overlay.watch(below) for overlay, below in self._proving}
        self._watches = {**of_daemons, **of_overlays}
        self._hosts = tuple({host: None for hosts in self._watches.values() for host in hosts})
        self.evidence = Evidence()

    def begin(self, up_from: UpFrom, further: Looks = MappingProxyType({})) -> Looked:
        """Watch, and probe all overlays in one call with `further` looks; return their output."""
        starts = watch.start(self._watches, self._site.tmp_dir)
        ready = dict.fromkeys(self._hosts, watch.ready(self._site.tmp_dir))
        outputs = self._run(
            (starts, ready, _sections(_BEGIN, self._probes()), _sections(_LOOK, further))
        )
        self.evidence.before = _printed(outputs, _BEGIN)
        self.evidence.up_from = (dict(up_from), {})
        return _printed(outputs, _LOOK)

    def end(self, further: Looks = MappingProxyType({})) -> Looked:
        """Probe again, after `further` looks, and end the watch; RunError if an OSD is gone."""
        asked = dict.fromkeys(self._hosts, watch.asked(self._site.tmp_dir))
        stop = {"": dict.fromkeys(self._hosts, watch.stop(self._site.tmp_dir))}
        looks = (_LOOK, further), (_BEGIN, self._probes()), (watch.MARKER, stop)
        outputs = self._run((asked, *itertools.starmap(_sections, looks)))
        self.evidence.after = _printed(outputs, _BEGIN)
        watched = _printed(outputs, watch.MARKER).get("", {})
        self.evidence.watched = {host: watch.parse(text) for host, text in watched.items()}
        lost = lost_osds(self._site, watch.seen_of(NAME, self.evidence.watched))
        if lost:
            raise RunError(lost)
        return _printed(outputs, _LOOK)

    def abandon(self) -> None:
        """End the watch of a cell that goes no further."""
        stop = dict.fromkeys(self._hosts, watch.stop(self._site.tmp_dir))
        self._remote.attempt(stop, self._limit_s, "end the watch")

    def judge(self, configuration: str, up_from: UpFrom) -> dict[str, Any]:
        """The contents of proof.json; `up_from` is of after the cell."""
        if self._is_waived:
            return waived(configuration)
        self.evidence.up_from = (self.evidence.up_from[0], dict(up_from))
        return judge(self._stack, self._site, configuration, self.evidence)

    def _probes(self) -> Looks:
        return {overlay.name: overlay.probe(below) for overlay, below in self._proving}

    def _run(self, parts: Sequence[HostScripts]) -> HostOutputs:
        scripts = _together(parts)
        return self._remote.run(scripts, "read what proves the configuration", self._limit_s)


def _proving(stack: Stack, site: Site) -> list[tuple[Overlay, Site]]:
    """What is to be proved: overlays, with the site as each finds it, and what a drive is."""
    proving = [(overlay, stack.below(overlay, site)) for overlay in stack.overlays]
    return [*proving, (DriveProof(), site)] if site.drives else proving


def _sections(marker: str, looks: Looks) -> HostScripts:
    """The looks' scripts as one a host; `_printed` finds again what each of them prints."""
    return _together(
        {host: shell.section(f"{marker} {name}".strip(), text) for host, text in scripts.items()}
        for name, scripts in looks.items()
    )


def _together(parts: Iterable[HostScripts]) -> HostScripts:
    scripts: dict[str, str] = {}
    for part in parts:
        for host, text in part.items():
            scripts[host] = f"{scripts.get(host, '')}{text}\n"
    return scripts


def _printed(outputs: HostOutputs, marker: str) -> Looked:
    printed: dict[str, dict[str, str]] = {}
    for host, text in outputs.items():
        for line, lines in shell.sections(text, *_MARKERS):
            if line.startswith(marker):
                printed.setdefault(line.removeprefix(marker).strip(), {})[host] = lines
    return printed


def judge(stack: Stack, site: Site, configuration: str, evidence: Evidence) -> dict[str, Any]:
    """The contents of proof.json for one cell."""
    verdicts = [_verdict(overlay, below, evidence) for overlay, below in _proving(stack, site)]
    if site.osds:
        verdicts.append(_same_osds(site, evidence))
    return {
        "configuration": configuration,
        "proved": all(verdict["proved"] for verdict in verdicts),
        "overlays": verdicts,
    }


def is_waived(config: Mapping[str, Any]) -> bool:
    """Whether a `cluster` section says that nothing is to be proved."""
    return config.get("proof") == "none"


def waived(configuration: str) -> dict[str, Any]:
    """Make proof.json's contents for `proof: none`; every row of every table then says so."""
    return {"configuration": configuration, "proved": False, "required": False, "overlays": []}


def failure(proof: dict[str, Any]) -> str:
    """One sentence that says what is not proved."""
    reasons = [
        f"{verdict['overlay']}: {verdict['reason']}"
        for verdict in proof["overlays"]
        if not verdict["proved"]
    ]
    return f"the configuration is not proved: {'; '.join(reasons)}"


def _verdict(overlay: Overlay, site: Site, evidence: Evidence) -> dict[str, Any]:
    name = overlay.name
    seen = watch.seen_of(name, evidence.watched)
    verdict = overlay.judge(site, evidence.before.get(name, {}), evidence.after.get(name, {}))
    if verdict.proved:
        # It may have been otherwise during the cell, though it was right before and after it.
        gap = watch.fault(name, tuple(overlay.watch(site)), evidence.watched)
        fault = gap or overlay.judge_seen(site, seen)
        verdict = Verdict(False, fault, verdict.evidence) if fault else verdict
    return {
        "overlay": name,
        "present": overlay.is_present,
        "options": document_without(overlay.model_dump(mode="json")),
        "proved": verdict.proved,
        "reason": verdict.reason,
        "evidence": document_without({**verdict.evidence, **overlay.evidence_seen(site, seen)}),
    }


def _same_osds(site: Site, evidence: Evidence) -> dict[str, Any]:
    """That they are the same from beginning to end: no overlay's, and a part of every proof."""
    gap = watch.fault(NAME, site.osd_hosts, evidence.watched)
    seen = watch.seen_of(NAME, evidence.watched)
    verdict = Verdict(False, gap) if gap else judge_daemons(site, seen, evidence.up_from)
    served = served_operations(site, evidence.watched)
    shown = {name: {**about, **served.get(name, {})} for name, about in verdict.evidence.items()}
    return {
        "overlay": NAME,
        "present": True,
        "options": {},
        "proved": verdict.proved,
        "reason": verdict.reason,
        "evidence": shown,
    }

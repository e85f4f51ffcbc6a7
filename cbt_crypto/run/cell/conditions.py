"""What a cell is measured under: OSD caches, neighbours, its rate, and what passes the drives."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Optional

from cbt_crypto.archive.files import read_json
from cbt_crypto.benchmarks.base import ClusterCommands, Scenario
from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.errors import RunError
from cbt_crypto.hosts import admin_socket, shell
from cbt_crypto.hosts.admin_socket import Question
from cbt_crypto.hosts.devices import traffic_on_host
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.site import HostOutputs, HostScripts, Site, name_of
from cbt_crypto.plan.cells import Cell, reference_of, share
from cbt_crypto.plan.file.cluster import Neighbours
from cbt_crypto.results.until import read_block

#: Host -> what its neighbours did: `cores` of CPU time they got, of those `asked`, in `seconds`.
Seen = dict[str, dict[str, float]]

_ENDED = '\n[ -z "$pid" ] || { echo "the neighbours\' stress-ng does not end" >&2; exit 1; }\n'


def declared(config: Mapping[str, Any]) -> Optional[Neighbours]:
    """The neighbours of a `cluster` section; None where there are none."""
    section = config.get("neighbours")
    return None if section is None else Neighbours.model_validate(section)


def hosts_of(neighbours: Neighbours, site: Site) -> tuple[str, ...]:
    """The hosts that have them, each once."""
    return tuple(dict.fromkeys(neighbours.hosts or site.role(*neighbours.roles)))


@contextlib.contextmanager
def running(
    neighbours: Optional[Neighbours], remote: Remote, stack: Stack, site: Site
) -> Iterator[Seen]:
    """Run the load during the block; the value then has what it got. RunError if it ended early."""
    seen: Seen = {}
    if neighbours is None:
        yield seen
        return
    hosts = hosts_of(neighbours, site)
    file = f"{site.tmp_dir}/neighbours.pid"
    stop = dict.fromkeys(hosts, shell.stop_in_background(file, ("TERM", "KILL")) + _ENDED)
    look = dict.fromkeys(hosts, shell.call(__file__, "neighbours_time", file))
    try:
        start = {host: start_script(neighbours, stack, site, host, file) for host in hosts}
        remote.run(start, "start the neighbours' stress-ng", 60)
        before = remote.run(look, "check the neighbours' stress-ng", 60)
        yield seen
        after = remote.run(look, "check the neighbours' stress-ng", 60)
    finally:
        remote.run(stop, "end the neighbours' stress-ng", 60)
    for host in hosts:
        seen[host] = got(neighbours, json.loads(before[host]), json.loads(after[host]))
        check_load(neighbours, host, seen[host])


def start_script(neighbours: Neighbours, stack: Stack, site: Site, host: str, file: str) -> str:
    """Shell text that starts the load in its own session, on clients confined like theirs."""
    words = [neighbours.stress_cmd, "--cpu", str(neighbours.cpu), "--cpu-load"]
    words += [str(neighbours.cpu_load), *shlex.split(neighbours.args), "--timeout", "0", "--quiet"]
    command = " ".join(shlex.quote(word) for word in words)
    if host in site.clients:
        command = stack.wrap_client(host, command)
    output = shlex.quote(f"{file}.out")
    start = shell.start_in_background(f"sh -c {shlex.quote(command)}", file, f"{file}.out")
    return (
        f"cd /tmp; export SUDO\n{start}; sleep 1\n"
        f"kill -0 $! 2>/dev/null || {{ tail -n 3 {output} >&2; exit 1; }}"
    )


def got(
    neighbours: Neighbours, before: Mapping[str, float], after: Mapping[str, float]
) -> dict[str, float]:
    """What a host's neighbours got between two looks."""
    seconds = after["time"] - before["time"]
    return {
        "asked": neighbours.cpu * neighbours.cpu_load / 100,
        "cores": round((after["cpu_s"] - before["cpu_s"]) / seconds, 3),
        "processes": after["processes"],
        "seconds": round(seconds, 3),
    }


def check_load(neighbours: Neighbours, host: str, measured: Mapping[str, float]) -> None:
    """Raise RunError when a host's neighbours ended, or got less than `least_percent`."""
    if not measured["processes"]:
        raise RunError(f"{host}: the neighbours' stress-ng ended before the cell did")
    # Nor is what is no number enough.
    if not measured["cores"] >= measured["asked"] * neighbours.least_percent / 100:
        raise RunError(
            f"{host}: the neighbours' stress-ng got {measured['cores']:g} of the "
            f"{measured['asked']:g} cores that it asked for"
        )


def loaded(cell: Cell, cells: Sequence[Cell], baseline: str, archive: Path) -> Scenario:
    """The cell's scenario with IOPS as its rate; RunError without the cell it is a part of."""
    part, reference = share(cell), reference_of(cell, cells, baseline)
    if part is None or reference is None:
        return cell.scenario
    return cell.scenario.model_copy(update={"rate": round(part * _maximum(reference, archive))})


def _maximum(reference: Cell, archive: Path) -> float:
    directory = archive / reference.path
    noted = read_json(directory / "cell.json") or {}
    block = None
    if noted.get("state") == "finished":
        interval_ms = int(reference.parameters.get("log_avg_msec", 1000))
        block = read_block(directory, noted.get("processes", ()), interval_ms)
    if block is None or not sum(block.iops.values()):
        raise RunError(
            f"its rate is a part of what {reference.label} does, which was not measured; run the "
            "command again without --only, which measures both"
        )
    return sum(block.iops.values())


#: Seconds to read every volume once, beyond what its size takes.
_PATIENCE_S = 600
_READ_MB_PER_S = 1


def fill(
    remote: Remote, site: Site, scenario: Scenario, run_dir: str, commands: ClusterCommands
) -> None:
    """Read volumes into the caches where the file wants them warm; RunError if unreadable."""
    if scenario.cache_state(site) != "warm":
        return
    volumes = scenario.volumes(site)
    limit = _PATIENCE_S + sum(volume.size_mb for volume in volumes) / _READ_MB_PER_S
    scripts = scenario.warm_scripts(volumes, run_dir, commands)
    remote.run(scripts, "read the volumes into the OSDs' caches", limit)


def emptying(site: Site, scenario: Scenario) -> HostScripts:
    """Scripts for `cache drop` at every OSD, where the file wants caches empty."""
    if scenario.cache_state(site) != "drop":
        return {}
    drop = {"prefix": "cache drop"}
    return {
        host: admin_socket.script(
            [Question(name_of(o), o.admin_socket, drop, is_text=True) for o in site.osds_of(host)]
        )
        for host in site.osd_hosts
    }


def outcome(site: Site, scenario: Scenario, printed: HostOutputs) -> dict[str, Any]:
    """What was done, for cell.json, with `faults` of OSDs that did not empty theirs."""
    state = scenario.cache_state(site)
    return {"state": state, "faults": _faults(site, printed) if state == "drop" else []}


def _faults(site: Site, printed: HostOutputs) -> list[str]:
    answers = admin_socket.parse(site, printed)
    faults = {
        osd.id: answers.fault(name_of(osd), osd.host) or answers.values[name_of(osd)].strip()
        for osd in site.osds
    }
    return [f"osd.{osd} did not empty its cache: {why}" for osd, why in faults.items() if why]


_SOCKETS, _DEVICES = "@cbt-crypto-sockets", "@cbt-crypto-devices"
_GROUPS = "@cbt-crypto-placement-groups"
#: What a placement group's state says that the cluster does besides serving clients.
_BUSY = {"scrubbing": ("scrubbing",), "recovering": ("recovering", "backfilling")}
#: Counters of `perf dump`; those of the buffers begin with `bluestore_` in 16.2, no longer in 18.2.
_COUNTERS = {
    "buffer_hit_bytes": ("bluestore/buffer_hit_bytes", "bluestore/bluestore_buffer_hit_bytes"),
    "buffer_miss_bytes": ("bluestore/buffer_miss_bytes", "bluestore/bluestore_buffer_miss_bytes"),
    "onode_hits": ("bluestore/onode_hits", "bluestore/bluestore_onode_hits"),
    "onode_misses": ("bluestore/onode_misses", "bluestore/bluestore_onode_misses"),
    "client_read_bytes": ("osd/op_out_bytes",),
    "client_written_bytes": ("osd/op_in_bytes",),
    "client_ops": ("osd/op",),
    "recovery_ops": ("osd/recovery_ops",),
}

#: What explains figures, of all that `perf dump` says: times as their number and sum in s, where
#: Ceph has both. A release that lacks one says nothing of it.
_PERF = (
    "bluestore/*_lat/*", "bluestore/*deferred_write*", "bluestore/*onode_*s",
    "bluefs/bytes_written*",
    "osd/op_*lat*/*", "osd/subop*", "osd/op", "osd/op_r", "osd/op_w", "rocksdb/*compact*",
    "rocksdb/*write_delay*", "rocksdb/*_latency/*", "AsyncMessenger::Worker-*/msgr_*",
    "throttle-*/wait/*",
)  # fmt: skip
#: An OSD's slowest operations of the last ten minutes, and of those beyond 10 s the latest.
_SLOW = ("dump_historic_ops", "dump_historic_slow_ops")
_SLOW_KEEP = tuple(
    f"[Oo]ps/{number}/{what}"
    for number in ("[0-9]", "[0-9][0-9]")
    for what in ("description", "initiated_at", "duration")
)
#: What takes so long is told; only its kind, as the rest of its description names its client.
SLOW_S = 1.0
#: Of workers there are several in one OSD: they are counted together.
_WORKER = re.compile(r"::Worker-\d+")

#: OSD -> what it had counted since it started.
Reading = Mapping[str, Mapping[str, Any]]


class Counter:
    """Reads before a cell and after it, whoever runs the cell's clients."""

    def __init__(self, site: Site) -> None:
        # Also at OSDs that idle meanwhile.
        self._site = replace(site, osds=(*site.osds, *site.idle))
        self._began = self._ended = 0.0
        #: What had passed before the cell and after it.
        self.readings: Sequence[Reading] = ()
        self._busy: list[dict[str, int]] = []

    def scripts(self) -> HostScripts:
        """Scripts of the next reading, of which `note` takes what they print."""
        self._ended = time.monotonic()
        asked = scripts(self._site)
        if any(osd.is_existing for osd in self._site.osds):
            limit, head = shell.answer_limit(self._site.ceph_cmd), self._site.head
            ask = f"timeout {limit} {self._site.ceph_command} pg stat --format json || :"
            asked = {**asked, head: asked.get(head, "") + shell.section(_GROUPS, ask)}
        return asked

    def note(self, printed: HostOutputs) -> None:
        """A reading was taken."""
        self._began = self._began or time.monotonic()
        self.readings = (*self.readings, parsed(self._site, printed))
        sections = shell.sections(printed.get(self._site.head, ""), _SOCKETS, _DEVICES, _GROUPS)
        self._busy += [busy_groups(text) for name, text in sections if name == _GROUPS]

    @property
    def seconds(self) -> float:
        """From the first reading until the second is asked for."""
        return self._ended - self._began

    def beside(self) -> Optional[dict[str, float]]:
        """What a cluster of others did besides, as cell.json has it: the most placement groups."""
        if not self._busy:
            return None
        most = {what: max(look.get(what, 0) for look in self._busy) for what in _BUSY}
        return {"seconds": round(self.seconds, 3), **most}

    def moved(self) -> dict[str, dict[str, Any]]:
        """What passed each OSD, or drive, between the two readings."""
        return between(*self.readings)

    def slow(self) -> list[dict[str, Any]]:
        """The slow operations that ended between the readings, for cell.json."""
        before, after = self.readings
        return [
            {"osd": name, "host": told["host"], **op}
            for name, told in sorted(after.items())
            for op in told.get("slow", ())
            if op not in before.get(name, {}).get("slow", ())
        ]

    def perf(self) -> dict[str, float]:
        """What the OSDs counted between the readings, by `perf dump`'s path; no fallen gauges."""
        before, after = self.readings
        measured = {*map(name_of, self._site.osds)} - {*map(name_of, self._site.idle)}
        sums: dict[str, float] = {}
        for name in sorted(measured & set(before) & set(after)):
            first = before[name]["perf"]
            for path, value in after[name]["perf"].items():
                sums[path] = sums.get(path, 0.0) + value - first.get(path, 0.0)
        return {path: round(total, 9) for path, total in sums.items() if total > 0}


def busy_groups(printed: str) -> dict[str, int]:
    """How many placement groups are busy with what, of `ceph pg stat` as JSON."""
    found: dict[str, int] = {}
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
        for state in json.loads(printed)["pg_summary"]["num_pg_by_state"]:
            for what, words in _BUSY.items():
                if any(word in state["name"].split("+") for word in words):
                    found[what] = found.get(what, 0) + int(state["num"])
    return found


def scripts(site: Site) -> HostScripts:
    """Scripts that print what every OSD, or drive, has counted by now; for `parsed`."""
    return {host: _script(site, host) for host in site.storage_hosts}


def read(remote: Remote, site: Site) -> Reading:
    """Read what every OSD, or drive, has counted by now. Raises HostError."""
    asked = scripts(site)
    return parsed(site, remote.run(asked, "read what passed the drives", 120)) if asked else {}


def _script(site: Site, host: str) -> str:
    osds = site.osds_of(host)
    keep = (*(path for paths in _COUNTERS.values() for path in paths), *_PERF)
    questions = [
        Question(f"osd.{osd.id}", osd.admin_socket, {"prefix": "perf dump"}, keep) for osd in osds
    ] + [
        Question(f"osd.{osd.id} {ask}", osd.admin_socket, {"prefix": ask}, _SLOW_KEEP)
        for osd in osds
        for ask in _SLOW
    ]
    carriers: dict[str, object] = {f"osd.{osd.id}": osd.pid_file for osd in osds}
    for drive in site.drives:
        if drive.host == host:
            carriers[f"drive {drive.name}"] = drive.devices
    devices = shell.python(shell.program(traffic_on_host), carriers)
    asked = shell.section(_SOCKETS, admin_socket.script(questions)) if osds else ""
    return asked + shell.section(_DEVICES, devices)


def parsed(site: Site, outputs: HostOutputs) -> dict[str, dict[str, Any]]:
    """By OSD, or drive, what both parts of `scripts` printed; without OSDs that lack one part."""
    by_carrier: dict[str, dict[str, Any]] = {}
    for host, output in outputs.items():
        parts = dict(shell.sections(output, _SOCKETS, _DEVICES, _GROUPS))
        answers = admin_socket.parse(site, {host: parts.get(_SOCKETS, "")}).values
        devices: Mapping[str, Any] = {}
        with contextlib.suppress(ValueError):
            devices = json.loads(parts.get(_DEVICES, ""))
        for osd in site.osds_of(host):
            name = f"osd.{osd.id}"
            told = devices.get(name, {})
            if name in answers and "error" not in told and told:
                answer = answers[name]
                counted = {"counters": _counters(answer), "perf": _perf(answer)}
                slow = _slow(answers.get(f"{name} {ask}", {}) for ask in _SLOW)
                by_carrier[name] = {"host": host, **counted, "slow": slow, **told}
        for drive in site.drives:
            name = f"drive {drive.name}"
            told = devices.get(name, {})
            if drive.host == host and told and "error" not in told:
                by_carrier[name] = {"host": host, "counters": {}, "perf": {}, **told}
    return by_carrier


def _slow(answers: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Operations of SLOW_S and longer, each once, by what both lists of one OSD tell."""
    ops: dict[tuple[str, str], dict[str, Any]] = {}
    for answer in answers:
        for path, seconds in answer.items():
            op, _, leaf = path.rpartition("/")
            with contextlib.suppress(KeyError, TypeError, ValueError):
                if leaf == "duration" and seconds >= SLOW_S:
                    at, what = answer[f"{op}/initiated_at"], answer[f"{op}/description"]
                    began = datetime.strptime(at, "%Y-%m-%dT%H:%M:%S.%f%z").timestamp()
                    kind = what.partition("(")[0][:40]
                    ops[at, what] = {"began": began, "seconds": float(seconds), "what": kind}
    return sorted(ops.values(), key=lambda op: float(op["began"]))


def _counters(answer: Mapping[str, Any]) -> dict[str, int]:
    counters = {}
    for name, paths in _COUNTERS.items():
        value = next((answer[path] for path in paths if path in answer), None)
        if isinstance(value, int):
            counters[name] = value
    return counters


def _perf(answer: Mapping[str, Any]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for path, value in answer.items():
        # The mean of a time follows from its number and its sum.
        if isinstance(value, (int, float)) and not path.endswith("/avgtime"):
            name = _WORKER.sub("", path)
            sums[name] = sums.get(name, 0.0) + value
    return sums


def between(before: Reading, after: Reading) -> dict[str, dict[str, Any]]:
    """What passed each OSD between the readings; none if it was restarted or read once."""
    passed = {}
    for name, last in after.items():
        first = before.get(name)
        moved = None if first is None else _difference(first, last)
        if moved is not None:
            passed[name] = {"host": last["host"], **moved}
    return passed


def _difference(first: Mapping[str, Any], last: Mapping[str, Any]) -> Optional[dict[str, Any]]:
    counters = {
        name: value - first["counters"].get(name, 0) for name, value in last["counters"].items()
    }
    if any(value < 0 for value in counters.values()):
        return None
    before = {layer["device"]: layer for layers in first["devices"] for layer in layers}
    devices = [
        [_moved(before[layer["device"]], layer) for layer in layers if layer["device"] in before]
        for layers in last["devices"]
    ]
    process = None
    if first["process"] and last["process"]:
        process = _moved(first["process"], last["process"])
    moved = {"counters": counters, "devices": devices, "process": process}
    if "cpu_ms" in first and "cpu_ms" in last:
        moved["cpu_ms"] = last["cpu_ms"] - first["cpu_ms"]
    return moved


def _moved(first: Mapping[str, Any], last: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value - first[key] if key in ("read_bytes", "written_bytes") else value
        for key, value in last.items()
    }

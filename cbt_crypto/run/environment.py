"""What a run can be judged by later: hosts, versions, mitigations, commits, ceph.conf."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Optional

from cbt_crypto import __version__
from cbt_crypto.archive.documents import CHANGED, UPGRADED
from cbt_crypto.archive.files import read_json, write_json
from cbt_crypto.cluster_overlays.base import Overlay
from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.engine import Engine
from cbt_crypto.engine.upstream.checkout import git
from cbt_crypto.hosts import samplers, shell
from cbt_crypto.hosts.remote import Remote, fan_out
from cbt_crypto.hosts.secret import options_without
from cbt_crypto.hosts.shell import answer_limit
from cbt_crypto.hosts.site import Drive, HostOutputs, HostScripts, Site
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.file.cluster import words
from cbt_crypto.plan.layout import drives_of
from cbt_crypto.run.journal import fsid_before
from cbt_crypto.run.targets.base import Target

_BEGIN = "@device"
#: The model of a loop device, which is as fast as the disk that its file is on.
_FILE = "a file, by a loop device"
#: What ATA drives call the share of their life that is left, as smartctl names it.
_LEFT = {"Media_Wearout_Indicator", "Percent_Lifetime_Remain", "Percent_Life_Remaining",
         "SSD_Life_Left", "Remaining_Lifetime_Perc", "Wear_Leveling_Count"}  # fmt: skip


def drive_scripts(drives: Iterable[Drive]) -> HostScripts:
    """Shell text for each host that describes its drives' devices."""
    devices: dict[str, list[str]] = {}
    for drive in drives:
        devices.setdefault(drive.host, []).extend(drive.devices)
    return {host: device_script(devices_of_host) for host, devices_of_host in devices.items()}


def device_script(devices: Iterable[str], sys: str = "/sys") -> str:
    """Return shell text that describes devices by what `sys` says of them."""
    calls = (f"describe {shlex.quote(device)}" for device in dict.fromkeys(devices))
    settings = f"SYS={shlex.quote(sys)} FILE={shlex.quote(_FILE)}\n"
    return settings + shell.calling(__file__, "\n".join(calls))


def parse_drives(output: str) -> dict[str, dict[str, Any]]:
    """Device -> model, firmware, wear, size, sectors, place and connection, or None."""
    by_device = {}
    for line, text in shell.sections(output, _BEGIN):
        device, lines = line.removeprefix(_BEGIN).strip(), text.splitlines()
        facts = {key: value.strip() for key, _, value in (line.partition(" ") for line in lines)}
        size = facts.get("size_bytes", "")
        smart = parse_smart(facts.get("smart", ""))
        by_device[device] = {
            "model": facts.get("model") or None,
            # The kernel cuts that of an ATA drive after four characters.
            "firmware": smart.get("firmware_version")
            or facts.get("firmware_rev")
            or facts.get("rev")
            or None,
            "wear_percent": wear_percent(smart),
            "rotational": {"0": False, "1": True}.get(facts.get("rotational", "")),
            "size_bytes": int(size) if size.isdigit() else None,
            "logical_sector_bytes": _number(facts.get("logical_block_size")),
            "physical_sector_bytes": _number(facts.get("physical_block_size")),
            "write_cache": facts.get("write_cache") or None,
            "numa_node": _number(facts.get("numa_node")),
            "pcie_link": facts.get("current_link"),
            "pcie_link_at_most": facts.get("max_link"),
        }
    return by_device


def parse_smart(text: str) -> dict[str, Any]:
    """Return what smartctl or nvme printed as JSON; empty where it is none."""
    try:
        document = json.loads(text)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def wear_percent(smart: Mapping[str, Any]) -> Optional[int]:
    """How much of its life a drive says it has used, of the JSON of smartctl or of nvme."""
    nvme = smart.get("nvme_smart_health_information_log")
    for log, key in ((nvme, "percentage_used"), (smart, "percent_used"),
                     (smart, "scsi_percentage_used_endurance_indicator")):  # fmt: skip
        if isinstance(log, Mapping) and isinstance(log.get(key), int):
            return int(log[key])
    attributes = smart.get("ata_smart_attributes")
    table = attributes.get("table") if isinstance(attributes, Mapping) else None
    for row in table if isinstance(table, list) else ():
        if row.get("name") in _LEFT and isinstance(row.get("value"), int):
            return 100 - int(row["value"])
    return None


def describe_drives(remote: Remote, drives: Iterable[Drive]) -> dict[str, Any]:
    """The `drives` of environment.json: what the file says of each, and what its devices say."""
    drives = tuple(drives)
    outputs = remote.run(drive_scripts(drives), "describe the drives", 60)
    facts = {host: parse_drives(output) for host, output in outputs.items()}
    return {
        drive.name: {
            "host": drive.host,
            "plp": drive.plp,
            "devices": {d: facts.get(drive.host, {}).get(d, {}) for d in drive.devices},
        }
        for drive in drives
    }


#: What systemd-detect-virt says of a machine whose CPU is emulated in software.
_EMULATED = {"qemu", "bochs", "uml"}

#: How the keys end that `ceph mon dump` has for ciphers.
_CIPHERS = ("_cipher", "_ciphers")

_NETWORK_KEYS = {"speed": "speed_mbit_per_s", "numa": "numa_node"}
_NETWORK_NUMBERS = {"speed", "numa", "mtu"}
#: Prints one fact of a host a line.
_FACTS = f'facts\nsay energy "$(\n{samplers.names_script()}\n)"\n'
SCRIPT = shell.calling(shell.__file__, shell.calling(__file__, _FACTS))


class EnvironmentFile:
    """results/environment.json, which a campaign adds to with each deployment."""

    def __init__(self, archive: Path, remote: Remote, engine: Engine, campaign: Campaign) -> None:
        self._path = archive / "results" / "environment.json"
        self._remote = remote
        self._engine = engine
        self._drives = drives_of(campaign.cluster)
        # What watches a host takes some of it.
        watchers = campaign.document.get("monitoring_profiles")
        self._monitoring = json.dumps(watchers, sort_keys=True, default=str)
        self._overlays: list[Overlay] = []
        self._confs: dict[str, str] = {}
        self._installed: HostOutputs = {}

    def describe(self, stacks: Iterable[Stack]) -> None:
        """One overlay of each kind that the stacks name is asked: what it says is about hosts."""
        named = (overlay for stack in stacks for overlay in stack.named)
        self._overlays = list({overlay.name: overlay for overlay in named}.values())

    def note(self, configuration: str, target: Target, rebuilt: bool = False) -> list[str]:
        """Note the ceph.conf in force; and the hosts, at first or if `rebuilt` after an upgrade.

        Returns what of them is otherwise than when earlier cells were measured, a host each.
        """
        changes: list[str] = []
        name = ", ".join(filter(None, (configuration, words(target.variant))))
        self._confs[name] = options_without(target.conf_text)
        noted = read_json(self._path) or {}
        installed = self._installed
        if rebuilt or not installed.keys() >= {*target.site.hosts}:
            look = dict.fromkeys(target.site.hosts, shell.call(__file__, "installed"))
            self._installed = {**installed, **self._remote.run(look, "look at programs", 60)}
        if self._installed != installed:
            everywhere = replace(target.site, drives=self._drives)
            found = collect(self._remote, everywhere, self._engine, self._overlays)
            for about in found["hosts"].values():
                about["monitoring"] = self._monitoring
            if self._drives:
                found["drives"] = describe_drives(self._remote, self._drives)
            noted, changes = self._after(noted, found)
        noted.pop("format", None)
        noted.update({"fsid": self._fsid} if self._fsid else {})
        noted["ceph_conf"] = {**noted.get("ceph_conf", {}), **self._confs}
        write_json(self._path, noted)
        return changes

    @cached_property
    def _fsid(self) -> str:
        return fsid_before(self._path.parents[1])

    def _after(
        self, noted: Mapping[str, Any], found: dict[str, Any]
    ) -> tuple[dict[str, Any], list[str]]:
        """What was found, and beside it what was otherwise when earlier cells were measured."""
        changes = []
        known = noted.get("hosts", {})
        measured = any(self._path.parent.glob("[0-9]*/id-*/cell.json"))
        tunes = any(overlay.name == "tuned" for overlay in self._overlays)
        ours = ("governor", "tuned", "cstates") if tunes else ()
        for host in known.keys() & found["hosts"].keys():
            before = known[host].get("before", [])
            then = _facts(known[host])
            now = {**then, **_facts(found["hosts"][host])}
            other = [key for key in then if key not in ours and _differ(then[key], now[key])]
            if measured and other:
                kept = {key: then[key] for key in then if key in other or key in UPGRADED}
                before = [*before, {**kept, "until": time.time()}]
                names = ", ".join(CHANGED.get(key, key) for key in other)
                changes.append(f"{host}: {names}")
            found["hosts"][host].update({"before": before} if before else {})
        kept = {key: noted[key] for key in ("started", "ceph_conf") if key in noted}
        return {**found, **kept, "hosts": {**known, **found["hosts"]}}, changes


def _facts(about: Mapping[str, Any]) -> dict[str, Any]:
    """What of a host may be otherwise at the next start."""
    cards = about.get("networks", {}).items()
    speeds = {name: card.get("speed_mbit_per_s") for name, card in cards}
    # The name of the image has the kernel's version.
    line = re.sub(r"\b(BOOT_IMAGE|initrd)=\S*", "", about.get("command_line") or "").strip()
    said = {**about, **about.get("versions", {}), "networks": speeds, "command_line": line}
    return {key: said[key] for key in (*UPGRADED, *CHANGED) if said.get(key)}


def _differ(then: Any, now: Any) -> bool:
    """Whether two facts do; numbers by more than 5 %, as kernels keep some memory themselves."""
    return bool(abs(then - now) > then / 20 if isinstance(then, int) else then != now)


def ceph_of(archive: Path) -> str:
    """The Ceph that the archive's cells were measured with last, as `18.2.7`; empty if unknown."""
    hosts = (read_json(archive / "results" / "environment.json") or {}).get("hosts")
    match = re.search(r"ceph version ([\w.]+)", json.dumps(hosts))
    return match[1] if match else ""


def collect(
    remote: Remote, site: Site, engine: Engine, overlays: Iterable[Overlay]
) -> dict[str, Any]:
    """environment.json but for ceph.conf; overlays' facts are in `hosts.<host>.overlays`."""
    devices = {
        host: [device for osd in site.osds_of(host) if not osd.is_file for device in osd.devices]
        for host in site.hosts
    }
    scripts = {host: f"{SCRIPT}{device_script(of_host)}\n" for host, of_host in devices.items()}
    outputs = remote.run(scripts, "describe the host", 600)
    hosts = {host: host_facts(site, host, text) for host, text in outputs.items()}
    for about in hosts.values():
        about["versions"]["cbt-crypto"] = __version__
    for overlay in overlays:
        what = f"describe the host for {overlay.name}"
        for host, text in remote.run(overlay.describe(site), what, 600).items():
            hosts[host]["overlays"][overlay.name] = overlay.description(text)
    return {
        "started": time.time(),
        "engine": {"name": engine.name, "version": engine.version, "commit": engine.commit},
        "fan_out": fan_out() if engine.name == "embedded" else "pdsh",
        "commit": git(Path(__file__).parent, "rev-parse", "HEAD"),
        "ceph_conf": {},
        "auth": authentication(remote, site),
        "hosts": hosts,
    }


def authentication(remote: Remote, site: Site) -> dict[str, Any]:
    """The ciphers of cephx in force, by `ceph mon dump`'s names; empty if it tells none."""
    if not site.osds:
        return {}
    limit = answer_limit(site.ceph_cmd)
    ask = f"timeout {limit} {site.ceph_command} mon dump --format json 2>/dev/null || :"
    try:
        answers = remote.run({site.head: ask}, "ask for the ciphers", limit + 30)
        monmap = json.loads(answers[site.head])
        ciphers = {key: _names(value) for key, value in monmap.items() if key.endswith(_CIPHERS)}
    except (ValueError, AttributeError):
        return {}
    return ciphers or {"auth_service_cipher": "aes"}


def _names(cipher: Any) -> Any:
    if isinstance(cipher, list):
        return [_names(part) for part in cipher]
    return cipher.get("name") if isinstance(cipher, Mapping) else cipher


def host_facts(site: Site, host: str, printed: str) -> dict[str, Any]:
    """One host's facts from what the script printed on it."""
    facts = dict(line.split("\t", 1) for line in printed.splitlines() if "\t" in line)
    sockets = _number(facts.get("lscpu.Socket(s)"))
    per_socket = _number(facts.get("lscpu.Core(s) per socket"))
    virtualization = facts.get("virtualization") or "unknown"
    drives = parse_drives(printed)
    return {
        "roles": [role for role in ("head", "clients", "osds", "mons", "mgrs")
                  if host in site.role(role)],
        "emulated": virtualization in _EMULATED,
        "osds_on_files": any(osd.is_file for osd in site.osds_of(host))
        or any(drive["model"] == _FILE for drive in drives.values()),
        "virtualization": virtualization,
        "kernel": facts.get("kernel"),
        "os": facts.get("os"),
        "cpu_model": facts.get("lscpu.Model name"),
        "sockets": sockets,
        "cores": sockets * per_socket if sockets and per_socket else None,
        "threads": _number(facts.get("lscpu.CPU(s)")),
        "numa_nodes": _number(facts.get("lscpu.NUMA node(s)")),
        "nodes": _under(facts, "node."),
        "smt": facts.get("smt") or None,
        "governor": facts.get("governor") or None,
        "tuned": facts.get("tuned") or None,
        "command_line": " ".join(map(options_without, facts.get("command_line", "").split()))
        or None,
        "cstates": facts.get("cstates") or None,
        "aes": facts.get("aes") == "yes",
        "vaes": facts.get("vaes") == "yes",
        "openssl": facts.get("openssl") or None,
        "osd_libraries": facts.get("libraries") or None,
        "networks": _networks(facts),
        "drives": drives,
        "energy": facts.get("energy", "").split(),
        "memory_bytes": (_number(facts.get("memory_kb")) or 0) * 1024,
        "load_before": float(facts.get("load") or 0),
        "mitigations": _under(facts, "mitigation."),
        "versions": _under(facts, "version."),
        "overlays": {},
    }  # fmt: skip


def _networks(facts: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Network card -> driver, firmware, speed in Mbit/s, MTU, NUMA node, and what it offloads."""
    cards: dict[str, dict[str, Any]] = {}
    for key, text in _under(facts, "network.").items():
        name, _, what = key.rpartition(".")
        value = _number(text) if what in _NETWORK_NUMBERS else (text or None)
        cards.setdefault(name, {})[_NETWORK_KEYS.get(what, what)] = value
    return cards


def _number(text: Optional[str]) -> Optional[int]:
    return int(text) if text and text.strip().isdigit() else None


def _under(facts: dict[str, str], prefix: str) -> dict[str, str]:
    return {key.removeprefix(prefix): text for key, text in facts.items() if key.startswith(prefix)}

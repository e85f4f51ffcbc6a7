"""Any option of Ceph, by section, as ceph.conf has them: what else people want to compare.

Names and values are checked against the hosts' release. What it can change while daemons run is
set through their admin sockets; any other option is in ceph.conf.
"""

from __future__ import annotations

import fnmatch
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Optional, Union

from pydantic import ConfigDict, Field, PrivateAttr, StrictBool, model_validator
from typing_extensions import Annotated, Self, override

from cbt_crypto.cluster_overlays import ceph_options_on_host
from cbt_crypto.cluster_overlays.base import Overlay, Seen, Transition, Verdict, Watch
from cbt_crypto.errors import RunError
from cbt_crypto.hosts import rados_client_on_host, shell
from cbt_crypto.hosts.ceph_conf import normal_name
from cbt_crypto.hosts.requirement import Requirement
from cbt_crypto.hosts.secret import document_without, is_secret
from cbt_crypto.hosts.shell import joined
from cbt_crypto.hosts.site import HostOutputs, HostScripts, Site

#: An option's value: one line, as it is written in ceph.conf.
Value = Union[
    StrictBool, int, float, Annotated[str, Field(pattern=r"^[^\s#;\\]([^\n\r#;\\]*[^\s#;\\])?$")]
]
#: Section -> option -> value.
Options = dict[str, dict[str, str]]

#: Sections of which all daemons and clients take something, and what is made of one daemon alone.
KINDS = ("global", "mon", "mgr", "osd", "client")
#: Options that this program, or another overlay, decides: patterns -> what to use instead.
_DECIDED: Mapping[str, str] = {
    "ms_c*_mode": "name the overlay secure_messenger",
    "ms_service_mode": "name the overlay secure_messenger",
    "ms_mon_*_mode": "name the overlay secure_messenger",
    "ms_bind_*": "name the overlay secure_messenger",
    "auth_*": "name the overlay secure_messenger, or write cluster.auth_cipher",
    "public_*": "name the overlay network",
    "cluster_addr": "name the overlay network",
    "cluster_network*": "name the overlay network",
    "osd_numa_*": "name the overlay cpuset",
    "bluestore_block_*": "name the overlay db_device, or write cluster.osd_devices",
    **dict.fromkeys(
        ("fsid", "host", "mon_host", "mon_initial_members", "mon_data", "mgr_data", "osd_data",
         "osd_objectstore", "osd_uuid", "monmap", "key", "keyfile", "keyring", "run_dir",
         "admin_socket", "pid_file", "log_file", "crash_dir", "chdir", "setuser", "setgroup",
         "bluestore_bluefs*", "bluestore_kvbackend", "mon_keyvaluedb", "mgr_initial_modules"),
        "remove it: each deployment decides it",
    ),
}  # fmt: skip
#: Options by which data is written, or a cluster made: what is there already keeps what it has.
_MADE_WITH = (
    "bluestore_compression_*", "bluestore_csum_*", "bluestore_*blob_size*",
    "bluestore_*alloc_size*", "osd_pool_default_*", "osd_crush_*", "mon_osd_*_ratio",
    "mon_cache_target_full_warn_ratio", "mon_osd_initial_*", "mon_debug_no_*", "osd_journal_size",
    "rbd_default_*",
)  # fmt: skip
#: What two messengers agree on when they connect; Ceph says "runtime" of these too.
_AT_CONNECT = "ms_*"
#: Ceph notes it by itself, when an OSD starts.
_MEASURED_BY_CEPH = "osd_mclock_max_capacity_iops_*"
_CLIENT = "@ceph-options"


def _any(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


@dataclass(frozen=True)
class Known(Requirement):
    """The requirement that the release has these options, and takes these values."""

    def judge(self, output: str) -> Optional[str]:
        """One sentence on the first that is wrong."""
        try:
            return next(_faults(json.loads(output)), None)
        except (ValueError, AttributeError):
            return "Ceph did not say there which options it has; install ceph-common"


def _faults(known: Mapping[str, Any]) -> Iterator[str]:
    for name, about in known.items():
        if "nearest" in about:
            near = about["nearest"]
            meant = f"did you mean {' or '.join(near)}?" if near else "see ceph config ls"
            yield f"ceph_options: this release has no option {name}; {meant}"
            continue
        if {"create", "cluster_create"} & set(about["flags"]) and not _any(name, _MADE_WITH):
            yield (
                f"ceph_options: {name} counts only when a daemon is made, and is not one of those "
                "that are compared so; set it in conf_file, for all configurations"
            )
        for value, shown in about["values"].items():
            if shown is None or _is_outside(about, shown):
                yield f"ceph_options: {name} = {value}: {_wanted(about)}"


def _is_outside(about: Mapping[str, Any], shown: str) -> bool:
    """Whether Ceph takes the value, but not for a daemon: it checks ranges when one starts."""
    try:
        value = float(shown)
        return any(
            about[key] not in ("", None) and sign * value > sign * float(about[key])
            for key, sign in (("min", -1), ("max", 1))
        )
    except ValueError:
        return False


def _wanted(about: Mapping[str, Any]) -> str:
    if about.get("enum_values"):
        return f"Ceph takes {', '.join(about['enum_values'])}"
    limits = [f"{word} {about[key]}" for key, word in (("min", "at least"), ("max", "at most"))
              if about[key] not in ("", None)]  # fmt: skip
    return " ".join(["Ceph takes a value of type", str(about["type"]), *limits])


class CephOptions(Overlay):
    """Set options of Ceph; the keys are sections of ceph.conf, such as `osd`, `osd.3`, `client`."""

    model_config = ConfigDict(extra="allow", frozen=True, defer_build=True)
    __pydantic_extra__: dict[str, dict[str, Value]]

    name: ClassVar[str] = "ceph_options"

    #: What other configurations set and this one leaves alone, and what all set.
    _left: frozenset[tuple[str, str]] = PrivateAttr(default=frozenset())
    _all: Mapping[str, tuple[str, ...]] = PrivateAttr(default={})
    #: What the release says of the options, when it was asked.
    _known: Mapping[str, Any] = PrivateAttr(default={})

    @model_validator(mode="before")
    @classmethod
    def _check_sections(cls, data: Any) -> Any:
        for section, options in data.items() if isinstance(data, dict) else ():
            kind, _, which = section.partition(".")
            if section not in KINDS and not (kind in ("mon", "mgr", "osd") and which):
                raise ValueError(
                    f"{section}: is no section; write {', '.join(KINDS)} or a daemon, as osd.3"
                )
            if not options:
                raise ValueError(f"{section}: is empty; give at least one option, as osd_op_queue")
            for option in map(normal_name, map(str, options if isinstance(options, dict) else ())):
                advice = next((a for p, a in _DECIDED.items() if _any(option, [p])), None)
                if advice:
                    raise ValueError(f"{section}.{option}: is not set here; {advice}")
        return data

    @classmethod
    @override
    def beside(
        cls, configurations: Mapping[str, tuple[Overlay, ...]]
    ) -> dict[str, tuple[Overlay, ...]]:
        named = [each for overlays in configurations.values() for each in overlays
                 if isinstance(each, cls)]  # fmt: skip
        if not named:
            return dict(configurations)
        everything = {pair for each in named for pair in each._pairs()}
        values: dict[str, set[str]] = {}
        for each in named:
            for section, option in each._pairs():
                values.setdefault(option, set()).add(each._options[section][option])
        asked = {option: tuple(sorted(values[option])) for option in sorted(values)}
        completed = {}
        for name, overlays in configurations.items():
            own = next((each for each in overlays if isinstance(each, cls)), cls.make_absent())
            stated = own.model_copy()
            stated._left = frozenset(everything - own._pairs())
            stated._all = asked
            others = tuple(each for each in overlays if each is not own)
            place = overlays.index(own) if own in overlays else len(overlays)
            completed[name] = (*others[:place], stated, *others[place:])
        return completed

    @property
    def _options(self) -> Options:
        sections: Options = {}
        for section, options in (self.__pydantic_extra__ or {}).items():
            sections[section] = {
                normal_name(name): str(value).lower() if isinstance(value, bool) else str(value)
                for name, value in options.items()
            }
        return sections

    def _pairs(self) -> set[tuple[str, str]]:
        return {(section, name) for section, of in self._options.items() for name in of}

    def _is_live(self, name: str) -> bool:
        """Whether daemons alone take it, and are said to as they run; the rest is in ceph.conf."""
        sections = {section for section, option in (*self._left, *self._pairs()) if option == name}
        of_daemons = not sections & {"global", "client"}
        is_read_anew = of_daemons and not _any(name, (*_MADE_WITH, _AT_CONNECT))
        return is_read_anew and "runtime" in self._known.get(name, {}).get("flags", ())

    @property
    @override
    def stands_beside(self) -> bool:
        return {section for section, _ in (*self._left, *self._pairs())} <= {"osd", "client"}

    @property
    @override
    def is_for_kernel_clients(self) -> bool:
        return not self._options.get("client")

    @override
    def check_ceph_conf(self, conf: Mapping[str, Mapping[str, str]]) -> Optional[str]:
        for section, options in self._options.items():
            for other, of_conf in conf.items():
                is_nearer = section == "global" or other.startswith(f"{section}.")
                for name in options if is_nearer and other != section else ():
                    if name in {normal_name(option) for option in of_conf}:
                        return (
                            f"ceph.conf sets {name} in [{other}], which counts more than "
                            f"ceph_options in [{section}]; remove the line"
                        )
        return None

    @override
    def ceph_conf(self) -> Mapping[str, Mapping[str, str]]:
        return {
            section: {name: value for name, value in options.items() if not self._is_live(name)}
            for section, options in self._options.items()
        }

    @override
    def requirements(self, site: Site) -> Sequence[Requirement]:
        scripts = self.ask(site)
        return [Known("options of Ceph", (host,), script) for host, script in scripts.items()]

    @override
    def ask(self, site: Site) -> HostScripts:
        if not self._all:
            return {}
        # The archive keeps the answers: a password is not asked about, which Ceph shows as it is.
        wanted = {
            name: [value for value in values if not is_secret(name, value)]
            for name, values in self._all.items()
        }
        return dict.fromkeys((*site.daemon_hosts, *site.clients), _run({"wanted": wanted}))

    @override
    def decided(self, outputs: HostOutputs) -> Self:
        answers = [json.loads(output) for output in outputs.values()]
        fault = next((fault for answer in answers for fault in _faults(answer)), None)
        if fault:
            raise RunError(fault)
        if any(answer != answers[0] for answer in answers):
            raise RunError(
                "ceph_options: hosts have releases of Ceph that differ in these options; install "
                "the same one on all"
            )
        decided = self.model_copy()
        decided._known = answers[0]
        return decided

    @override
    def transition_to(self, new: Self) -> Transition:
        ours, others = self._options, new._options
        changed = {
            name
            for section, name in self._pairs() | new._pairs()
            if ours.get(section, {}).get(name) != others.get(section, {}).get(name)
        }
        if not changed:
            return Transition.NONE
        if any(_any(name, _MADE_WITH) for name in changed):
            return Transition.REBUILD
        return Transition.LIVE if all(map(self._is_live, changed)) else Transition.RESTART

    def _asked(self, site: Site, host: str) -> dict[str, Any]:
        osds = [f"osd.{osd.id}" for osd in site.osds_of(host)]
        folder = os.path.dirname(site.osds[0].admin_socket) if site.osds else ""
        return {"folder": folder, "osds": osds, "names": list(self._all)}

    @override
    def after_osds(self, site: Site) -> HostScripts:
        live = [name for name in self._all if self._is_live(name)]
        if not live or not site.osds:
            return {}
        sections = {
            section: {name: value for name, value in options.items() if name in live}
            for section, options in self._options.items()
        }
        return {
            host: _run({**self._asked(site, host), "names": live, "sections": sections})
            for host in site.daemon_hosts
        }

    @override
    def probe(self, site: Site) -> HostScripts:
        if not self._all or not site.osds:
            return {}
        daemons = {host: _run(self._asked(site, host)) for host in site.daemon_hosts}
        return joined((daemons, self._ask_clients(site)))

    def _ask_clients(self, site: Site) -> HostScripts:
        names = self._of_clients()
        if not names:
            return {}
        request = {"conf": site.conf, "user": site.client_id, "names": names}
        ask = shell.python(shell.program(rados_client_on_host), request)
        return dict.fromkeys(site.active_clients, shell.section(_CLIENT, f"(\n{ask}) || :"))

    def _of_clients(self) -> list[str]:
        pairs = (*self._left, *self._pairs())
        return sorted({name for section, name in pairs if section in ("global", "client")})

    @override
    def judge(self, site: Site, before: HostOutputs, after: HostOutputs) -> Verdict:
        if not self._all or not site.osds:
            return Verdict(True, "no configuration sets an option of Ceph here")
        looks = [self._look(site, outputs) for outputs in (before, after)]
        evidence = {who: {name: facts["value"] for name, facts in options.items()}
                    for who, options in looks[-1].items() if "error" not in options}  # fmt: skip
        wrong = next(self._wrong(site, looks), None)
        return Verdict(wrong is None, wrong or self._claim(looks[-1]), evidence)

    def _look(self, site: Site, outputs: HostOutputs) -> dict[str, Any]:
        """Daemon, or client and host -> option -> facts; who could not say has an error."""
        found: dict[str, Any] = {}
        for host, output in outputs.items():
            daemons, _, client = output.partition(_CLIENT)
            try:
                said = dict(json.loads(daemons)) if host in site.daemon_hosts else {}
            except (ValueError, TypeError):
                said = {}
                found[f"the daemons on {host}"] = {"error": f"printed {daemons[-200:]!r}"}
            of_daemons = {w: f for w, f in said.items() if w.startswith(("osd.", "mon.", "mgr."))}
            found.update(site.heard(host, of_daemons, found))
            names = self._of_clients()
            if names and host in site.active_clients:
                values = client.strip().split(" ")
                found[f"client on {host}"] = (
                    {name: {"value": value, "set": []} for name, value in zip(names, values)}
                    if len(values) == len(names) and client.strip()
                    else {"error": "it could not connect"}
                )
        return found

    def _wrong(self, site: Site, looks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        # One that the file names, and is not there, runs with nothing.
        expected = {f"osd.{osd.id}" for osd in site.osds} | {*self._options} - {*KINDS}
        if self._of_clients():
            expected |= {f"client on {host}" for host in site.active_clients}
        for look in looks:
            expected |= look.keys()  # who said so before the cell is missed after it
            for who in sorted(expected):
                error = look.get(who, {"error": "nothing came"}).get("error")
                if error:
                    yield f"{who} did not say which options it runs with: {error}"
        before, after = ({(who, name): facts for who, options in look.items()
                          for name, facts in options.items() if name != "error"}
                         for look in looks)  # fmt: skip
        for values in (before, after):
            for (who, name), facts in values.items():
                yield from self._fault(who, name, facts)
        for (who, name), facts in after.items():
            was = before.get((who, name), facts)["value"]
            if was != facts["value"]:
                now = _shown(name, facts["value"])
                yield f"{who}: {name} was {_shown(name, was)} before the cell, and {now} after it"

    def _fault(self, who: str, name: str, facts: Mapping[str, Any]) -> Iterator[str]:
        wanted = self._wanted(who, name)
        by_hand = () if _any(name, [_MEASURED_BY_CEPH]) else facts["set"]
        if facts["value"] is None:
            yield f"{who} knows no option {name}"
        elif wanted is None and by_hand:
            yield f"{who}: {name} was set there ({by_hand[0]})"
        elif wanted not in (None, facts["value"]):
            value = _set(name, facts["value"])
            yield f"{who} runs with {value} and not {_shown(name, wanted)}"

    def _wanted(self, who: str, name: str) -> Optional[str]:
        """The value that it is to have, as Ceph shows it; None for what is left alone."""
        kind = who.partition(".")[0].partition(" ")[0]
        found = None
        for section in ("global", kind, who.partition(" ")[0]):
            found = self._options.get(section, {}).get(name, found)
        if found is None:
            return None
        shown = self._known.get(name, {}).get("values", {}).get(found)
        return str(found if shown is None else shown)

    def _claim(self, look: Mapping[str, Any]) -> str:
        set_here: dict[str, list[str]] = {}
        for who, options in look.items():
            for name in options:
                wanted = self._wanted(who, name)
                if wanted is not None:
                    set_here.setdefault(_set(name, wanted), []).append(who)
        if not set_here:
            return f"nobody set {', '.join(self._all)}"
        return "; ".join(f"{len(who)} run with {what}" for what, who in set_here.items())

    @override
    def watch(self, site: Site) -> Mapping[str, Watch]:
        if not self._all or not site.osds:
            return {}
        source = shell.program(ceph_options_on_host)
        return {host: Watch(source, self._asked(site, host)) for host in site.daemon_hosts}

    @override
    def judge_seen(self, site: Site, seen: Mapping[str, Sequence[Seen]]) -> Optional[str]:
        for looks in seen.values():
            first = looks[0].value if looks else {}
            for look in looks:
                for who, options in look.value.items():
                    for name, value in options.items():
                        wanted = self._wanted(who, name) or first.get(who, {}).get(name)
                        if wanted is not None and value != wanted:
                            ran, not_ = _set(name, value), _shown(name, wanted)
                            return f"{who} ran with {ran} meanwhile, and not {not_}"
        return None


def _shown(name: str, value: Any) -> Any:
    return document_without(value, name)


def _set(name: str, value: Any) -> str:
    return f"{name} = {_shown(name, value)}"


def _run(asked: Mapping[str, Any]) -> str:
    """By stdin: what is asked may be a password, and every user of a host sees its processes."""
    return shell.python(shell.call_of_main(ceph_options_on_host, asked), None)

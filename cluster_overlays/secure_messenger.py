"""Everything that Ceph sends is encrypted on the wire: messenger v2 in its secure mode."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Optional, Union

from typing_extensions import override

from cbt_crypto.cluster_overlays import base
from cbt_crypto.cluster_overlays.base import Finding, Overlay, Transition, Verdict, judge_all
from cbt_crypto.hosts import admin_socket, rados_client_on_host, shell
from cbt_crypto.hosts.admin_socket import Answers, Question
from cbt_crypto.hosts.ceph_conf import normal_name
from cbt_crypto.hosts.shell import joined
from cbt_crypto.hosts.site import HostOutputs, HostScripts, Osd, Site

#: Where the counters are in the answer to `perf dump`: the messenger's of whole frames, and the
#: OSD's of the data in them that clients and other OSDs wanted moved.
COUNTERS = (
    "AsyncMessenger::Worker-*/msgr_*_bytes",
    "osd/op_in_bytes",
    "osd/op_out_bytes",
    "osd/subop_in_bytes",
)

_TOTAL = ("msgr_recv_bytes", "msgr_send_bytes")
_ENCRYPTED = ("msgr_recv_encrypted_bytes", "msgr_send_encrypted_bytes")


@dataclass(frozen=True)
class Traffic:
    """Bytes of an OSD's messenger; `encrypted` None: not counted; `drift`: moved meanwhile."""

    total: int
    encrypted: Optional[int]
    drift: int
    #: Of those above, what was received.
    received: int = 0
    encrypted_received: int = 0
    #: Data of clients' operations, both ways, and of other OSDs' replicas, received.
    client_data: int = 0
    osd_data: int = 0

    @classmethod
    def from_answer(cls, answer: Sequence[Mapping[str, int]]) -> Traffic:
        """Since the start: from the last two answers of a steady question for `COUNTERS`."""
        previous, last = answer
        total = _values(last, _TOTAL)
        encrypted = _values(last, _ENCRYPTED)
        return cls(
            total=sum(total),
            encrypted=sum(encrypted) if encrypted else None,
            drift=sum(total) - sum(_values(previous, _TOTAL)),
            received=sum(_values(last, _TOTAL[:1])),
            encrypted_received=sum(_values(last, _ENCRYPTED[:1])),
            client_data=sum(_values(last, ("op_in_bytes", "op_out_bytes"))),
            osd_data=sum(_values(last, ("subop_in_bytes",))),
        )

    def __add__(self, other: Traffic) -> Traffic:
        return self._with(other, 1)

    def __sub__(self, before: Traffic) -> Traffic:
        """What moved since an earlier reading of the same OSD; both readings drifted."""
        return self._with(before, -1)

    def _with(self, other: Traffic, sign: int) -> Traffic:
        known = self.encrypted is not None and other.encrypted is not None
        return Traffic(
            total=self.total + sign * other.total,
            encrypted=(self.encrypted or 0) + sign * (other.encrypted or 0) if known else None,
            drift=self.drift + other.drift,
            received=self.received + sign * other.received,
            encrypted_received=self.encrypted_received + sign * other.encrypted_received,
            client_data=self.client_data + sign * other.client_data,
            osd_data=self.osd_data + sign * other.osd_data,
        )

    @property
    def restart_fault(self) -> Optional[str]:
        """What makes the readings useless."""
        is_back = self.total < 0
        return "its counters went back during the cell, so it was restarted" if is_back else None

    def encryption_fault(self) -> Optional[str]:
        """What contradicts that all of it was encrypted."""
        is_all = self.encrypted is None or abs(self.total - self.encrypted) <= self.drift
        wrong = None if is_all else f"{self.encrypted} of {self.total} bytes were encrypted"
        return self.restart_fault or wrong

    def plaintext_fault(self) -> Optional[str]:
        """What contradicts that none of it was encrypted."""
        wrong = f"{self.encrypted} bytes were encrypted" if self.encrypted else None
        return self.restart_fault or wrong

    def evidence(self) -> dict[str, Any]:
        """Bytes and encrypted bytes, as proof.json has them."""
        evidence: dict[str, Any] = {"bytes": self.total, "encrypted_bytes": self.encrypted}
        if self.drift:
            evidence["bytes_while_reading"] = self.drift
        return evidence


NOTHING = Traffic(total=0, encrypted=0, drift=0)


def _values(leaves: Mapping[str, int], names: Sequence[str]) -> list[int]:
    return [value for path, value in leaves.items() if path.rpartition("/")[2] in names]


#: A share of bytes that says nothing: heartbeats, maps, reports.
_NOISE = 0.01
#: The same for an OSD that was hardly loaded, and what counts as load, in bytes.
_NOISE_BYTES = 16 << 10
_LOAD_BYTES = 1 << 20


#: The option without which a daemon offers its peers messenger v1 alone.
SPEAKS_MSGR2 = "ms_bind_msgr2"


class Mode(str, enum.Enum):
    """How a kind of peers speaks."""

    SECURE = "secure"
    CRC = "crc"
    MIXED = "mixed"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Agreed:
    """What an OSD agreed on with clients and with other OSDs, and where that shows."""

    clients: Mode
    osds: Mode
    monitors: Mode
    shown_by: str

    def is_all(self, mode: Mode) -> bool:
        """Whether data moved in that mode and no other; what nothing shows is no contradiction."""
        modes = {self.clients, self.osds} - {Mode.UNKNOWN}
        return modes == {mode} and self.clients is mode

    def words(self) -> str:
        """Both modes and what shows them: `clients secure, OSDs crc, by its connections`."""
        return f"clients {self.clients.value}, OSDs {self.osds.value}, by its {self.shown_by}"


def agreed(
    traffic: Traffic,
    connections: Optional[Mapping[str, Mapping[str, int]]],
    modes: Mapping[str, str],
    client_modes: Iterable[str],
    is_watched: bool = False,
) -> Agreed:
    """Judge one OSD; `connections`: kind of peer -> mode -> number, None when Ceph cannot say.

    `client_modes`: the clients' ms_client_mode; `is_watched`: secure OSDs send it heartbeats.
    """
    bytes_say = by_bytes(traffic)
    if is_watched and bytes_say is Mode.MIXED and _is_less_than_data(traffic):
        bytes_say = Mode.CRC
    service = _words(modes.get("ms_service_mode"))
    clients = _common_mode(chosen(_words(mode), service) for mode in client_modes)
    cluster = _words(modes.get("ms_cluster_mode"))
    osds = chosen(cluster, cluster)
    shown = [] if traffic.encrypted is not None else ["modes (this Ceph counts no encrypted bytes)"]
    if modes.get(SPEAKS_MSGR2) == "false":
        # Whatever the modes say, which are messenger v2's.
        clients = osds = Mode.CRC
        shown = ["messenger v1, which encrypts nothing"]
    if bytes_say is Mode.MIXED and {clients, osds} == {Mode.SECURE, Mode.CRC}:
        # A mixture as the modes foretell it.
        shown.append("bytes and modes")
    elif bytes_say is not Mode.UNKNOWN:
        # Of whom next to nothing came, bytes say nothing: an OSD can be no group's primary.
        by_clients = traffic.client_data >= _LOAD_BYTES
        clients = bytes_say if by_clients else clients
        osds = bytes_say if traffic.osd_data >= _LOAD_BYTES else osds
        shown.append("bytes" if by_clients else "bytes and modes")
    seen = _common_mode(_mode(name) for name in (connections or {}).get("osd", {}))
    if seen is not Mode.UNKNOWN:
        osds = seen
        shown.append("connections")
    monitors = _common_mode(_mode(name) for name in (connections or {}).get("mon", {}))
    if monitors is Mode.UNKNOWN:
        allowed = _words(modes.get("ms_mon_client_mode"))
        monitors = chosen(allowed, allowed)
    return Agreed(clients, osds, monitors, " and ".join(shown) or "modes")


def by_bytes(traffic: Traffic) -> Mode:
    """How this OSD spoke with what loaded it; UNKNOWN where that was too little to tell."""
    if traffic.encrypted is None or not is_loaded(traffic):
        return Mode.UNKNOWN
    slack = traffic.drift + _NOISE_BYTES
    if traffic.encrypted_received <= _NOISE * traffic.received + slack:
        return Mode.CRC
    if traffic.total - traffic.encrypted <= _NOISE * traffic.total + slack:
        return Mode.SECURE
    return Mode.MIXED


def _is_less_than_data(traffic: Traffic) -> bool:
    """Whether what was encrypted is too little to be the clients' data, or the replicas."""
    loads = [data for data in (traffic.client_data, traffic.osd_data) if data >= _LOAD_BYTES]
    return bool(loads) and all(2 * (traffic.encrypted or 0) < data for data in loads)


def is_loaded(traffic: Traffic) -> bool:
    """Whether clients or other OSDs moved data through it."""
    return traffic.client_data + traffic.osd_data >= _LOAD_BYTES


def chosen(wanted: Sequence[str], allowed: Sequence[str]) -> Mode:
    """What a peer that wants these modes, the first most, agrees on with one that allows those."""
    return next((_mode(name) for name in wanted if name in allowed), Mode.UNKNOWN)


def fault(negotiated: Agreed, wanted: Mode, traffic: Traffic) -> Optional[str]:
    """What contradicts that an OSD's data moved in that mode, a clause, or None."""
    without_clients = traffic.client_data < _LOAD_BYTES and negotiated.clients is Mode.UNKNOWN
    idles = not is_loaded(traffic) and negotiated.osds in (wanted, Mode.UNKNOWN)
    # Little for each of many OSDs is what a cell moved, all the same.
    idles = idles and (negotiated.clients in (wanted, Mode.UNKNOWN) or not traffic.client_data)
    if negotiated.is_all(wanted) or idles or (without_clients and negotiated.osds is wanted):
        return None
    kinds = {Mode.SECURE: "encrypted", Mode.CRC: "plain"}
    same = negotiated.clients if negotiated.clients is negotiated.osds else Mode.MIXED
    clause = f"its traffic is {kinds.get(same, 'mixed')}: {negotiated.words()}"
    return f"{clause}{share(traffic)}"


def negotiated_claim(total: Traffic, negotiated: Sequence[Agreed], wanted: Mode) -> str:
    """Completes the sentence "4 of 4 OSDs ...", of what was found at each."""
    shown = sorted({of_osd.shown_by for of_osd in negotiated}, key=len)
    how = "encrypted" if wanted is Mode.SECURE else "did not encrypt"
    text = f"{how} what they exchanged with clients and one another"
    text += f", by their {shown[-1]}" if shown else ""
    text += share(total)
    only_monitors = all(of_osd.monitors is Mode.SECURE for of_osd in negotiated)
    only_monitors &= by_bytes(total) is Mode.CRC
    if wanted is Mode.CRC and total.encrypted and only_monitors:
        text += ", towards monitors and managers"
    return text


def share(traffic: Traffic) -> str:
    """How much of it was encrypted, to go on a sentence; empty where Ceph does not count that."""
    if traffic.encrypted is None or traffic.total <= 0:
        return ""
    percent = 100 * traffic.encrypted / traffic.total
    exact = percent in (0, 100)
    shown = f"{percent:.0f}" if exact else f"{min(max(percent, 0.01), 99.99):.2f}"
    return f"; {shown} % of {traffic.total} bytes were encrypted"


def connections_of(leaves: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Kind of peer -> mode -> how many, of the flat answers to `messenger dump`."""
    by_peer: dict[str, dict[str, int]] = {}
    ending = "/protocol/v2/con_mode"
    for path, mode in leaves.items():
        if not path.endswith(ending):
            continue
        base = path[: -len(ending)]
        if leaves.get(f"{base}/state") != "STATE_CONNECTION_ESTABLISHED":
            continue
        kind = str(leaves.get(f"{base}/peer/type"))
        if leaves.get(f"{base}/peer/entity_name/type_str") == "mgr":
            kind = "mgr"  # a manager is a client too
        modes = by_peer.setdefault(kind, {})
        modes[str(mode)] = modes.get(str(mode), 0) + 1
    return by_peer


def _words(value: Optional[str]) -> list[str]:
    return (value or "").replace(",", " ").split()


def _mode(name: str) -> Mode:
    return Mode(name) if name in (Mode.SECURE.value, Mode.CRC.value) else Mode.UNKNOWN


def _common_mode(modes: Iterable[Mode]) -> Mode:
    distinct = set(modes)
    return distinct.pop() if len(distinct) == 1 else Mode.MIXED if distinct else Mode.UNKNOWN


_MODE_OPTIONS = (
    "ms_client_mode",
    "ms_cluster_mode",
    "ms_service_mode",
    "ms_mon_client_mode",
    "ms_mon_cluster_mode",
    "ms_mon_service_mode",
)
_SHOWN = (*_MODE_OPTIONS, SPEAKS_MSGR2)
_AUTH_OPTIONS = ("auth_cluster_required", "auth_service_required", "auth_client_required")
_CEPHX = dict.fromkeys(_AUTH_OPTIONS, "cephx")
_CRC_BESIDE_SECURE = {"ms_cluster_mode": "crc secure"}
_OLD_AUTH_OPTION = "auth_supported"
#: The messengers of an OSD that data goes through, as `messenger dump` calls them.
_MESSENGERS = ("client", "cluster")
#: What matters of each connection there.
_PEERS = tuple(
    f"messenger/connections/*/async_connection/{leaf}"
    for leaf in ("state", "peer/type", "peer/entity_name/type_str", "protocol/v2/con_mode")
)
#: Stands before what a client printed.
_CLIENT_MODE = "@client-mode"


class SecureMessenger(Overlay):
    """Encrypt all traffic between daemons and with clients; without it, check sums only."""

    name: ClassVar[str] = "secure_messenger"
    if_absent: ClassVar[base.Absent] = {}
    always_beside: ClassVar[bool] = True
    is_recognised: ClassVar[bool] = True
    change: ClassVar[Transition] = Transition.RESTART

    @property
    def _mode(self) -> str:
        return "secure" if self.is_present else "crc"

    @override
    def ceph_conf(self) -> Mapping[str, Mapping[str, str]]:
        stated = dict.fromkeys(_MODE_OPTIONS, self._mode)
        if self.is_present:
            stated["ms_bind_msgr1"] = "false"
            stated.update(_CEPHX)
        return {"global": stated}

    @override
    def conf_beside(self) -> Mapping[str, Mapping[str, str]]:
        if self.is_present:
            return self.ceph_conf()
        # OSDs of all groups watch one another: those that are secure take nothing else.
        return {"global": {**dict.fromkeys(_MODE_OPTIONS, "crc"), **_CRC_BESIDE_SECURE}}

    @override
    def conf_of_all(self) -> Mapping[str, Mapping[str, str]]:
        stated = dict.fromkeys(_MODE_OPTIONS, "secure crc")
        return {"global": {**stated, "ms_bind_msgr1": "false", **_CEPHX}}

    @override
    def check_ceph_conf(self, conf: Mapping[str, Mapping[str, str]]) -> Optional[str]:
        for section, options in conf.items():
            for option, value in options.items():
                advice = self._contradicted_by(normal_name(option.lower()), value)
                if advice:
                    return f"ceph.conf sets {option} = {value} in [{section}], but {advice}"
        return None

    def _contradicted_by(self, option: str, value: str) -> Optional[str]:
        if option in _MODE_OPTIONS and value.strip() != self._mode:
            return (
                "that is what the secure_messenger overlay decides: remove the line, "
                "and name the overlay in the configurations that are to be encrypted"
            )
        if not self.is_present:
            return None
        methods = re.split(r"[\s,;]+", value.lower())
        if option in (*_AUTH_OPTIONS, _OLD_AUTH_OPTION) and "none" in methods:
            return "the secure messenger takes its keys from cephx: write cephx, or remove the line"
        if option == "ms_bind_msgr1" and value.strip().lower() in ("true", "1", "yes", "on"):
            return "messenger v1 is never encrypted: remove the line"
        return None

    @override
    def probe(self, site: Site) -> HostScripts:
        sockets = {
            host: admin_socket.script([q for osd in site.osds_of(host) for q in _questions(osd)])
            for host in site.osd_hosts
        }
        return joined((sockets, _ask_clients(site) if self._is_agreed_on(site) else {}))

    @override
    def judge(self, site: Site, before: HostOutputs, after: HostOutputs) -> Verdict:
        looks = (_answers(site, before), _answers(site, after))
        traffic = {osd: _traffic(osd, *looks) for osd in site.osds}
        if self._is_agreed_on(site):
            modes, is_watched = _client_modes(site, after), self._is_watched(site)
            return self._judge_negotiated(traffic, looks[1], modes, is_watched=is_watched)
        findings = {osd: self._finding(osd, traffic[osd], looks[1]) for osd in site.osds}
        moved = [of_osd for of_osd in traffic.values() if isinstance(of_osd, Traffic)]
        return self._unless_silent(judge_all(self, findings, self._claim(moved)), moved)

    def _is_agreed_on(self, site: Site) -> bool:
        """Whether an OSD leaves it to its peers: somebody else's, or a plain one beside others."""
        return self._is_watched(site) or any(osd.is_existing for osd in site.osds)

    def _is_watched(self, site: Site) -> bool:
        """Whether these are plain OSDs beside secure ones."""
        return self.name in site.unlike and not self.is_present

    def _judge_negotiated(
        self, traffic: Mapping[Osd, Union[Traffic, str]], look: Answers,
        client_modes: Sequence[str], *, is_watched: bool,
    ) -> Verdict:  # fmt: skip
        """Judge a cluster that somebody else deployed, by what was negotiated there."""
        wanted = Mode.SECURE if self.is_present else Mode.CRC
        findings: dict[Osd, Finding] = {}
        agreements: list[tuple[Traffic, Agreed]] = []
        for osd, moved in traffic.items():
            if isinstance(moved, str) or moved.restart_fault:
                findings[osd] = Finding(moved if isinstance(moved, str) else moved.restart_fault)
                continue
            modes = look.values[_key(osd, "modes")]
            connections = _connections(osd, look)
            negotiated_here = agreed(moved, connections, modes, client_modes, is_watched)
            agreements.append((moved, negotiated_here))
            evidence = {"modes": modes, "client_modes": list(client_modes), **moved.evidence()}
            evidence |= {"connections": connections, "agreed": asdict(negotiated_here)}
            findings[osd] = Finding(fault(negotiated_here, wanted, moved), evidence)
        total = sum((moved for moved, _ in agreements), NOTHING)
        claim = negotiated_claim(total, [negotiated for _, negotiated in agreements], wanted)
        seen = [of_osd for of_osd, _ in agreements]
        return self._unless_silent(judge_all(self, findings, claim), seen)

    def _claim(self, traffic: Sequence[Traffic]) -> str:
        claim = f"encrypted {'every' if self.is_present else 'no'} byte"
        if any(of_osd.encrypted is None for of_osd in traffic):
            claim += " by the modes they run with (this Ceph counts no encrypted bytes)"
        return claim

    def _finding(self, osd: Osd, traffic: Union[Traffic, str], look: Answers) -> Finding:
        if isinstance(traffic, str):
            return Finding(traffic)
        modes = look.values[_key(osd, "modes")]
        wrong = [option for option in _MODE_OPTIONS if modes.get(option) != self._mode]
        if wrong:
            fault: Optional[str] = f"it runs with {wrong[0]} = {modes.get(wrong[0])}"
        else:
            fault = traffic.encryption_fault() if self.is_present else traffic.plaintext_fault()
        return Finding(fault, {"modes": modes, **traffic.evidence()})

    def _unless_silent(self, verdict: Verdict, traffic: Sequence[Traffic]) -> Verdict:
        """What no single OSD can show."""
        if not (verdict.proved and self.is_present) or any(one.total > 0 for one in traffic):
            return verdict
        silent = "no OSD sent or received a byte in this cell, which proves nothing"
        return Verdict(False, silent, verdict.evidence)


def _key(osd: Osd, what: str) -> str:
    return f"osd.{osd.id} {what}"


def _questions(osd: Osd) -> tuple[Question, ...]:
    socket = osd.admin_socket
    return (
        Question(_key(osd, "bytes"), socket, {"prefix": "perf dump"}, COUNTERS, steady=True),
        Question(_key(osd, "modes"), socket, {"prefix": "config show"}, _SHOWN),
        *(
            Question(_key(osd, name), socket, {"prefix": "messenger dump", "msgr": name}, _PEERS)
            for name in (_MESSENGERS if osd.is_existing else ())
        ),
    )


def _connections(osd: Osd, look: Answers) -> Optional[dict[str, dict[str, int]]]:
    """Kind of peer -> mode -> connections; None where Ceph does not tell (before 20.2)."""
    keys = [_key(osd, name) for name in _MESSENGERS]
    answers = [look.values[key] for key in keys if key in look.values]
    if not answers:
        return None
    leaves = {
        f"{n}/{path}": leaf for n, answer in enumerate(answers) for path, leaf in answer.items()
    }
    return connections_of(leaves)


def _ask_clients(site: Site) -> HostScripts:
    """What the clients want, where OSDs leave it to them."""
    request = {"conf": site.conf, "user": site.client_id, "names": ["ms_client_mode"]}
    ask = shell.python(shell.program(rados_client_on_host), request)
    script = shell.section(_CLIENT_MODE, f"(\n{ask}) || :")
    return dict.fromkeys(site.active_clients, script)


def _client_modes(site: Site, outputs: HostOutputs) -> list[str]:
    modes = (outputs.get(host, "").partition(_CLIENT_MODE)[2] for host in site.active_clients)
    return list(dict.fromkeys(text.strip() for text in modes))


def _answers(site: Site, outputs: HostOutputs) -> Answers:
    of_osds = {host: text for host, text in outputs.items() if host in site.osd_hosts}
    said = {host: text.partition(_CLIENT_MODE)[0] for host, text in of_osds.items()}
    return admin_socket.parse(site, said)


def _traffic(osd: Osd, before: Answers, after: Answers) -> Union[Traffic, str]:
    for look in (before, after):
        for question in ("bytes", "modes"):
            fault = look.fault(_key(osd, question), osd.host)
            if fault:
                return fault
    then, now = (Traffic.from_answer(look.values[_key(osd, "bytes")]) for look in (before, after))
    return now - then

"""Everything that Ceph sends is encrypted on the wire: messenger v2 in its secure mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import ClassVar, Optional, Union

from typing_extensions import Self, override

from cbt_crypto.cluster_overlays.base import Overlay, Transition, Verdict
from cbt_crypto.cluster_overlays.findings import Finding, judge_all
from cbt_crypto.cluster_overlays.secure_messenger import negotiated
from cbt_crypto.cluster_overlays.secure_messenger.negotiated import (
    Agreed,
    Mode,
    agreed,
    connections_of,
)
from cbt_crypto.cluster_overlays.secure_messenger.traffic import (
    COUNTERS,
    NOTHING,
    Traffic,
)
from cbt_crypto.hosts import admin_socket, rados_client_on_host, shell
from cbt_crypto.hosts.admin_socket import Answers, Question
from cbt_crypto.hosts.shell import joined
from cbt_crypto.hosts.site import HostOutputs, HostScripts, Osd, Site

_MODE_OPTIONS = (
    "ms_client_mode",
    "ms_cluster_mode",
    "ms_service_mode",
    "ms_mon_client_mode",
    "ms_mon_cluster_mode",
    "ms_mon_service_mode",
)
_SHOWN = (*_MODE_OPTIONS, negotiated.SPEAKS_MSGR2)
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
    is_recognised: ClassVar[bool] = True

    @classmethod
    @override
    def absent(cls) -> Self:
        return cls.make_absent()

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

    @property
    @override
    def stands_beside(self) -> bool:
        return True

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
                advice = self._contradicted_by(_canonical(option), value)
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
        if option in (*_AUTH_OPTIONS, _OLD_AUTH_OPTION) and "none" in _words(value):
            return "the secure messenger takes its keys from cephx: write cephx, or remove the line"
        if option == "ms_bind_msgr1" and value.strip().lower() in ("true", "1", "yes", "on"):
            return "messenger v1 is never encrypted: remove the line"
        return None

    @override
    def transition_to(self, new: Self) -> Transition:
        return Transition.NONE if self == new else Transition.RESTART

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
            client_modes = _client_modes(site, after)
            return self._judge_negotiated(
                traffic, looks[1], client_modes, is_watched=self._is_watched(site)
            )
        findings = {osd: self._finding(osd, traffic[osd], looks[1]) for osd in site.osds}
        moved = [of_osd for of_osd in traffic.values() if isinstance(of_osd, Traffic)]
        verdict = judge_all(self, findings, self._claim(moved))
        doubt = self._doubt(moved)
        return Verdict(False, doubt, verdict.evidence) if verdict.proved and doubt else verdict

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
        """The same on a cluster that somebody else deployed: by what was negotiated there."""
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
            findings[osd] = Finding(negotiated.fault(negotiated_here, wanted, moved), evidence)
        total = sum((moved for moved, _ in agreements), NOTHING)
        claim = negotiated.claim(
            total, [negotiated_here for _, negotiated_here in agreements], wanted
        )
        verdict = judge_all(self, findings, claim)
        doubt = self._doubt([moved for moved, _ in agreements])
        return Verdict(False, doubt, verdict.evidence) if verdict.proved and doubt else verdict

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

    def _doubt(self, traffic: Sequence[Traffic]) -> Optional[str]:
        """What no single OSD can show."""
        moved = [of_osd for of_osd in traffic if of_osd.total > 0]
        if self.is_present and not moved:
            return "no OSD sent or received a byte in this cell, which proves nothing"
        return None


def _canonical(option: str) -> str:
    """Ceph reads `auth client required`, `auth-client-required` and the like as one option."""
    return "_".join(option.lower().replace("-", " ").replace("_", " ").split())


def _words(value: str) -> list[str]:
    return value.lower().replace(",", " ").replace(";", " ").split()


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
    """Each active client's ms_client_mode, empty for one that could not say."""
    modes = (outputs.get(host, "").partition(_CLIENT_MODE)[2] for host in site.active_clients)
    return list(dict.fromkeys(text.strip() for text in modes))


def _answers(site: Site, outputs: HostOutputs) -> Answers:
    of_osd_hosts = {host: text for host, text in outputs.items() if host in site.osd_hosts}
    return admin_socket.parse(
        {h: text.partition(_CLIENT_MODE)[0] for h, text in of_osd_hosts.items()}
    )


def _traffic(osd: Osd, before: Answers, after: Answers) -> Union[Traffic, str]:
    """What moved at this OSD, or why that is not known."""
    for look in (before, after):
        for question in ("bytes", "modes"):
            fault = look.fault(_key(osd, question), osd.host)
            if fault:
                return fault
    then, now = (Traffic.from_answer(look.values[_key(osd, "bytes")]) for look in (before, after))
    return now - then

"""What was agreed on a cluster that somebody else deployed: the messenger's mode by peer.

A stock OSD allows `crc secure` and lets each peer choose, so its modes alone prove nothing. What
was chosen shows in three places, the first that can tell decides:

- connections: `messenger dump` (Ceph 20.2) names the mode of each one to another OSD;
- bytes: what an OSD *received* came from clients, from OSDs, and next to nothing from monitors
  and managers, to which it mostly sends. So the received bytes say how clients and OSDs speak,
  whatever is encrypted towards monitors;
- modes: whoever connects takes the first of its own that the other side allows, in messenger v2;
  v1 has none.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from cbt_crypto.cluster_overlays.secure_messenger.traffic import Traffic

#: A share of bytes that says nothing: heartbeats, maps, reports.
_NOISE = 0.01
#: The same for an OSD that was hardly loaded, and what counts as load, in bytes.
_NOISE_BYTES = 16 << 10
_LOAD_BYTES = 1 << 20
#: Headers and heartbeats blur the share of a load by about as much.
_NEAR = 0.08


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
    """Judge one OSD. `connections`: kind of peer -> mode -> how many; None when Ceph cannot say.

    `client_modes` are the values of ms_client_mode of the clients of the cell. `is_watched`: by
    OSDs of a secure group of the same cluster, whose heartbeats are encrypted.
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
    if negotiated.is_all(wanted) or idles or (without_clients and negotiated.osds is wanted):
        return None
    kinds = {Mode.SECURE: "encrypted", Mode.CRC: "plain"}
    same = negotiated.clients if negotiated.clients is negotiated.osds else Mode.MIXED
    clause = f"its traffic is {kinds.get(same, 'mixed')}: {negotiated.words()}"
    whose = load_share(traffic) if same is Mode.MIXED else None
    likeness = f", about the share of {whose} data" if whose else ""
    return f"{clause}{share(traffic)}{likeness}"


def claim(total: Traffic, negotiated: Sequence[Agreed], wanted: Mode) -> str:
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


def load_share(traffic: Traffic) -> Optional[str]:
    """What the known load says of a mixture: whose data has about the encrypted share."""
    clients, osds = traffic.client_data, 2 * traffic.osd_data
    if traffic.encrypted is None or min(clients, osds) < _LOAD_BYTES:
        return None
    part = traffic.encrypted / traffic.total
    expected = {"the clients'": clients / (clients + osds), "the OSDs'": osds / (clients + osds)}
    near = [whose for whose, value in expected.items() if abs(value - part) < _NEAR]
    return near[0] if len(near) == 1 else None


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
    if len(distinct) > 1:
        return Mode.MIXED
    return distinct.pop() if distinct else Mode.UNKNOWN

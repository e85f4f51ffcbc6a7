"""The byte counters of an OSD's messenger, and what they say about encryption.

Ceph counts whole frames, without banners and handshakes: on 18.2 encrypted and total bytes are
equal from the first one on. Ceph 16.2 does not count encrypted bytes. What shows there is the
modes that the running daemon allows: where each is `secure` and nothing else, messenger v2 has no
other mode to agree on with a peer, and a peer that insists on one gets no connection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

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
    """Bytes received and sent by an OSD's messenger: since it started, or between two readings.

    `encrypted` is None where Ceph does not count them. `drift` is how many bytes moved while
    the counters were read: by that much the others may disagree.
    """

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
        """What moved at both OSDs."""
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
        if self.total < 0:
            return "its counters went back during the cell, so it was restarted"
        return None

    def encryption_fault(self) -> Optional[str]:
        """What contradicts that all of it was encrypted."""
        if self.total < 0:
            return self.restart_fault
        if self.encrypted is not None and abs(self.total - self.encrypted) > self.drift:
            return f"{self.encrypted} of {self.total} bytes were encrypted"
        return None

    def plaintext_fault(self) -> Optional[str]:
        """What contradicts that none of it was encrypted."""
        if self.total < 0:
            return self.restart_fault
        return f"{self.encrypted} bytes were encrypted" if self.encrypted else None

    def evidence(self) -> dict[str, Any]:
        """Bytes and encrypted bytes, as proof.json has them."""
        evidence: dict[str, Any] = {"bytes": self.total, "encrypted_bytes": self.encrypted}
        if self.drift:
            evidence["bytes_while_reading"] = self.drift
        return evidence


NOTHING = Traffic(total=0, encrypted=0, drift=0)


def _values(leaves: Mapping[str, int], names: Sequence[str]) -> list[int]:
    return [value for path, value in leaves.items() if path.rpartition("/")[2] in names]

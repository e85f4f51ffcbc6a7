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

#: Where the counters are in the answer to `perf dump`.
COUNTERS = "AsyncMessenger::Worker-*/msgr_*_bytes"

_TOTAL = ("msgr_recv_bytes", "msgr_send_bytes")
_ENCRYPTED = ("msgr_recv_encrypted_bytes", "msgr_send_encrypted_bytes")


@dataclass(frozen=True)
class Counters:
    """Bytes received and sent since the OSD started.

    `encrypted` is None where Ceph does not count them. `drift` is how many bytes moved while
    the counters were read: by that much the others may disagree.
    """

    total: int
    encrypted: Optional[int]
    drift: int

    @classmethod
    def from_answer(cls, answer: Sequence[Mapping[str, int]]) -> Counters:
        """From the last two answers of a steady question for `COUNTERS`."""
        previous, last = answer
        total = _values(last, _TOTAL)
        encrypted = _values(last, _ENCRYPTED)
        return cls(
            total=sum(total),
            encrypted=sum(encrypted) if encrypted else None,
            drift=sum(total) - sum(_values(previous, _TOTAL)),
        )


@dataclass(frozen=True)
class Traffic:
    """What moved between two readings of one OSD's counters, in bytes."""

    total: int
    encrypted: Optional[int]
    drift: int

    def encryption_fault(self) -> Optional[str]:
        """What contradicts that all of it was encrypted."""
        if self.total < 0:
            return "its counters went back during the cell, so it was restarted"
        if self.encrypted is not None and abs(self.total - self.encrypted) > self.drift:
            return f"{self.encrypted} of {self.total} bytes were encrypted"
        return None

    def plaintext_fault(self) -> Optional[str]:
        """What contradicts that none of it was encrypted."""
        if self.total < 0:
            return "its counters went back during the cell, so it was restarted"
        return f"{self.encrypted} bytes were encrypted" if self.encrypted else None

    def evidence(self) -> dict[str, Any]:
        """Bytes and encrypted bytes, as proof.json has them."""
        found: dict[str, Any] = {"bytes": self.total, "encrypted_bytes": self.encrypted}
        if self.drift:
            found["bytes_while_reading"] = self.drift
        return found


def traffic_between(before: Counters, after: Counters) -> Traffic:
    """What moved from one reading to the next."""
    encrypted = None
    if before.encrypted is not None and after.encrypted is not None:
        encrypted = after.encrypted - before.encrypted
    return Traffic(
        total=after.total - before.total,
        encrypted=encrypted,
        drift=before.drift + after.drift,
    )


def _values(leaves: Mapping[str, int], names: Sequence[str]) -> list[int]:
    return [value for path, value in leaves.items() if path.rpartition("/")[2] in names]

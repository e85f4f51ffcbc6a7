"""Keys of the daemons, made beforehand: one keyring is loaded when the monitors are made.

That spares a round trip to the monitors for every daemon.
"""

from __future__ import annotations

import base64
import secrets
import struct
import time
from collections.abc import Iterable

from cbt_crypto.hosts.secret import keep

#: What Ceph's own deployment gives each kind of daemon.
_CAPS = {
    "mon": {"mon": "allow *"},
    "client": {"mon": "allow *", "osd": "allow *", "mgr": "allow *"},
    "mgr": {"mon": "allow profile mgr", "osd": "allow *", "mds": "allow *"},
    "osd": {"mon": "allow profile osd", "osd": "allow *", "mgr": "allow profile osd"},
}


def new_key() -> str:
    """A cephx secret as Ceph encodes it: type 1 (AES), creation time, 16 random bytes, base64."""
    secret = secrets.token_bytes(16)
    seconds, fraction = divmod(time.time_ns(), 10**9)
    return base64.b64encode(struct.pack("<HIIH", 1, seconds, fraction, 16) + secret).decode()


def keyring(entities: Iterable[str]) -> dict[str, str]:
    """Entity (`osd.3`, `client.admin`, `mon.`) -> its keyring section, with a new key."""
    return {entity: _section(entity) for entity in entities}


def _section(entity: str) -> str:
    caps = _CAPS[entity.partition(".")[0]]
    lines = [f"[{entity}]", f"\tkey = {keep(new_key())}"]
    lines += [f'\tcaps {service} = "{allowed}"' for service, allowed in caps.items()]
    return "\n".join(lines) + "\n"

"""Keys of the daemons, made beforehand: one keyring is loaded when the monitors are made.

That spares a round trip to the monitors for every daemon. What a key looks like is the release's
own affair: its `ceph-authtool` makes one that nobody uses, and ours are made in that form.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
import shlex
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from cbt_crypto.hosts.secret import keep

#: What Ceph's own deployment gives each kind of daemon.
_CAPS = {
    "mon": {"mon": "allow *"},
    "client": {"mon": "allow *", "osd": "allow *", "mgr": "allow *"},
    "mgr": {"mon": "allow profile mgr", "osd": "allow *", "mds": "allow *"},
    "osd": {"mon": "allow profile osd", "osd": "allow *", "mgr": "allow profile osd"},
}
#: Before a secret, all little-endian: the cipher's number, seconds and nanoseconds, its length.
_HEADER = struct.Struct("<HIIH")
#: Ceph's names for those numbers.
_CIPHERS = {1: "aes", 2: "aes256k"}
_MONMAP_WORD = "@monmap-ciphers"


@dataclass(frozen=True)
class KeyForm:
    """How a release makes cephx keys.

    `number` stands for the cipher; a secret has `length` bytes. `in_monmap`: its monitor maps say
    which ciphers are allowed (from 19.2.6 and 20.2.4 on).
    """

    number: int
    length: int
    in_monmap: bool = False

    @property
    def cipher(self) -> Optional[str]:
        """Ceph's name for it, or None for one that this program does not know."""
        return _CIPHERS.get(self.number)

    def new_key(self) -> str:
        """A new secret in this form, base64."""
        secret = secrets.token_bytes(self.length)
        seconds, fraction = divmod(time.time_ns(), 10**9)
        header = _HEADER.pack(self.number, seconds, fraction, self.length)
        return base64.b64encode(header + secret).decode()

    def keyring(self, entities: Iterable[str]) -> dict[str, str]:
        """Entity (`osd.3`, `client.admin`, `mon.`) -> its keyring section, with a new key."""
        return {entity: self._section(entity) for entity in entities}

    def monmap_options(self) -> str:
        """Options for monmaptool that allow this cipher and no other."""
        if not self.in_monmap or self.cipher is None:
            return ""
        options = ("--auth-service-cipher", "--auth-allowed-ciphers", "--auth-preferred-cipher")
        return " ".join(f"{option} {self.cipher}" for option in options)

    def _section(self, entity: str) -> str:
        caps = _CAPS[entity.partition(".")[0]]
        lines = [f"[{entity}]", f"\tkey = {keep(self.new_key())}"]
        lines += [f'\tcaps {service} = "{allowed}"' for service, allowed in caps.items()]
        return "\n".join(lines) + "\n"


def ask_script(
    cipher: Optional[str], authtool: str = "ceph-authtool", monmaptool: str = "monmaptool"
) -> str:
    """Shell text for a monitor's host that prints a key as its release makes them.

    `cipher` is the one that the file asks for; a release that cannot choose has but one.
    """
    choice = f"--key-type {shlex.quote(cipher)}" if cipher else ""
    make = shlex.quote(authtool)
    return (
        f"choice='{choice}'\n"
        f"{make} --help 2>&1 | grep -q -e --key-type || choice=\n"
        f"{make} --gen-print-key $choice\n"
        f"{shlex.quote(monmaptool)} --help 2>&1 | grep -q -e --auth-service-cipher "
        f"&& echo {_MONMAP_WORD} || :"
    )


def key_form(printed: str) -> KeyForm:
    """The form of the key that `ask_script` printed. Raises ValueError where there is none."""
    match = re.search(r"^[A-Za-z0-9+/]{16,}={0,2}$", printed, re.MULTILINE)
    try:
        raw = base64.b64decode(match[0], validate=True) if match else b""
        number, _, _, length = _HEADER.unpack_from(raw)
    except (binascii.Error, struct.error):
        raise ValueError(f"ceph-authtool printed no key: {printed[-200:]!r}") from None
    if len(raw) != _HEADER.size + length:
        raise ValueError(f"ceph-authtool printed a key of {len(raw)} bytes that says {length}")
    return KeyForm(number, length, _MONMAP_WORD in printed)

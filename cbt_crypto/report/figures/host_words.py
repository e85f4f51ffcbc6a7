"""What environment.json says of hosts beside their names: energy counters, the speed of ciphers.

It comes from a file that someone sent, so whatever is not as it should be counts as not recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Optional

from cbt_crypto.report import label

ABSENT = "not on this machine"
#: The columns of a table of `CipherSpeed`.
CIPHER_HEADINGS = (
    "Host", "Cipher", "Key bits", "Encryption MiB/s", "Decryption MiB/s", "Driver",
)  # fmt: skip


@dataclass(frozen=True)
class CipherSpeed:
    """A row of `cryptsetup benchmark`: MiB/s in memory on one core, None where it has no cipher.

    `driver` is what the kernel has in use for the cipher; empty where that is not known.
    """

    host: str
    cipher: str
    key_bits: int
    encrypt_mib_per_s: Optional[float]
    decrypt_mib_per_s: Optional[float]
    driver: str

    @property
    def speeds(self) -> tuple[str, str]:
        """Of encryption and decryption, as tables show them."""
        encrypt, decrypt = (
            ABSENT if speed is None else label.number(speed)
            for speed in (self.encrypt_mib_per_s, self.decrypt_mib_per_s)
        )
        return encrypt, decrypt


def not_measured(host: str) -> str:
    """What stands in the place of a host's rows where it has none."""
    return f"{host}: cryptsetup benchmark measured no cipher there."


def energy_counters(environment: Mapping[str, Any]) -> dict[str, str]:
    """Host -> the zones that it counts energy in, or that it has none; empty if nobody asked."""
    zones_by_host = {}
    for host, about in _mapping(environment.get("hosts")).items():
        zones = _mapping(about).get("energy")
        if isinstance(zones, (list, tuple)):
            zones_by_host[host] = ", ".join(map(str, zones)) or ABSENT
    return zones_by_host


def cipher_speeds(environment: Mapping[str, Any]) -> dict[str, list[CipherSpeed]]:
    """Host -> its rows, for the hosts that were asked; an empty list where nothing was measured."""
    speeds_by_host = {}
    for host, about in _mapping(environment.get("hosts")).items():
        luks = _mapping(_mapping(_mapping(about).get("overlays")).get("luks"))
        if "benchmark" in luks:
            drivers = {row.get("name"): _driver(row) for row in _rows(luks.get("drivers"))}
            speeds_by_host[host] = list(_speeds(host, luks, drivers))
    return speeds_by_host


def _speeds(
    host: str, luks: Mapping[str, Any], drivers: Mapping[Any, str]
) -> Iterator[CipherSpeed]:
    for row in _rows(luks["benchmark"]):
        cipher, bits = row.get("cipher"), row.get("key_bits")
        if not isinstance(cipher, str) or not isinstance(bits, int):
            continue
        name, _, mode = cipher.rpartition("-")
        yield CipherSpeed(
            host,
            cipher,
            bits,
            _number(row.get("encrypt_mib_per_s")),
            _number(row.get("decrypt_mib_per_s")),
            # "aes-xts" is "xts(aes)" to the kernel
            drivers.get(f"{mode}({name})", ""),
        )


def _driver(row: Mapping[str, Any]) -> str:
    """`xts-aes-aesni (aesni_intel)`; a card's works beside the processor that asks it."""
    module = f" ({row['module']})" if row.get("module") else ""
    return f"{row.get('driver') or ''}{module}{', asynchronous' if row.get('async') else ''}"


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _rows(value: Any) -> list[Mapping[str, Any]]:
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []


def _number(value: Any) -> Optional[float]:
    return float(value) if isinstance(value, (int, float)) else None

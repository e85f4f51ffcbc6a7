"""What `cryptsetup benchmark` measures of a cipher: in memory, on one core, without any IO."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

#: "    aes-xts        512b      3105.7 MiB/s      3131.9 MiB/s", and N/A where there is none.
_LINE = re.compile(
    r"^\s*(?P<cipher>[\w-]+)\s+(?P<bits>\d+)b\s+(?P<encrypt>[\d.]+|N/A)(?: MiB/s)?"
    r"\s+(?P<decrypt>[\d.]+|N/A)(?: MiB/s)?\s*$"
)

_DISK_CIPHER = re.compile(r"^(xts|cbc|essiv)\(")


def script(cipher: str, key_size: int) -> str:
    """Shell text that measures a cipher as dm-crypt spells it; prints nothing where it cannot."""
    name = "-".join(cipher.split("-")[:2])
    return f"cryptsetup benchmark --cipher {shlex.quote(name)} --key-size {key_size} || :"


def parse(output: str) -> list[dict[str, object]]:
    """A row for each cipher: its name, the key's bits, and MiB/s of both directions or None."""
    matches = (_LINE.match(line) for line in output.splitlines())
    return [
        {
            "cipher": match["cipher"],
            "key_bits": int(match["bits"]),
            "encrypt_mib_per_s": _speed(match["encrypt"]),
            "decrypt_mib_per_s": _speed(match["decrypt"]),
        }
        for match in matches
        if match
    ]


#: Ciphers that `cryptsetup benchmark` tries by itself, with the IV that disks take with them.
CANDIDATES = {
    (f"{cipher}-{mode}", bits): f"{cipher}-{mode}-{iv}"
    for mode, sizes, iv in (("cbc", (128, 256), "essiv:sha256"), ("xts", (256, 512), "plain64"))
    for cipher in ("aes", "serpent", "twofish")
    for bits in sizes
}


def table_script() -> str:
    """Shell text that measures every candidate."""
    return "\n".join(script(name, bits) for name, bits in CANDIDATES)


def best(outputs: Iterable[str]) -> tuple[str, int]:
    """Cipher, as dm-crypt spells it, and key size of the candidate that is the fastest.

    A candidate is as fast as its slower direction on the slowest host. Raises ValueError when
    none was measured on every host.
    """
    slowest: dict[tuple[str, int], list[float]] = {}
    hosts = list(outputs)
    for row in (row for output in hosts for row in parse(output)):
        speeds = (row["encrypt_mib_per_s"], row["decrypt_mib_per_s"])
        if all(isinstance(speed, float) for speed in speeds):
            key = (str(row["cipher"]), int(str(row["key_bits"])))
            slowest.setdefault(key, []).append(min(float(str(speed)) for speed in speeds))
    speed_of = {
        key: min(of_hosts)
        for key, of_hosts in slowest.items()
        if key in CANDIDATES and len(of_hosts) == len(hosts)
    }
    if not speed_of:
        raise ValueError("cryptsetup benchmark measured no cipher on every host")
    name, bits = max(speed_of, key=lambda key: speed_of[key])
    return CANDIDATES[name, bits], bits


def drivers(proc_crypto: str) -> list[dict[str, object]]:
    """Of /proc/crypto, the driver that the kernel takes for each cipher of a disk.

    That is the one of the highest priority which passed its self-test. An accelerator is known by
    its module; `async` says whether it works beside the CPU that asks.
    """
    chosen: dict[str, dict[str, object]] = {}
    for block in proc_crypto.split("\n\n"):
        pairs = (line.partition(":") for line in block.splitlines())
        facts = {key.strip(): value.strip() for key, _, value in pairs}
        name, priority = facts.get("name", ""), facts.get("priority", "")
        usable = facts.get("selftest") == "passed" and facts.get("internal") == "no"
        if not (_DISK_CIPHER.match(name) and priority.isdigit() and usable):
            continue
        if name not in chosen or int(priority) > int(str(chosen[name]["priority"])):
            chosen[name] = {
                "name": name,
                "driver": facts.get("driver"),
                "module": facts.get("module"),
                "priority": int(priority),
                "async": facts.get("async") == "yes",
            }
    return list(chosen.values())


def _speed(text: str) -> object:
    return None if text == "N/A" else float(text)

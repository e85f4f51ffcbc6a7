"""What `cryptsetup benchmark` measures of a cipher: in memory, on one core, without any IO."""

from __future__ import annotations

import re
import shlex

#: "    aes-xts        512b      3105.7 MiB/s      3131.9 MiB/s", and N/A where there is none.
_LINE = re.compile(
    r"^\s*(?P<cipher>[\w-]+)\s+(?P<bits>\d+)b\s+(?P<encrypt>[\d.]+|N/A)(?: MiB/s)?"
    r"\s+(?P<decrypt>[\d.]+|N/A)(?: MiB/s)?\s*$"
)


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


def _speed(text: str) -> object:
    return None if text == "N/A" else float(text)

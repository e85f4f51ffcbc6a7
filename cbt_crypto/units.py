"""Sizes in bytes and MiB, as the file has them and as people read them."""

from __future__ import annotations

import re
from typing import Optional, Union

_SIZE = re.compile(r"(\d+)\s*([kmgKMG]?)(?:i?[bB])?")
_FACTOR = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def short_size(size: Union[int, str, float, None]) -> str:
    """4096 -> `4K`, 4194304 -> `4M`, 2300 -> `2300`, as in the labels of a plan."""
    for unit, factor in (("M", 1 << 20), ("K", 1 << 10)):
        if isinstance(size, int) and size and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def parse_size(text: str) -> Optional[int]:
    """Bytes of fio's `4k`, `4KiB` or `4096`; None for anything else."""
    match = _SIZE.fullmatch(text.strip())
    return int(match.group(1)) * _FACTOR[match.group(2).lower()] if match else None

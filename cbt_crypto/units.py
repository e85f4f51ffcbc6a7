"""Sizes in bytes and MiB, as the file has them and as people read them."""

from __future__ import annotations

from typing import Union


def short_size(size: Union[int, str, float, None]) -> str:
    """4096 -> `4K`, 4194304 -> `4M`, 2300 -> `2300`, as in the labels of a plan."""
    for unit, factor in (("M", 1 << 20), ("K", 1 << 10)):
        if isinstance(size, int) and size and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)

"""Sizes in bytes and MiB, times and numbers, as people read them; and what is sorted by a key."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from typing import Optional, TypeVar, Union

_FACTORS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


_Key = TypeVar("_Key", bound=Hashable)
_Item = TypeVar("_Item")

#: A million years: Python has no longer time.
_LONGEST_S = 3e13


def grouped(pairs: Iterable[tuple[_Key, _Item]]) -> dict[_Key, list[_Item]]:
    """Key -> its values; keys and values are in the order of `pairs`."""
    values_by_key: dict[_Key, list[_Item]] = {}
    for key, value in pairs:
        values_by_key.setdefault(key, []).append(value)
    return values_by_key


def counted(number: int, word: str) -> str:
    """1, "cell" -> `1 cell`; 2 -> `2 cells`."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def short_size(size: Union[int, str, float, None]) -> str:
    """4096 -> `4K`, 4194304 -> `4M`, 2300 -> `2300`, as in the labels of a plan."""
    for unit, factor in (("M", 1 << 20), ("K", 1 << 10)):
        if isinstance(size, int) and size and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def time_text(seconds: float) -> str:
    """3725.4 -> `1:02:05`; a day has 24 hours of them."""
    minutes, rest = divmod(round(min(max(0.0, seconds), _LONGEST_S)), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def about(seconds: float) -> str:
    """95 -> `95 s`, 725 -> `12 min`, 35970 -> `10 h`: no more digits than a guess has."""
    minutes = round(min(max(0.0, seconds), _LONGEST_S) / 60)
    if minutes < 2:
        return f"{seconds:.0f} s"
    hours, rest = (minutes // 60, minutes % 60) if minutes < 600 else (round(minutes / 60), 0)
    return " ".join(filter(None, (f"{hours} h" if hours else "", f"{rest} min" if rest else "")))


def whole(text: str) -> Optional[int]:
    """`7` -> 7; None for anything but ASCII digits, and for more of them than a count has."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def parse_size(text: str) -> Optional[int]:
    """Bytes of fio's `4k`, `4KiB` or `4096`; None for anything else."""
    try:
        return size_bytes(text)
    except ValueError:
        return None


def size_bytes(text: str) -> int:
    """Bytes of "8G", "512M" or "3GiB". Raises ValueError for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not match:
        raise ValueError(f"{text!r} is not a size such as 512M or 8G")
    return int(float(match[1]) * _FACTORS[match[2].upper()])


def size_text(size: int) -> str:
    """The shortest exact text that `size_bytes` reads back as `size`."""
    for unit, factor in reversed(_FACTORS.items()):
        if size % factor == 0:
            return f"{size // factor}{unit}"
    raise AssertionError("the last factor is 1")

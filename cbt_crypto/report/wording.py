"""Text from an archive, before it reaches a terminal or a page."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Optional, TypeVar, Union

from pydantic import BaseModel

from cbt_crypto.results.readers.fio import SYNC

#: What every table says when a host's processors are emulated.
EMULATED = "emulated CPU: these figures say nothing about real hardware"

#: The dimension that tells archives that are compared apart, by the name of each.
ARCHIVE = "hardware"
#: Stands for an interval, or a range, between whose bounds everything lies.
TOO_NOISY = "too noisy to say"


def emulated_in(names: Sequence[str]) -> str:
    """Say which of the compared archives were measured on emulated processors."""
    whose = "its" if len(names) == 1 else "their"
    where = " and ".join(names)
    return f"emulated CPU in {where}: {whose} figures say nothing about real hardware"


_MODES = {
    "randread": "random reads",
    "randwrite": "random writes",
    "read": "sequential reads",
    "write": "sequential writes",
}
_MIXED = {"randrw": "random mix", "rw": "sequential mix", "readwrite": "sequential mix"}


def op_size(size: Union[int, str, float, None]) -> str:
    """4096 -> `4 KiB`; what is no number of bytes stays as it is."""
    if not isinstance(size, int) or isinstance(size, bool) or size <= 0:
        return str(size)
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B"


def value_of(name: str, value: object) -> str:
    """`iodepth 2`, `archive Monday`."""
    return f"{'archive' if name == ARCHIVE else name} {value}"


def dimension(name: str) -> str:
    """A dimension as the heading of its values: `op_size` -> `IO size`, `device` -> `Device`."""
    words = {"op_size": "IO size", ARCHIVE: "archive"}.get(name, name.replace("_", " "))
    return words[:1].upper() + words[1:]


def mode(name: str, direction: str) -> str:
    """`randread` -> `random reads`; a mixed mode names the direction too."""
    if direction == SYNC:
        return "syncs after writes"
    return f"{_MIXED[name]}, {direction}s" if name in _MIXED else _MODES.get(name, name)


def percent(value: float, loss: bool) -> str:
    """Two decimals, as published: percent of the baseline, or lost against it."""
    return f"{100 - value:.2f}" if loss else f"{value:.2f}"


def tenths(value: float) -> str:
    """One decimal, and never `-0.0`."""
    return f"{round(value, 1) + 0.0:.1f}"


def number(value: Optional[float]) -> str:
    """Three significant digits for small numbers, whole ones with separators for large."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    decimals = 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:.{decimals}f}"


def milliseconds(ns: Optional[float]) -> str:
    """A latency in ns, shown in ms with three significant digits; `-` when there is none."""
    return number(None if ns is None else ns / 1e6)


ABSENT = "not on this machine"
#: More places than these are counted, and not named, where most have a value.
_NAMED = 3


@dataclass(frozen=True)
class Grid:
    """A table of texts, in sections with a label each; its first `words` columns are words.

    Rows with these numbers, counted over all sections, are `strong`.
    """

    title: str
    headings: Sequence[str]
    sections: Sequence[tuple[str, Sequence[Sequence[str]]]]
    notes: Sequence[str] = ()
    words: int = 1
    strong: Collection[int] = ()


def cipher_grid(environment: Mapping[str, Any]) -> Optional[Grid]:
    """What `cryptsetup benchmark` measured; None where no host was asked."""
    by_host = cipher_speeds(environment)
    rows = [row for speeds in by_host.values() for row in speeds]
    notes = ["By cryptsetup benchmark: in memory, on one core, without IO."] if rows else []
    notes += [
        f"{host}: cryptsetup benchmark measured no cipher there."
        for host, speeds in by_host.items()
        if not speeds
    ]
    heads = ("Host", "Cipher", "Key bits", "Encryption MiB/s", "Decryption MiB/s", "Driver")
    return Grid("Speed of ciphers", heads, [("", rows)], notes, 2) if by_host else None


def hardware_grid(environment: Mapping[str, Any]) -> Optional[Grid]:
    """What hosts and drives are, with what only a few of them have in bold."""
    found = hardware(environment)
    rows = [(row.what, row.value, row.where) for row in found]
    strong = [n for n, row in enumerate(found) if row.differs]
    note = "In bold: what differs from most hosts of its kind."
    heads = ("Hardware", "Value", "Where")
    return Grid("Hardware", heads, [("", rows)], (note,), 3, strong) if found else None


def energy_counters(environment: Mapping[str, Any]) -> dict[str, str]:
    """Host -> the zones that it counts energy in, or that it has none; empty if nobody asked."""
    zones_by_host = {}
    for host, about in mapping(environment.get("hosts")).items():
        zones = mapping(about).get("energy")
        if isinstance(zones, (list, tuple)):
            zones_by_host[host] = ", ".join(map(str, zones)) or ABSENT
    return zones_by_host


def cipher_speeds(environment: Mapping[str, Any]) -> dict[str, list[list[str]]]:
    """Host -> its rows, for the hosts that were asked; an empty list where nothing was measured.

    MiB/s in memory on one core, and the driver that the kernel has in use; empty if unknown.
    """
    speeds_by_host = {}
    for host, about in mapping(environment.get("hosts")).items():
        luks = mapping(mapping(mapping(about).get("overlays")).get("luks"))
        if "benchmark" in luks:
            drivers = {str(row.get("name")): _driver(row) for row in _rows(luks.get("drivers"))}
            speeds_by_host[host] = list(_speeds(host, luks, drivers))
    return speeds_by_host


@dataclass(frozen=True)
class HardwareRow:
    """A value that hosts, drives or network cards have, and which of them; `differs`: not most."""

    what: str
    value: str
    where: str
    differs: bool


#: Words of a kernel's command line that say which machine it is, and no more.
_OF_ONE_MACHINE = re.compile(r"(BOOT_IMAGE|initrd|root|rootflags|resume|rd\.\S+|ip|nfsroot)=")


def hardware(environment: Mapping[str, Any]) -> list[HardwareRow]:
    """What is recorded of hosts and of the OSDs' drives: a row for each value that is found."""
    found: dict[str, dict[str, list[str]]] = {}
    for host, about in mapping(environment.get("hosts")).items():
        for what, where, value in _parts(str(host), mapping(about)):
            if value not in (None, "", {}):
                said = {True: "yes", False: "no"}.get(value) if isinstance(value, bool) else None
                found.setdefault(what, {}).setdefault(said or str(value), []).append(where)
    rows = []
    for what, places in found.items():
        most = max(places, key=lambda value: len(places[value]))
        for value in sorted(places, key=lambda value: value != most):
            names = places[value]
            where = ", ".join(names) if len(names) <= _NAMED or value != most else f"{len(names)}"
            rows.append(HardwareRow(what, value, where, value != most))
    return rows


def _parts(host: str, about: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """What is compared, where it was found, and the value."""
    kind = "OSD host" if "osds" in roles_of(about) else "other host"
    line = str(about.get("command_line") or "").partition(" -- ")[0].split()
    words = [word for word in line if not _OF_ONE_MACHINE.match(word)]
    mitigations = mapping(about.get("mitigations"))
    open_ones = [name for name, text in mitigations.items() if str(text).startswith("Vulnerable")]
    simple = ("cpu_model", "cores", "numa_nodes", "kernel", "governor", "smt", "cstates",
              "openssl", "osd_libraries")  # fmt: skip
    for key in simple:
        yield f"{kind}: {key.replace('_', ' ')}", host, about.get(key)
    for node, said in mapping(about.get("nodes")).items():
        yield f"{kind}: NUMA node {node}", host, said
    memory = about.get("memory_bytes")
    if isinstance(memory, int) and 0 < memory < 2**63:
        yield f"{kind}: memory", host, f"{memory / 2**30:.0f} GiB"
    yield f"{kind}: kernel command line", host, " ".join(words)
    if mitigations:
        yield f"{kind}: vulnerable to", host, ", ".join(open_ones) or "nothing known"
    if "vaes" in about:
        has = [name for name in ("aes", "vaes") if about.get(name) is True]
        yield f"{kind}: AES instructions", host, " and ".join(has) or "none"
    for kind_of_part, parts in (("OSD drive", "drives"), ("network card", "networks")):
        for name, part in mapping(about.get(parts)).items():
            for key, value in mapping(part).items():
                # Drives of one age differ by some percent in wear.
                is_wear = key == "wear_percent" and isinstance(value, int)
                said = f"{value // 10 * 10} to {value // 10 * 10 + 9} %" if is_wear else value
                yield f"{kind_of_part}: {key.replace('_', ' ')}", f"{host} {name}", said


def _speeds(host: str, luks: Mapping[str, Any], drivers: Mapping[Any, str]) -> Iterator[list[str]]:
    for row in _rows(luks["benchmark"]):
        cipher, bits = row.get("cipher"), row.get("key_bits")
        if not isinstance(cipher, str) or not isinstance(bits, int):
            continue
        name, _, mode = cipher.rpartition("-")
        speeds = (_number(row.get(f"{way}_mib_per_s")) for way in ("encrypt", "decrypt"))
        # "aes-xts" is "xts(aes)" to the kernel
        driver = drivers.get(f"{mode}({name})", "")
        shown = (ABSENT if speed is None else number(speed) for speed in speeds)
        yield [host, cipher, str(bits), *shown, driver]


def _driver(row: Mapping[str, Any]) -> str:
    """`xts-aes-aesni (aesni_intel)`; a card's works beside the processor that asks it."""
    module = f" ({row['module']})" if row.get("module") else ""
    return f"{row.get('driver') or ''}{module}{', asynchronous' if row.get('async') else ''}"


def mapping(value: Any) -> Mapping[str, Any]:
    """The value, or an empty mapping for anything else."""
    return value if isinstance(value, Mapping) else {}


def roles_of(about: Mapping[str, Any]) -> Collection[Any]:
    """What a host is in the cluster."""
    roles = about.get("roles")
    return roles if isinstance(roles, (list, tuple)) else ()


def _rows(value: Any) -> list[Mapping[str, Any]]:
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []


def _number(value: Any) -> Optional[float]:
    return float(value) if isinstance(value, (int, float)) and abs(value) < 2**63 else None


_Value = TypeVar("_Value")
#: Of these a report has hundreds of thousands, and a call for each would take a second.
_NO_TEXT = frozenset((float, int, bool, type(None)))


def map_text(value: _Value, change: Callable[[str], str]) -> _Value:
    """`value` with `change` applied to every string in it, at any depth, keys included."""
    mapped: _Value = _mapped(value, change)
    return mapped


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {_mapped(key, change): _mapped(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(
            [item if type(item) in _NO_TEXT else _mapped(item, change) for item in value]
        )
    if isinstance(value, BaseModel):
        return value.model_copy(update=_mapped(dict(value), change))
    if is_dataclass(value) and not isinstance(value, type):
        changed = {f.name: _mapped(getattr(value, f.name), change) for f in fields(value)}
        return replace(value, **changed)
    return value

"""Texts of the file that reach commands, addresses and ceph.conf: what each may look like."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints

from cbt_crypto.benchmarks.base import SHARE
from cbt_crypto.hosts import directories
from cbt_crypto.results.until import PERCENT

_MEANINGS: dict[str, str] = {
    PERCENT: "a percentage from 0.0001% to 99%, as 1%",
    SHARE: "a percentage, as 50%",
}


def _like(pattern: str, meaning: str) -> StringConstraints:
    _MEANINGS[pattern] = meaning
    return StringConstraints(pattern=pattern)


def meaning_of(pattern: str, unknown: str = "a text like `{}`") -> str:
    """Describe a text of that pattern; `unknown` is the answer if the pattern has no name."""
    return _MEANINGS.get(pattern, unknown.format(pattern))


def _not_the_system_s(path: str) -> str:
    fault = directories.fault(path)
    if fault:
        raise ValueError(fault)
    return path


def _no_false_address(host: str) -> str:
    address, _, port = host.partition(":")
    numbers = [int(part) for part in address.split(".") if part.isdigit()]
    is_address = len(numbers) == address.count(".") + 1 == 4
    if int(port or 0) > 65535 or (is_address and max(numbers) > 255):
        raise ValueError("is no IPv4 address or port")
    return host


#: A host as ssh and pdsh take it. No character that a shell or pdsh's host lists would expand.
HOST_NAME = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$"
_ADDRESS = AfterValidator(_no_false_address)
HostName = Annotated[str, _like(HOST_NAME, "one host's name or address"), _ADDRESS]
UserName = Annotated[str, _like(r"^[a-z_][a-z0-9_.-]{0,31}$", "the name of a user")]
#: The part of a daemon's name behind the dot: `a` of mon.a.
DaemonId = Annotated[
    str, _like(r"^[A-Za-z0-9][A-Za-z0-9_-]{0,30}$", "a daemon's id: letters, digits, _ and -")
]
#: What stands behind `client.` in the name of a client.
ClientId = Annotated[
    str,
    _like(
        r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$",
        "a client's id, which is its name without `client.`: letters, digits and _.-",
    ),
]
#: An IPv4 address or name, with a port where it is not the default.
MonAddress = Annotated[
    str,
    _like(r"^[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]{1,5})?$", "an IPv4 address or name, or one:port"),
    _ADDRESS,
]
AbsolutePath = Annotated[str, _like(r"^/[^\x00-\x1f]*$", "an absolute path")]
#: A directory of ours. It is written into ceph.conf and given to pdcp, neither of which can quote.
OwnDirectory = Annotated[
    str,
    _like(
        r"^(/\.?[A-Za-z0-9_][A-Za-z0-9_.+-]*)+$",
        "an absolute path of letters, digits and _.+- between slashes",
    ),
    AfterValidator(_not_the_system_s),
]
#: A number of bytes with a binary unit, as truncate(1) reads it: 512M, 8G, 4T.
Size = Annotated[
    str, _like(r"^[1-9][0-9]{0,6}[KMGT]$", "a number with one of the units K, M, G, T, as 16G")
]
#: What stands in tables and legends.
ConfigurationName = Annotated[
    str,
    _like(
        r"^[^\s\x00-\x1f\x7f-\x9f]([^\x00-\x1f\x7f-\x9f]{0,98}[^\s\x00-\x1f\x7f-\x9f])?$",
        "a name of one line, up to 100 characters",
    ),
]
PoolName = Annotated[
    str, _like(r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$", "a pool's name: letters, digits and _.-")
]
#: What a drive is called in the file, in tables and in legends.
DriveName = Annotated[
    str,
    _like(
        r"^[A-Za-z0-9]([A-Za-z0-9 ._+-]{0,62}[A-Za-z0-9])?$",
        "a drive's name: letters, digits, blanks and ._+-",
    ),
]


class FileSection(BaseModel):
    """A mapping in the file. Unknown keys are errors, and so are `true` or a text for a number."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, strict=True, defer_build=True
    )


def keys_of(section: type[BaseModel]) -> set[str]:
    """The keys that a section may have, by both names where CBT calls one otherwise."""
    fields = section.model_fields.items()
    return {name for key, info in fields for name in (key, info.alias) if name}

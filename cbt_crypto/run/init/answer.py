"""What a host answers about its hardware is data: its shape is checked before anything is made of
it."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Any, Optional

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from cbt_crypto.plan.file.document import printable

#: More bytes than a host with a thousand drives answers.
MOST_BYTES = 16 << 20


def _ipv4(address: str) -> str:
    return str(ipaddress.IPv4Interface(address))


def _device(path: str) -> str:
    """A path below /dev, of characters that neither end a line of a file nor move a cursor."""
    if not path.startswith("/dev/") or not path.isprintable() or " " in path or ".." in path:
        raise ValueError("no path of a device")
    return path


def _devices(paths: list[str]) -> list[str]:
    """Those among them that a file can name: a drive has others, or has no stable name."""
    return [path for path in paths if printable(path) == path and " " not in path]


#: What a person reads: a serial number with an escape sequence loses it.
Text = Annotated[str, Field(max_length=4096), AfterValidator(printable)]
Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Path = Annotated[str, Field(max_length=4096), AfterValidator(_device)]


class _Answer(BaseModel):
    model_config = ConfigDict(strict=True)


class _Network(_Answer):
    name: Text
    address: Annotated[str, AfterValidator(_ipv4)]
    mtu: Count
    speed: Count
    hardware: bool


class _Drive(_Answer):
    name: Text
    path: Path
    size: Count
    model: Text
    serial: Text
    rotational: bool
    removable: bool
    read_only: bool
    numa: Optional[Count]
    links: Annotated[list[str], AfterValidator(_devices)]
    mounts: list[Text]
    content: list[Text]
    volumes: list[Text]
    partitions: Count
    osd: Optional[Text]


class _Hardware(_Answer):
    system: Text
    kernel: Text
    processor: Text
    cpus: Annotated[int, Field(ge=1, lt=1 << 20)]
    numa_nodes: Count
    memory: Count
    free: Count
    versions: dict[Text, Text]
    networks: list[_Network]
    drives: list[_Drive]


_HARDWARE = TypeAdapter(_Hardware)


def read(text: str) -> dict[str, Any]:
    """What `hardware_on_host` printed.

    Raises ValueError with a clause that says what no host has, and where in the answer.
    """
    if len(text) > MOST_BYTES:
        raise ValueError(f"answered with more than {MOST_BYTES >> 20} MiB")
    try:
        return _HARDWARE.validate_json(text).model_dump()
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = printable(".".join(map(str, first["loc"])))[:200]
        raise ValueError(f"answered with what no host has, at {place or 'its start'}") from None

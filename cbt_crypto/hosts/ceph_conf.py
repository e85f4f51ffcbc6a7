"""ceph.conf as sections of options, read from people's files and written for the daemons."""

from __future__ import annotations

import configparser
import errno
import os
import re
import shlex
import socket
import stat
from collections.abc import Mapping
from pathlib import Path

from cbt_crypto.errors import UsageError
from cbt_crypto.hosts.secret import keep_secrets

_MOST_BYTES = 1 << 20
_MSGR2_PORT = 3300
_MSGR1_PORT = 6789
#: The id of the client that Ceph makes first, and that may do everything.
ADMIN = "admin"

Sections = dict[str, dict[str, str]]


def normal_name(option: str) -> str:
    """Ceph takes `ms client mode`, `ms-client-mode` and `ms_client_mode` for the same option."""
    return "_".join(option.replace("-", " ").replace("_", " ").split())


def read(path: Path) -> Sections:
    """Read a ceph.conf. Raises UsageError naming the file and the line where it cannot be."""
    name = " ".join(str(path).split())  # somebody may write the options themselves there
    try:
        return parsed(_text(path))
    except FileNotFoundError as error:
        raise UsageError(f"{name}: no such ceph.conf; conf_file or -c is its path") from error
    except OSError as error:
        raise UsageError(
            f"{name}: cannot be read: {error.strerror}; fix conf_file or -c"
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not a ceph.conf: not a text in UTF-8") from error
    except configparser.Error as error:
        # The line itself is not repeated: the file may be any that root can read.
        raise UsageError(
            f"{path}: not a ceph.conf: line {_line_of(error)} is neither [section] nor "
            "option = value"
        ) from None


def parsed(text: str) -> Sections:
    """The sections of a ceph.conf's text. Raises configparser.Error."""
    parser = configparser.RawConfigParser(
        strict=False, interpolation=None, inline_comment_prefixes=("#", ";"), allow_no_value=False,
        delimiters=("=",), default_section="",
    )  # fmt: skip
    parser.optionxform = normal_name  # type: ignore[assignment,method-assign]
    # Ceph goes on at a backslash; to configparser it is the indentation that folds a line.
    unfolded = re.sub(r"^[ \t]+", "", re.sub(r"\\\n", "", text), flags=re.MULTILINE)
    parser.read_string(unfolded)
    sections = {name: dict(parser.items(name)) for name in parser.sections()}
    keep_secrets(sections)
    return sections


def _line_of(error: configparser.Error) -> int:
    if isinstance(error, configparser.MissingSectionHeaderError):
        return int(error.lineno)
    return int(error.errors[0][0]) if isinstance(error, configparser.ParsingError) else 1


def _text(path: Path) -> str:
    """Of a regular file: a pipe would keep us waiting, and /dev/zero has no end."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "is not a regular file")
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise OSError(errno.EFBIG, "is larger than 1 MiB")
    return data.decode("utf-8")


def merged(*layers: Mapping[str, Mapping[str, str]]) -> Sections:
    """Sections of all layers; an option of a later layer replaces the same one of an earlier."""
    result: Sections = {}
    for layer in layers:
        for section, options in layer.items():
            target = result.setdefault(section, {})
            target.update({normal_name(name): str(value) for name, value in options.items()})
    return result


def of_kind(sections: Mapping[str, Mapping[str, str]], kind: str) -> dict[str, str]:
    """What a `client`, or every daemon of a kind, takes: its own section before [global]."""
    return {**sections.get("global", {}), **sections.get(kind, {})}


def render(sections: Mapping[str, Mapping[str, str]]) -> str:
    """The text of a ceph.conf."""
    lines: list[str] = []
    for section, options in sections.items():
        lines.append(f"[{section}]")
        lines += [f"{name} = {value}" for name, value in options.items()]
        lines.append("")
    return "\n".join(lines)


def cluster_name(path: str) -> str:
    """What the cluster of a ceph.conf is called, by which its clients find their keys."""
    name = Path(path)
    return name.stem if name.suffix == ".conf" else "ceph"


def client_words(path: str, client_id: str) -> str:
    """The words by which Ceph's commands are a client of the cluster of a ceph.conf."""
    words = f"-c {shlex.quote(path)}"
    return words if client_id == ADMIN else f"{words} --id {shlex.quote(client_id)}"


def mon_vector(address: str) -> str:
    """`host[:port]` as a msgr2 address vector, by IPv4; CBT's 6789 is msgr1's, so it means 3300."""
    host, _, given = address.partition(":")
    port = int(given) if given and int(given) != _MSGR1_PORT else _MSGR2_PORT
    return f"[v2:{_ipv4(host)}:{port}]"


def _ipv4(host: str) -> str:
    try:
        return str(socket.getaddrinfo(host, None, socket.AF_INET)[0][4][0])
    except OSError as error:
        raise UsageError(
            f"cluster.mons: {host}: has no IPv4 address here; write the monitor's address, or, for "
            "a lab's hosts, use cbt-crypto lab run"
        ) from error

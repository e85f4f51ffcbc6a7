"""Python programs that run on the hosts, where this package is not installed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from cbt_crypto.hosts.site import HostScripts


def python(source: str, argument: Any) -> str:
    """Shell text that runs a program with `argument`, as JSON, in its `sys.argv[1]`.

    It runs as root where `$SUDO` allows. python3 is wherever Ceph's commands are; the program can
    count on its standard library, of Python 3.6 on.
    """
    arguments = shlex.quote(json.dumps(argument))
    return f"$SUDO python3 -I - {arguments} <<'PYTHON_PROGRAM'\n{source.strip()}\nPYTHON_PROGRAM\n"


def command(text: str) -> str:
    """A command that the file names, such as `cephadm shell -- ceph`, as words for a shell.

    Raises ValueError where a quotation in it does not end.
    """
    return shlex.join(shlex.split(text))


def joined(parts: Iterable[HostScripts], keep_going: bool = False) -> HostScripts:
    """Scripts for each host one behind the other; see `sequence`."""
    texts: dict[str, list[str]] = {}
    for part in parts:
        for host, text in part.items():
            texts.setdefault(host, []).append(text)
    return {host: sequence(own, keep_going) for host, own in texts.items()}


def sequence(texts: Sequence[str], keep_going: bool) -> str:
    """One text of several; with `keep_going` each is tried, and it fails when one of them did."""
    if not keep_going:
        # Each overlay's text in a shell of its own: its variables are nobody else's.
        return "\n".join(f"(\n{text}\n)" for text in texts)
    tries = "\n".join(f"(\nset -e\n{text}\n)\n[ $? = 0 ] || bad=1" for text in texts)
    return f"bad=0; set +e\n{tries}\nset -e\n[ $bad = 0 ]"

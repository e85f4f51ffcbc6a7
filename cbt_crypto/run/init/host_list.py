"""Host names as people give them to pdsh: `osd[0-4],client[0-4]`."""

from __future__ import annotations

import re
import subprocess

from cbt_crypto.errors import UsageError

_HEADING = "-- Target nodes --"
#: As field_types.HostName: nothing that a shell or a host list would expand once more.
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")


def expand(text: str) -> tuple[str, ...]:
    """The hosts of one of pdsh's host lists, each once, in its order.

    Where pdsh is, it expands it, so all of its syntax will do; where it is not, names with commas
    between them. Raises UsageError for what is none.
    """
    # No module that would log in anywhere; -Q lists the hosts and ends.
    command = ["pdsh", "-R", "exec", "-Q", "-w", text]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError:
        return _without_pdsh(text)
    listed = answer.stdout.partition(_HEADING)[2].split()
    names = [name for part in listed for name in part.split(",") if name]
    if answer.returncode != 0 or not names:
        why = answer.stderr.strip().splitlines()
        raise UsageError(
            f"--hosts {text!r} is no list of hosts{': ' + why[-1] if why else ''}; write it as "
            "for pdsh -w, such as 'osd[0-4],client[0-4]'"
        )
    return _checked(text, names)


def _without_pdsh(text: str) -> tuple[str, ...]:
    """Names with commas between them; where pdsh is not packaged, campaigns do without it too."""
    if not text or set(text) & set("[]^/"):
        raise UsageError(
            f"pdsh is missing on this machine, which would expand --hosts {text!r}; install pdsh, "
            "or write every name, with commas between them"
        )
    return _checked(text, [name for name in text.split(",") if name])


def _checked(text: str, names: list[str]) -> tuple[str, ...]:
    if not names:
        raise UsageError(f"--hosts {text!r} names no host; write names with commas between them")
    for name in names:
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"--hosts {text!r}: {name!r} is no host name; write names with commas between "
                "them, or a list as for pdsh -w, and the user with --user"
            )
    return tuple(dict.fromkeys(names))

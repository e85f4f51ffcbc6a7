"""What must never be printed: every secret that this program makes or reads is kept here.

Whoever makes a key passes it through `keep`; whoever writes text that people see passes that
through `masked`. Lines that look like a key of Ceph's or a password are masked besides, since the
user's own ceph.conf may hold some that nobody kept.
"""

from __future__ import annotations

import re

MASK = "***"
#: Shorter ones would mask words.
_SHORTEST = 8
_kept: set[str] = set()
#: `key = AQ...`, `rgw keystone admin password = ...`, `"secret": "..."`, `--passphrase=...`
_LOOKS_SECRET = re.compile(
    r"(?P<name>\b(?:key|secret|password|passphrase|passwd|token|private_?key)\b"
    r"[\"']?[ \t]*[=:][ \t]*[\"']?)(?P<value>[^\s\"'\\,;]{8,})",
    re.IGNORECASE,
)


def keep(secret: str) -> str:
    """Remember a secret, so that `masked` hides it from now on; returns it.

    Raises ValueError for one that is too short to be told from a word.
    """
    if len(secret) < _SHORTEST:
        raise ValueError(f"a secret of fewer than {_SHORTEST} characters cannot be masked")
    _kept.add(secret)
    return secret


def masked(text: str) -> str:
    """The text with `***` for every secret that was kept, and for what looks like one."""
    for secret in sorted(_kept, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return _LOOKS_SECRET.sub(_hide, text)


def _hide(match: re.Match[str]) -> str:
    value = match["value"]
    # A file's name, a variable or an option's argument is no secret.
    return match[0] if value.startswith(("/", "$", "-", MASK)) else match["name"] + MASK

"""What must never be printed: every secret that this program makes or reads is kept here.

Who makes a key calls `keep`, who writes for people `masked`; others' words go through `*_without`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MASK = "***"
#: Shorter ones would mask words.
_SHORTEST = 8
_kept: set[str] = set()
#: `key = AQ...`, `rgw_keystone_admin_password = ...`, `"secret": ["..."]`, `--passphrase=...`
_LOOKS_SECRET = re.compile(
    r"(?P<start>(?<![\w-])(?P<name>[\w-]*(?:key|secret|password|passphrase|passwd|token))\b"
    r"[\"']?[ \t]*[=:][ \t]*\[?[\"']?)(?P<value>[^\s\"'\\,;]{4,})",
    re.IGNORECASE,
)


def keep(secret: str) -> str:
    """Have `masked` hide a secret from now on; return it. ValueError for one too short."""
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
    # A file's name, a variable or an option's argument is no secret, nor is a short `key`.
    kept = is_secret(match["name"], value if len(value) >= _SHORTEST else 0)
    is_plain = value.startswith(("/", "$", "-", MASK)) or not kept
    return match[0] if is_plain else match["start"] + MASK


def keep_secrets(value: Any, name: str = "") -> None:
    """Keep what keys of a document name as secrets: programs are started with them."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            keep_secrets(inner, f"{key}")
    elif isinstance(value, (list, tuple)):
        for element in value:
            keep_secrets(element, name)
    elif not isinstance(value, bool) and len(f"{value}") >= _SHORTEST and is_secret(name, value):
        keep(f"{value}")


# -- options ------------------------------------------------------------------------------------

#: A line of a ceph.conf, or of what `config show` prints as JSON.
_LINE = re.compile(r"^(?P<name>[^\n=:\[#;]+[=:][ \t]*\"?)(?P<value>[^\n]*)$", re.MULTILINE)
#: A word of a name that ends so stands for a secret, whatever its value is ...
_SECRETS = ("password", "passwd", "passphrase", "pass", "pwd", "secret", "secrets", "credentials",
            "credential")  # fmt: skip
#: ... and one that ends so, unless the value is none that a secret has: `osd_deep_scrub_keys = 9`.
_KEYS = ("key", "keys", "token", "tokens")
#: The last word of a name that tells about a secret and is none.
_ABOUT = {"path", "file", "size", "type", "engine", "template", "url", "expiration", "interval"}
_PLAIN = re.compile(
    r"[\d.]*|true|false|yes|no|none|\$[a-z].*|config://.*|\*\*\*"
    r"|/(?:etc|var|run|home|root|srv|opt|usr|tmp|mnt|dev)/[^+=]*",
    re.IGNORECASE,
)
#: Secrets within a value: cephx's keys, users of addresses, words with a value, and PEM.
_WITHIN = (
    re.compile(r"()\bA[Qg][A-Za-z0-9+/]{18,}={0,2}"),
    re.compile(r"(://[^/\s:@]*:)[^@\s]{1,256}(?=@)"),
    re.compile(r"(\b\w*(?:password|passwd|passphrase|secret|token)=)[^\s,;]+", re.IGNORECASE),
    re.compile(r"()-----BEGIN [^-]*PRIVATE KEY-----.*"),
)


def is_secret(name: str, value: object) -> bool:
    """Whether an option or a key of that name keeps something that only its owner may know."""
    value = f"{value}"
    words = re.findall(r"[a-z0-9]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())
    if not value.strip() or not words or words[-1] in _ABOUT:
        return False
    if any(word.endswith(_SECRETS) and word != "bypass" for word in words):
        return value.lower() not in ("true", "false")
    return any(word.endswith(_KEYS) for word in words) and not _PLAIN.fullmatch(value.strip())


def options_without(text: str) -> str:
    """A ceph.conf, or what a daemon prints of its options, as an archive may keep it."""
    return _LINE.sub(_option, masked(re.sub(r"\\\n[ \t]*", "", text)))


def document_without(value: Any, name: str = "") -> Any:
    """Hide secrets in a value of a YAML or JSON document; `name` is its key."""
    if isinstance(value, Mapping):
        return {key: document_without(inner, f"{key}") for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [document_without(element, name) for element in value]
    if isinstance(value, str):
        return _without(name, value)
    return MASK if type(value) in (int, float) and is_secret(name, value) else value


def _option(match: re.Match[str]) -> str:
    value = match["value"].rstrip(" \t").removesuffix(",").removesuffix('"')
    return match["name"] + _without(match["name"], value) + match["value"][len(value) :]


def _without(name: str, value: str) -> str:
    if is_secret(name, value):
        return MASK
    for within in _WITHIN:
        value = within.sub(rf"\1{MASK}", value)
    return value

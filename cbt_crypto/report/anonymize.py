"""A report without the names and addresses of hosts, and without those of people."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Optional

from cbt_crypto.report.model import Report
from cbt_crypto.report.sanitize import map_text

#: What may be an address; `ipaddress` knows.
_ADDRESS = re.compile(
    r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])|(?<![\w:])[0-9a-fA-F:]*:[0-9a-fA-F:.]*(?<![.])"
)
#: A network card's own.
_MAC = re.compile(
    r"(?<![\w:-])(?:[0-9a-f]{2}([:-])(?:[0-9a-f]{2}\1){4}[0-9a-f]{2}"
    r"|(?:[0-9a-f]{4}\.){2}[0-9a-f]{4})(?![\w:-])",
    re.IGNORECASE,
)
#: `alice` of `alice@node1`, and of `/home/alice`.
_USER = re.compile(r"((?<![\w.-])(?=[\w.-]+@)|/home/)([\w.-]+)")
#: Users that tell nothing.
_EVERYBODY = {"root", "ceph", "nobody"}


def anonymized(report: Report) -> Report:
    """The same report; every host is `host1`, `host2`, ..., and addresses are `address1`, ...

    So are users, network cards, and other names in the hosts' domains, however they are spelled.
    """
    return map_text(report, Hider(_hosts(report)))


def _hosts(report: Report) -> list[str]:
    """Every host that anything in the report names, each once."""
    hosts = list(report.environment.get("hosts", {}))
    for cell in report.cells:
        for run in cell.runs:
            hosts += [record.host for record in run.records]
            hosts += [node.host for node in run.nodes]
            hosts += run.hosts
    return list(dict.fromkeys(hosts))


class Hider:
    """Replaces names in a text, each always by the same word, however it is spelled."""

    def __init__(self, hosts: Iterable[str]) -> None:
        names = dict.fromkeys(host.lower() for host in hosts)
        words = {host: f"host{number}" for number, host in enumerate(names, 1)}
        named = [host for host in words if host and not _is_address(host)]
        # People write a host's own name where the file has its domain too.
        self._words = {**{host.partition(".")[0]: words[host] for host in named}, **words}
        self._hosts = _any_of(self._words, after=r"(?:\.[A-Za-z][\w-]*)*")
        # What else is in their domain: a switch, a registry.
        domains = {host.partition(".")[2] for host in named}
        self._others = _any_of(domains, before=r"(?:[\w-]+\.)*")
        self._numbers: dict[tuple[str, str], str] = {}

    def __call__(self, text: str) -> str:
        """The text with other names for users and hosts."""
        text = _USER.sub(lambda match: match[1] + self._user(match[2]), text)
        if self._hosts is not None:
            text = self._hosts.sub(self._host, text)
        if self._others is not None:
            text = self._others.sub(lambda match: self._numbered("name", match.group()), text)
        text = _MAC.sub(lambda match: self._numbered("mac", match.group()), text)
        return _ADDRESS.sub(self._address, text)

    def _host(self, match: re.Match[str]) -> str:
        host = match.group().lower()
        longest = max((name for name in self._words if host.startswith(name)), key=len)
        return self._words[longest]

    def _user(self, name: str) -> str:
        return name if name.lower() in _EVERYBODY else self._numbered("user", name)

    def _address(self, match: re.Match[str]) -> str:
        if not _is_address(match.group()):
            return match.group()
        return self._numbered("address", match.group())

    def _numbered(self, kind: str, name: str) -> str:
        """`kind1` for the first of its kind, and so on; always the same for the same name."""
        count = sum(known_kind == kind for known_kind, _ in self._numbers)
        return self._numbers.setdefault((kind, name.lower()), f"{kind}{count + 1}")


def _any_of(names: Iterable[str], before: str = "", after: str = "") -> Optional[re.Pattern[str]]:
    """Whole words of these, the longest first, as one name may begin another."""
    known = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True) if name)
    if not known:
        return None
    return re.compile(rf"(?<!\w){before}(?:{known})(?!\w){after}", re.IGNORECASE)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True

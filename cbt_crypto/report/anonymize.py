"""A report without the names and addresses of hosts."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from cbt_crypto.report.model import Report
from cbt_crypto.report.sanitize import map_text

#: What may be an address; `ipaddress` knows.
_ADDRESS = re.compile(
    r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])|(?<![\w:])[0-9a-fA-F:]*:[0-9a-fA-F:.]*(?<![.])"
)


def anonymized(report: Report) -> Report:
    """The same report; every host is `host1`, `host2`, ..., and addresses are `address1`, ..."""
    return map_text(report, _Hider(_hosts(report)))


def _hosts(report: Report) -> list[str]:
    """Every host that anything in the report names, the longest names first."""
    hosts = list(report.environment.get("hosts", {}))
    for cell in report.cells:
        for run in cell.runs:
            hosts += [record.host for record in run.records]
            hosts += [node.host for node in run.nodes]
            hosts += run.hosts
    return list(dict.fromkeys(hosts))


class _Hider:
    """Replaces names in a text, each always by the same word."""

    def __init__(self, hosts: Iterable[str]) -> None:
        words = {host: f"host{number}" for number, host in enumerate(hosts, 1)}
        # the longest first, as one name may begin another
        self._words = {name: words[name] for name in sorted(words, key=len, reverse=True)}
        # a host's domain goes with it
        known = "|".join(
            rf"(?<!\w){re.escape(name)}(?!\w)(?:\.[A-Za-z][\w-]*)*" for name in self._words
        )
        self._hosts = re.compile(known) if known else None
        self._addressed: dict[str, str] = {}

    def __call__(self, text: str) -> str:
        if self._hosts is not None:
            text = self._hosts.sub(self._host, text)
        return _ADDRESS.sub(self._address, text)

    def _host(self, match: re.Match[str]) -> str:
        return next(word for name, word in self._words.items() if match.group().startswith(name))

    def _address(self, match: re.Match[str]) -> str:
        try:
            ipaddress.ip_address(match.group())
        except ValueError:
            return match.group()
        word = f"address{len(self._addressed) + 1}"
        return self._addressed.setdefault(match.group(), word)

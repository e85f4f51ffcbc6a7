"""A report whose texts are safe to show; without names and addresses where that is asked for."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from cbt_crypto.archive.files import one_line, printable
from cbt_crypto.report.model import Report
from cbt_crypto.report.wording import map_text, mapping

#: What may be an address; `ipaddress` knows.
_ADDRESS = re.compile(
    r"(?<!\d)(?<!\d\.)\d{1,3}(?:\.\d{1,3}){3}(?!\.?\d)|(?<![\w:])[0-9a-fA-F:]*:[0-9a-fA-F:.]*(?<![.])"
)
#: A network card's own; InfiniBand's has 20 bytes. Or a card that is called by it.
_MAC = re.compile(
    r"(?<!\w)(?:en|wl|ww)x[0-9a-f]{12}(?!\w)"
    r"|(?<![\w:-])(?:[0-9a-f]{2}([:-])(?:[0-9a-f]{2}\1){4,18}[0-9a-f]{2}"
    r"|(?:[0-9a-f]{4}\.){2}[0-9a-f]{4})(?![\w:-])",
    re.IGNORECASE,
)
#: `alice` of `alice@node1`, and of `/home/alice`.
_USER = re.compile(r"((?<![\w.-])(?=[\w.-]+@)|/home/|/Users/)([\w.-]+)")
#: `alice` of `client.alice`, as Ceph calls its users; one of digits alone is a session.
_CEPH_USER = re.compile(r"(?<!\w)(client\.)(?!\d+\b)([\w-]+)")
#: What may be a host's name, with its domain; and what separates the words in it.
_NAME = re.compile(r"[\w-]+(?:\.[\w-]+)*")
_SEPARATOR = re.compile(r"([-._])")
#: No host's name has more characters (RFC 1035); a longer word is replaced whole.
_LONGEST_NAME = 253
#: Nor has a report that people read a longer text; the rest of one is left out.
_LONGEST_TEXT = 200_000
#: What names hosts in a ceph.conf, and a word there: `host = node1`, `mon_host = v2:node1:3300/0`.
_CONF_HOSTS = re.compile(
    r"^[ \t]*(?:(?:host|mon[ _-](?:host|addr|initial[ _-]members)|rgw[ _-]dns[ _-]name)[ \t]*="
    r"|\[(?:mon|mgr|mds|client\.rgw)\.)([^#;\n]*)",
    re.IGNORECASE | re.MULTILINE,
)
# A letter by itself is a monitor's name, and would be hidden in every sentence.
_CONF_WORD = re.compile(
    rf"(?:v[12]:)?((?=[\w.-]{{2}})(?=[\w.-]*[a-z]){_NAME.pattern})(?::\d+)?(?:/\d+)?", re.IGNORECASE
)
#: Users that tell nothing.
_EVERYBODY = {"root", "ceph", "nobody", "admin"}


def safe(report: Report) -> Report:
    """The report with every text on one line of its own, but ceph.conf, which has many."""
    texts = mapping(report.environment.get("ceph_conf"))
    report = map_text(report, one_line)
    if texts:
        kept = {one_line(str(name)): map_text(text, printable) for name, text in texts.items()}
        report = replace(report, environment={**report.environment, "ceph_conf": kept})
    return report


def anonymized(report: Report) -> Report:
    """Rename a report's hosts to `host1`, ...; addresses, users, cards, names in domains too."""
    # A kernel's command line names disks, addresses and whatever else a boot needs.
    hosts = _without(mapping(report.environment.get("hosts")), "command_line")
    hidden = replace(report, environment={**report.environment, "hosts": hosts})
    return map_text(hidden, Hider(hosts_of(report)))


def _without(value: Any, left_out: str) -> Any:
    """The value without what any mapping in it has at this key."""
    if isinstance(value, Mapping):
        return {key: _without(of, left_out) for key, of in value.items() if key != left_out}
    return [_without(each, left_out) for each in value] if isinstance(value, list) else value


def hosts_of(report: Report) -> list[str]:
    """Every host that anything in the report names, each once."""
    # Of archives that are compared, behind the archive's name.
    hosts = [name.rpartition(": ")[2] for name in mapping(report.environment.get("hosts"))]
    for cell in report.cells:
        for run in cell.runs:
            hosts += [record.host for record in run.records]
            hosts += [node.host for node in run.nodes]
            hosts += run.hosts
    # A host that no cell worked on, such as a monitor's; what cells worked on has one word.
    known = {host.lower() for host in hosts}
    for text in mapping(report.environment.get("ceph_conf")).values():
        words = re.split(r"[\s,[\]]+", " ".join(_CONF_HOSTS.findall(str(text)[:_LONGEST_TEXT])))
        names = [match[1] for match in map(_CONF_WORD.fullmatch, words) if match]
        hosts += [name for name in names if name.partition(".")[0].lower() not in known]
    return list(dict.fromkeys(hosts))


class Hider:
    """Replaces names in a text, each always by the same word, however it is spelled."""

    def __init__(self, hosts: Iterable[str]) -> None:
        names = dict.fromkeys(host.lower() for host in hosts)
        words = {host: f"host{number}" for number, host in enumerate(names, 1)}
        named = [host for host in words if host and not _is_address(host)]
        # People write a host's own name where the file has its domain too.
        short = {host.partition(".")[0]: words[host] for host in named}
        known = {**short, **words}.items()
        self._words = {name: word for name, word in known if 0 < len(name) <= _LONGEST_NAME}
        # What else is in their domain: a switch, a registry.
        self._domains = {host.partition(".")[2] for host in named} - {""}
        #: First piece -> of how many pieces names are that begin so.
        self._begins: dict[str, set[int]] = {}
        for first, *more in map(_SEPARATOR.split, self._words):
            self._begins.setdefault(first, set()).add(1 + len(more))
        self._numbers: dict[str, dict[str, str]] = {}

    def __call__(self, text: str) -> str:
        """The text with other names for users and hosts."""
        text = text[:_LONGEST_TEXT]
        for users in (_USER, _CEPH_USER):
            text = users.sub(lambda match: match[1] + self._user(match[2]), text)
        text = _NAME.sub(lambda match: self._name(match.group()), text)
        text = _MAC.sub(lambda match: self._numbered("mac", match.group()), text)
        return _ADDRESS.sub(self._address, text)

    def _name(self, text: str) -> str:
        """A word with its dots: a host, something in a domain of theirs, or what contains one."""
        name, domains = text.lower(), self._domains
        if len(name) > _LONGEST_NAME:
            return self._numbered("name", name)
        labels = name.split(".")
        ends = [".".join(labels[start:]) for start in range(len(labels))]
        end = next((end for end in ends if end in self._words or end in domains), None)
        # In a domain that is called like a host, what stands before it is a name as well.
        if end in self._words and (end == name or end not in domains):
            return self._within(text[: len(text) - len(end)]) + self._words[end]
        if end is not None:
            return self._words.get(labels[0]) or self._numbered("name", name)
        return self._within(text)

    def _within(self, text: str) -> str:
        """A word with other names for the hosts in it, as in `ssh-node1` and `node1.log`."""
        pieces, renamed, at = _SEPARATOR.split(text), "", 0
        while at < len(pieces):
            lengths = sorted(self._begins.get(pieces[at].lower(), ()), reverse=True)
            fitting = (n for n in lengths if "".join(pieces[at : at + n]).lower() in self._words)
            length = next(fitting, 0)
            name = "".join(pieces[at : at + length]).lower()
            renamed += self._words[name] if length else pieces[at]
            at += length or 1
            # Whatever domain it is given.
            while length and pieces[at : at + 1] == ["."] and pieces[at + 1][:1].isalpha():
                at += 2
                while pieces[at : at + 1] in (["-"], ["_"]):
                    at += 2
        return renamed

    def _user(self, name: str) -> str:
        return name if name.lower() in _EVERYBODY else self._numbered("user", name)

    def _address(self, match: re.Match[str]) -> str:
        text = match.group()
        # Behind most addresses of version 6 comes a colon, and why.
        own = text if _is_address(text) else text.removesuffix(":")
        return self._numbered("address", own) + text[len(own) :] if _is_address(own) else text

    def _numbered(self, kind: str, name: str) -> str:
        of_kind = self._numbers.setdefault(kind, {})
        return of_kind.setdefault(name.lower(), f"{kind}{len(of_kind) + 1}")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True

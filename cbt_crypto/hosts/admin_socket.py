"""Ask Ceph daemons through their admin sockets, many by one process a host.

`ceph daemon` takes half a second for one question to one daemon; this takes milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Optional

from cbt_crypto.hosts import admin_socket_on_host, shell
from cbt_crypto.hosts.site import HostOutputs, Site


@dataclass(frozen=True)
class Question:
    """One command to one daemon.

    `command` is as `{"prefix": "perf dump"}`. `keep`: the answer has only leaves whose path
    (`a/b/0`) matches a pattern. `steady`: asked until two answers in a row are the same, or 51
    times, and its answer is the last two: counters belong together only when none moved meanwhile.
    """

    key: str
    socket: str
    command: Mapping[str, str]
    keep: tuple[str, ...] = ()
    steady: bool = False
    is_text: bool = False


@dataclass(frozen=True)
class Answers:
    """What the daemons said, by the key of the question; who said nothing is in `errors`."""

    values: Mapping[str, Any]
    errors: Mapping[str, str]

    def fault(self, key: str, host: str) -> Optional[str]:
        """Why `host` gave no answer to the question of that key; None when it gave one."""
        if key in self.values:
            return None
        return self.errors.get(key) or self.errors.get(host) or f"{host} was not asked for {key}"


def script(questions: Sequence[Question]) -> str:
    """Shell text that asks all of them on their host and prints one JSON document."""
    documents = [asdict(question) for question in questions]
    return shell.python(shell.program(admin_socket_on_host), documents)


def parse(site: Site, outputs: HostOutputs) -> Answers:
    """Each host's answers for its own OSDs; one without such a document is an error by its name."""
    values: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for host, output in outputs.items():
        try:
            document = json.loads(output)
            values.update(site.own(host, document["answers"]))
            errors.update(site.own(host, document["errors"]))
        except (ValueError, KeyError, TypeError):
            errors[host] = f"{host} printed no answers of admin sockets: {output[-200:]!r}"
    return Answers(values, errors)

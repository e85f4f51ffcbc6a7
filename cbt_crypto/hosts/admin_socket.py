"""Questions to Ceph daemons through their admin sockets, many of them by one process a host.

The `ceph daemon` command takes half a second and more to start, for one question to one daemon.
The script made here takes a few milliseconds a question. It needs python3 on the host, which
comes with Ceph's own commands.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Optional

from cbt_crypto.hosts import shell
from cbt_crypto.hosts.site import HostOutputs

#: Seconds a daemon may take for one answer.
TIMEOUT_S = 20

# Ceph's side of the protocol: a request ends in a NUL, an answer begins with its length in bytes,
# 32 bits, big-endian. An answer to an unknown command is not JSON.
_READER = """
import fnmatch, json, socket, struct, sys

def ask(path, command, is_text):
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(%(timeout)d)
        peer.connect(path)
        peer.sendall(json.dumps(command).encode() + b"\\0")
        stream = peer.makefile("rb")
        (size,) = struct.unpack(">I", stream.read(4))
        said = stream.read(size)
        return said.decode("utf-8", "replace") if is_text else json.loads(said)

def leaves(value, path=""):
    if isinstance(value, list):
        value = {str(index): inner for index, inner in enumerate(value)}
    if not isinstance(value, dict):
        yield path, value
        return
    for name, inner in value.items():
        yield from leaves(inner, path + "/" + name if path else name)

def answer(question):
    value = ask(question["socket"], question["command"], question["is_text"])
    if not question["keep"]:
        return value
    return {path: leaf for path, leaf in leaves(value)
            if any(fnmatch.fnmatchcase(path, pattern) for pattern in question["keep"])}

def steady_answer(question):
    last = answer(question)
    for _ in range(50):
        previous, last = last, answer(question)
        if previous == last:
            break
    return [previous, last]

answers, errors = {}, {}
for question in json.loads(sys.argv[1]):
    try:
        read = steady_answer if question["steady"] else answer
        answers[question["key"]] = read(question)
    except (OSError, ValueError, struct.error) as error:
        errors[question["key"]] = "%%s: %%s" %% (question["socket"], error)
print(json.dumps({"answers": answers, "errors": errors}, indent=0))
""".strip()


@dataclass(frozen=True)
class Question:
    """One command to one daemon.

    `command` is what the daemon reads, e.g. `{"prefix": "perf dump"}`. With `keep`, the answer
    is flat: of its leaves only those whose path, joined by slashes and with numbers for the
    entries of lists, matches one of these shell patterns. A `steady` question is asked again
    until two answers in a row are the same, or 51 times, and its answer is the list of the last
    two: counters that are read one after another belong together only when none of them moved
    meanwhile. The answer to one that `is_text` is what the daemon says, as text.
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
    return shell.python(_READER % {"timeout": TIMEOUT_S}, documents)


def parse(outputs: HostOutputs) -> Answers:
    """The answers of all hosts; one that printed no such document is an error by its name."""
    values: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for host, output in outputs.items():
        try:
            document = json.loads(output)
            values.update(document["answers"])
            errors.update(document["errors"])
        except (ValueError, KeyError, TypeError):
            errors[host] = f"{host} printed no answers of admin sockets: {output[-200:]!r}"
    return Answers(values, errors)

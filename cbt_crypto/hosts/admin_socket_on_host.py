"""Ask Ceph daemons through their admin sockets. Runs on hosts: Python 3.6 alone.

A request ends in a NUL; an answer, no JSON to what is unknown, begins with its size (u32, big).
"""

import fnmatch
import json
import os
import socket
import struct
import sys
from typing import Any, Collection, Dict, Iterator, List, Tuple

#: Seconds a daemon may take for one answer.
TIMEOUT_S = 20
#: Whatever can go wrong with one question.
ASK_ERRORS = (OSError, ValueError, struct.error)


def ask(
    path: str, command: Dict[str, Any], is_text: bool = False, timeout_s: float = TIMEOUT_S
) -> Any:
    """What the daemon answers, from JSON or as text. Raises one of `ASK_ERRORS`."""
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(timeout_s)
        _connect(peer, path)
        return _answer_of(peer, command, is_text)


def ask_and_identify(
    path: str, command: Dict[str, Any], timeout_s: float, users: Collection[int]
) -> Tuple[Any, int]:
    """The answer of a daemon of one of `users`, and its pid as the kernel says.

    The pid is 0 for one in another pid namespace. Raises one of `ASK_ERRORS`.
    """
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(timeout_s)
        _connect(peer, path)
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid, user, _ = struct.unpack("iii", credentials)
        if user not in users:
            raise PermissionError(path + " is another user's")
        return _answer_of(peer, command, False), pid


def _answer_of(peer: socket.socket, command: Dict[str, Any], is_text: bool) -> Any:
    peer.sendall(json.dumps(command).encode() + b"\0")
    stream = peer.makefile("rb")
    (size,) = struct.unpack(">I", stream.read(4))
    answer = stream.read(size).decode("utf-8", "replace")
    return answer if is_text else json.loads(answer)


def _connect(peer: socket.socket, path: str) -> None:
    """Connect, also where the way to the daemon's directory is longer than the kernel takes."""
    folder = os.open(os.path.dirname(path) or ".", os.O_PATH)
    try:
        peer.connect(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
    finally:
        os.close(folder)


def leaves(value: Any, path: str = "") -> Iterator[Tuple[str, Any]]:
    """The leaves of a document, by their paths; entries of lists have numbers."""
    if isinstance(value, list):
        value = {str(index): inner for index, inner in enumerate(value)}
    if not isinstance(value, dict):
        yield path, value
        return
    for name, inner in value.items():
        yield from leaves(inner, path + "/" + name if path else name)


def _answer(question: Dict[str, Any]) -> Any:
    value = ask(question["socket"], question["command"], question["is_text"])
    if not question["keep"]:
        return value
    return {
        path: leaf
        for path, leaf in leaves(value)
        if any(fnmatch.fnmatchcase(path, pattern) for pattern in question["keep"])
    }


def _steady_answer(question: Dict[str, Any]) -> List[Any]:
    """The last two answers: the same, unless the daemon's counters moved 51 times."""
    last = _answer(question)
    for _ in range(50):
        previous, last = last, _answer(question)
        if previous == last:
            break
    return [previous, last]


def main(questions: List[Dict[str, Any]]) -> None:
    """Print `answers` and `errors` by key, of questions as `admin_socket.Question` has them."""
    answers, errors = {}, {}
    for question in questions:
        try:
            read = _steady_answer if question["steady"] else _answer
            answers[question["key"]] = read(question)
        except ASK_ERRORS as error:
            errors[question["key"]] = "{}: {}".format(question["socket"], error)
    print(json.dumps({"answers": answers, "errors": errors}, indent=0))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

"""Runs on a host: holds names for a campaign, tells who holds them, and gives them up.

The names are abstract sockets: the kernel gives each to one process only, they leave no file, and
are gone with the process, so at the latest with the host's next boot. Needs only Python 3.6.
"""

import hashlib
import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any, Dict, List, NoReturn, Optional

PATIENCE_S = 5


def address(resource: List[str]) -> str:
    """The socket's name for a directory or a device, whichever link names it."""
    kind, path = resource
    real = os.path.realpath(path)
    return "\0cbt-crypto-" + hashlib.sha256((kind + " " + real).encode()).hexdigest()


def ask(resource: List[str]) -> Optional[Dict[str, Any]]:
    """What the holder of a resource says, or None when nobody holds it."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(PATIENCE_S)
        try:
            client.connect(address(resource))
        except OSError:
            return None
        try:
            with client.makefile() as answer:
                found = json.loads(answer.read(65536))
                return found if isinstance(found, dict) else {}
        except (OSError, ValueError):
            return {}


def insist(resource: List[str]) -> Dict[str, Any]:
    """The same of one that somebody holds, who may be about to listen."""
    ends = time.time() + PATIENCE_S
    while time.time() < ends:
        found = ask(resource)
        if found:
            return found
        time.sleep(0.05)
    return {}


def hold(resources: List[List[str]], holder: Dict[str, Any]) -> None:
    """Hold all resources in a process of its own, or none."""
    held = []
    for resource in resources:
        one = socket.socket(socket.AF_UNIX)
        try:
            one.bind(address(resource))
        except OSError:
            other = insist(resource)
            if other.get("run") == holder["run"]:
                continue  # this machine by another of its names
            print("busy " + json.dumps({"resource": resource, "holder": other}))
            return
        one.listen(8)
        held.append(one)
    sys.stdout.flush()
    # Without a name to keep there is nobody to ask for it, nor to end it.
    if held and os.fork() == 0:
        serve(held, holder)
    print("held")


def serve(held: List[socket.socket], holder: Dict[str, Any]) -> NoReturn:
    """Answer those who ask, until ended."""
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.chdir("/")
    answer = json.dumps(dict(holder, keeper=os.getpid())).encode()
    while True:
        for one in select.select(held, [], [])[0]:
            try:
                client = one.accept()[0]
                client.settimeout(PATIENCE_S)
                client.sendall(answer)
                client.close()
            except OSError:
                pass


def free(resources: List[List[str]], run: str) -> None:
    """End the keeper of that run, and wait until its names are free."""
    for resource in resources:
        found = ask(resource)
        if not found or found.get("run") != run or not isinstance(found.get("keeper"), int):
            continue
        os.kill(found["keeper"], signal.SIGKILL)
        ends = time.time() + PATIENCE_S
        while ask(resource) is not None and time.time() < ends:
            time.sleep(0.02)
    print("free")


def main(order: Dict[str, Any]) -> None:
    """Do what `order` says: `hold` for a holder, or `free` what a run holds."""
    if order["action"] == "hold":
        hold(order["resources"], order["holder"])
    else:
        free(order["resources"], order["run"])
    sys.stdout.flush()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

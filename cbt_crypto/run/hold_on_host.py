"""Hold names for a campaign, tell who holds them, and give them up. Runs on hosts: Python 3.6.

The names are abstract sockets. Anybody may bind one: the kernel says whether a holder is ours.
"""

import ctypes
import hashlib
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from typing import Any, Dict, List, NoReturn, Optional

from cbt_crypto.hosts.devices.layers_on_host import disks
from cbt_crypto.hosts.trust_on_host import mounts, owners

PATIENCE_S = 5
#: CLONE_NEWNET of setns(2).
_NETWORK = 0x40000000


def addresses(resource: List[str]) -> List[str]:
    """The sockets' names for a directory, the disks (not partitions) a device is on, or others."""
    kind, path = resource
    real = os.path.realpath(path)
    names = [path] if kind == "overlay" else [real, in_file_system(real)]
    if kind == "device":
        names = disks(real)
    texts = [(kind + " " + name).encode("utf-8", "surrogateescape") for name in names]
    return ["\0cbt-crypto-" + hashlib.sha256(text).hexdigest() for text in texts]


def in_file_system(path: str) -> str:
    """Where a path is in its file system: the same by whatever mount one comes to it."""
    number, root, place = "", "/", "/"
    for its_number, its_root, its_place in (fields[2:5] for fields in mounts()):
        is_above = (path + "/").startswith(its_place.rstrip("/") + "/")
        # Of two mounts at one place the later one counts.
        if is_above and len(its_place) >= len(place):
            number, root, place = its_number, its_root, its_place
    return number + root.rstrip("/") + "/" + path[len(place) :].lstrip("/")


def peer(connection: socket.socket) -> Any:
    """The process that listens, and its user: the kernel's word."""
    credentials = connection.getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
    )
    return struct.unpack("3i", credentials)[:2]


def ask(address: str) -> Optional[Dict[str, Any]]:
    """What a name's holder says, or None; of another user's, `stranger`. `keeper` is its pid."""
    with socket.socket(socket.AF_UNIX) as client:
        # With Python's own limit, connecting fails at once while many others ask.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", PATIENCE_S, 0))
        try:
            client.connect(address)
            client.settimeout(PATIENCE_S)
            keeper, user = peer(client)
        except OSError:
            return None
        if user not in owners():
            return {"stranger": user, "keeper": keeper}
        try:
            with client.makefile() as answer:
                document = json.loads(answer.read(65536))
        except (OSError, ValueError):
            document = {}
        return dict(document, keeper=keeper) if isinstance(document, dict) else {"keeper": keeper}


def insist(address: str) -> Dict[str, Any]:
    """Ask a keeper until it answers: who just took the lock may be about to listen.

    Empty where it does not. /proc/net/unix is not asked: who binds a name decides what it says.
    """
    ends = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends:
        answer = ask(address)
        if answer:
            return answer
        time.sleep(0.05)
    return {}


def hold(resources: List[List[str]], holder: Dict[str, Any]) -> None:
    """Hold all resources in a process of its own, or none."""
    held = {}  # type: Dict[str, socket.socket]
    for resource in resources:
        for address in addresses(resource):
            if address in held:
                continue  # two partitions of one disk
            listener = socket.socket(socket.AF_UNIX)
            try:
                listener.bind(address)
            except OSError:
                other = insist(address)
                if other.get("run") == holder["run"]:
                    continue  # this machine by another of its names
                print("busy " + json.dumps({"resource": resource, "holder": other}))
                return
            held[address] = listener
    sys.stdout.flush()
    # Without a name to keep there is nobody to ask for it, nor to end it.
    if held:
        listening, listens = os.pipe()
        if os.fork() == 0:
            serve(list(held.values()), holder, listens)
        os.close(listens)
        os.read(listening, 1)
    print("held")


def serve(held: List[socket.socket], holder: Dict[str, Any], listens: int) -> NoReturn:
    """Answer those who ask, until ended. It listens itself, as the kernel names who does that."""
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for listener in held:
        listener.listen(8)
    os.write(listens, b"1")
    os.close(listens)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.chdir("/")
    answer = json.dumps(holder).encode()
    while True:
        for listener in select.select(held, [], [])[0]:
            try:
                client = listener.accept()[0]
                client.settimeout(PATIENCE_S)
                client.sendall(answer)
                client.close()
            except OSError:
                pass


def free(resources: List[List[str]], run: str) -> None:
    """End the keeper of that run, and wait until its names are free."""
    for address in [address for resource in resources for address in addresses(resource)]:
        answer = ask(address)
        if not answer or answer.get("run") != run or answer["keeper"] <= 0:
            continue
        end(address, answer["keeper"])
        ends = time.monotonic() + PATIENCE_S
        while ask(address) is not None and time.monotonic() < ends:
            time.sleep(0.02)
    print("free")


def end(address: str, keeper: int) -> None:
    """Kill the process that holds the name, and none that has its number since."""
    opened = getattr(os, "pidfd_open", None)
    if opened is None:  # before Python 3.9
        os.kill(keeper, signal.SIGKILL)
        return
    try:
        process = opened(keeper)
    except ProcessLookupError:
        return
    again = ask(address)
    if again and again["keeper"] == keeper:
        signal.pidfd_send_signal(process, signal.SIGKILL)
    os.close(process)


def check(resources: List[List[str]], run: str) -> None:
    """Print `held` when that run still holds all of them, else which it does not, and who does."""
    for resource in resources:
        for address in addresses(resource):
            answer = ask(address)
            if not answer or answer.get("run") != run:
                print("busy " + json.dumps({"resource": resource, "holder": answer or {}}))
                return
    print("held")


def join_host_s_network() -> None:
    """Enter the first process's network namespace, if allowed: others would not see our names."""
    try:
        if os.stat("/proc/1/ns/net").st_ino != os.stat("/proc/self/ns/net").st_ino:
            with open("/proc/1/ns/net", "rb") as namespace:
                ctypes.CDLL(None).setns(namespace.fileno(), _NETWORK)
    except OSError:
        pass  # only root may


def main(order: Dict[str, Any]) -> None:
    """Do what `order` says: `hold` for a holder, `free` or `check` what a run holds."""
    join_host_s_network()
    if order["action"] == "hold":
        hold(order["resources"], order["holder"])
    elif order["action"] == "check":
        check(order["resources"], order["run"])
    else:
        free(order["resources"], order["run"])
    sys.stdout.flush()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

"""What a release knows of options, and what daemons have: a `Watch`. Runs on hosts: Python 3.6."""

import ctypes
import difflib
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, Iterator, List, Optional, Tuple

from cbt_crypto.hosts.admin_socket_on_host import ASK_ERRORS, ask

_SIZE = 4096
_PATIENCE_S = 20
#: Levels at which an option is where nobody set it but the campaign's ceph.conf.
_OF_CAMPAIGN = ("default", "file", "final")


def described() -> List[Dict[str, Any]]:
    """Every option of this release, as `config help` has them, without a cluster."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "asok")
        conf = os.path.join(folder, "conf")
        with open(conf, "w") as file:
            file.write("[global]\nmon_host = 127.0.0.1:1\nkeyring = /dev/null\n")
        words = ["rados", "--no-mon-config", "-c", conf, "--admin-socket", path, "lspools"]
        quiet = subprocess.DEVNULL
        client = subprocess.Popen(words, stdin=quiet, stdout=quiet, stderr=quiet)
        try:
            until = time.monotonic() + _PATIENCE_S
            while True:
                try:
                    return list(ask(path, {"prefix": "config help"})["options"])
                except ASK_ERRORS:
                    if client.poll() is not None or time.monotonic() > until:
                        raise
                    time.sleep(0.02)
        finally:
            client.kill()
            client.wait()


class Parser:
    """Ceph's own reading of values: a client's that is connected to nothing."""

    def __init__(self) -> None:
        self._lib = ctypes.CDLL("librados.so.2")
        self._client = ctypes.c_void_p()
        self._lib.rados_create(ctypes.byref(self._client), b"admin")

    def read(self, name: str, value: str) -> Optional[str]:
        """The value as daemons show it, or None if Ceph does not take it."""
        key = name.encode()
        if self._lib.rados_conf_set(self._client, key, value.encode()) < 0:
            return None
        return self.get(name)

    def get(self, name: str) -> Optional[str]:
        """The value that was read last, or the default; None for what is no option."""
        shown = ctypes.create_string_buffer(_SIZE)
        size = ctypes.c_size_t(_SIZE)
        status = self._lib.rados_conf_get(self._client, name.encode(), shown, size)
        return shown.value.decode() if status >= 0 else None


def known(wanted: Dict[str, List[str]]) -> Dict[str, Any]:
    """Option -> what this release knows of it and of those values, or the nearest names."""
    options = {option["name"]: option for option in described()}
    parser = Parser()
    found = {}  # type: Dict[str, Any]
    for name, values in wanted.items():
        shown = {value: parser.read(name, value) for value in values}
        about = options.get(name)
        if about is None and name.startswith("debug_") and parser.get(name) is not None:
            # Levels of logs are none of its list.
            about = {"type": "level", "flags": ["runtime"]}
        if about is None:
            found[name] = {"nearest": difflib.get_close_matches(name, options, 3)}
            continue
        found[name] = {key: about.get(key) for key in ("type", "min", "max", "enum_values")}
        found[name].update(flags=about.get("flags", []), values=shown)
    return found


def sockets(folder: str, osds: List[str]) -> Iterator[Tuple[str, str]]:
    """Names of daemons and their sockets: monitors and managers there, and these OSDs."""
    for file in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        name, extension = os.path.splitext(file)
        kind = name.partition(".")[0]
        if extension == ".asok" and (name in osds or kind in ("mon", "mgr")):
            yield name, os.path.join(folder, file)


def read(asked: Dict[str, Any]) -> Dict[str, Any]:
    """Daemon -> option -> its value, and at which levels somebody else set it; or an error."""
    daemons = {}  # type: Dict[str, Any]
    for daemon, path in sockets(asked["folder"], asked["osds"]):
        try:
            shown = ask(path, {"prefix": "config show"})
            differs = ask(path, {"prefix": "config diff"})["diff"]
        except (*ASK_ERRORS, KeyError, TypeError) as error:
            daemons[daemon] = {"error": f"{path}: {error}"}
            continue
        daemons[daemon] = {
            name: {
                "value": shown.get(name),
                "set": sorted(set(differs.get(name, {})) - set(_OF_CAMPAIGN)),
            }
            for name in asked["names"]
        }
    return daemons


def apply(asked: Dict[str, Any]) -> None:
    """Set what daemons are to have, and unset the rest of the names. Raises one of ASK_ERRORS."""
    for daemon, path in sockets(asked["folder"], asked["osds"]):
        wanted = {}  # type: Dict[str, str]
        for section in (daemon.partition(".")[0], daemon):
            wanted.update(asked["sections"].get(section, {}))
        for name in asked["names"]:
            if name in wanted:
                command = {"prefix": "config set", "var": name, "val": [wanted[name]]}
            else:
                command = {"prefix": "config unset", "var": name}
            answer = ask(path, command)
            # That it 'may require restart' is said of options read anew each time, too.
            if isinstance(answer, dict) and "error" in answer:
                sys.exit("{}: {} {}: {}".format(daemon, command["prefix"], name, answer["error"]))


def see(asked: Dict[str, Any]) -> Dict[str, Any]:
    """Daemon -> option -> value, as it is now; without what no daemon answers."""
    seen = {}  # type: Dict[str, Any]
    for daemon, path in sockets(asked["folder"], asked["osds"]):
        for name in asked["names"]:
            try:
                value = ask(path, {"prefix": "config get", "var": name})[name]
            except (*ASK_ERRORS, KeyError, TypeError):
                continue
            seen.setdefault(daemon, {})[name] = value
    return seen


def main(asked: Dict[str, Any]) -> None:
    """Let what is asked be `known`, `read` or applied."""
    if "wanted" in asked:
        print(json.dumps(known(asked["wanted"])))
    elif "sections" in asked:
        apply(asked)
    else:
        print(json.dumps(read(asked)))

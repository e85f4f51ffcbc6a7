"""Prints the messenger's mode that a client of a cluster asks for. This file runs on the hosts.

Its source is sent to them, so it needs nothing but Python 3.6 and librados, which every client
has. Connecting matters: options that the monitors keep are known only then.
"""

import ctypes
import json
import sys
from typing import Dict

_SIZE = 256
_TIMEOUT_S = b"20"


def mode(conf: str, user: str) -> str:
    """The value of ms_client_mode that is in force; empty when the cluster does not let us in."""
    librados = ctypes.CDLL("librados.so.2")
    cluster = ctypes.c_void_p()
    value = ctypes.create_string_buffer(_SIZE)
    if librados.rados_create(ctypes.byref(cluster), user.encode()):
        return ""
    try:
        if librados.rados_conf_read_file(cluster, conf.encode()):
            return ""
        librados.rados_conf_set(cluster, b"client_mount_timeout", _TIMEOUT_S)
        if librados.rados_connect(cluster):
            return ""
        librados.rados_conf_get(cluster, b"ms_client_mode", value, ctypes.c_size_t(_SIZE))
    finally:
        librados.rados_shutdown(cluster)
    return value.value.decode()


def main(request: Dict[str, str]) -> None:
    """`asked`: the client's `conf` and its `user`."""
    try:
        print(mode(request["conf"], request["user"]))
    except (OSError, AttributeError) as error:
        print(error, file=sys.stderr)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

"""Print what a client of a cluster learns when it connects. Runs on hosts: Python 3.6, librados.

Options that the monitors keep are known only then, and no file needs to have the fsid.
"""

import contextlib
import ctypes
import errno
import json
import os
import sys
from typing import Any, Dict, Iterator, List, Tuple

_SIZE = 1024
#: Seconds after which monitors are taken to be silent.
TIMEOUT_S = 20


def told(conf: str, user: str, names: List[str]) -> List[str]:
    """The values of `fsid` and of options in force; OSError without librados or cluster."""
    with connected(conf, user) as (librados, cluster):
        return [value_of(librados, cluster, name) for name in names]


@contextlib.contextmanager
def connected(conf: str, user: str) -> Iterator[Tuple[Any, ctypes.c_void_p]]:
    """librados and a connection by it; OSError without librados or cluster."""
    librados = ctypes.CDLL("librados.so.2")
    cluster = ctypes.c_void_p()
    require(librados.rados_create(ctypes.byref(cluster), user.encode()))
    try:
        require(librados.rados_conf_read_file(cluster, conf.encode()))
        seconds = str(TIMEOUT_S).encode()
        librados.rados_conf_set(cluster, b"client_mount_timeout", seconds)
        status = librados.rados_connect(cluster)
        if status < 0:
            raise OSError(-status, _refusal(-status, value_of(librados, cluster, "keyring")))
        yield librados, cluster
    finally:
        librados.rados_shutdown(cluster)


def _refusal(number: int, keyring: str) -> str:
    if number == errno.ETIMEDOUT:
        return f"no monitor answers within {TIMEOUT_S} s"
    # The latter where the file does not say cephx, and the client has nothing else to offer.
    if number in (errno.ENOENT, errno.EOPNOTSUPP):
        return "its key is not in " + keyring.rstrip(",")
    if number in (errno.EACCES, errno.EPERM):
        return "its key cannot be read, or is not the monitors'; looked for in " + keyring
    return os.strerror(number)


def value_of(librados: Any, cluster: ctypes.c_void_p, name: str) -> str:
    """The value of `fsid`, or of an option in force."""
    value = ctypes.create_string_buffer(_SIZE)
    size = ctypes.c_size_t(_SIZE)
    if name == "fsid":
        require(librados.rados_cluster_fsid(cluster, value, size))
    else:
        require(librados.rados_conf_get(cluster, name.encode(), value, size))
    return value.value.decode()


def require(status: int) -> None:
    """Raise OSError for what a function of Ceph's libraries returned, if it failed."""
    if status < 0:
        raise OSError(-status, os.strerror(-status))


def main(request: Dict[str, Any]) -> None:
    """Print the values of `names` on one line; of a client with that `conf` and `user`."""
    try:
        print(*told(request["conf"], request["user"], request["names"]))
    except (OSError, AttributeError) as error:
        why = getattr(error, "strerror", None) or error
        print("{}: {}".format(request["conf"], why), file=sys.stderr)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

"""Python programs that run on the hosts, where this package is not installed."""

from __future__ import annotations

import json
import shlex
from typing import Any


def python(source: str, argument: Any) -> str:
    """Shell text that runs a program with `argument`, as JSON, in its `sys.argv[1]`.

    It runs as root where `$SUDO` allows. python3 is wherever Ceph's commands are; the program can
    count on its standard library, of Python 3.6 on.
    """
    arguments = shlex.quote(json.dumps(argument))
    return f"$SUDO python3 -I - {arguments} <<'PYTHON_PROGRAM'\n{source.strip()}\nPYTHON_PROGRAM\n"

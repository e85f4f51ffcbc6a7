"""Which of Ceph's libraries client processes have mapped. This file runs on the hosts.

Its source is sent to them, so it needs nothing but Python 3.6. It is a `Watch`: see
`cluster_overlays/base.py`. What a program is linked with says less: it may be another program, and
an engine of fio's may be loaded at run time.
"""

import json
from typing import Any, Dict, List, Set  # noqa: F401 - in comments

from cbt_crypto.cluster_overlays.ceph_build.look_on_host import mapped
from cbt_crypto.hosts.samplers.clients_on_host import Clients

# What was asked -> who knows what it has looked at already.
_BY_QUESTION = {}  # type: Dict[str, Clients]


def see(asked: Dict[str, Any]) -> List[str]:
    """Files of Ceph mapped by processes called one of `programs` with the mark of `tmp_dir`."""
    clients = _BY_QUESTION.setdefault(json.dumps(asked, sort_keys=True), Clients(asked))
    paths = set()  # type: Set[str]
    for pid in clients.present():
        try:
            paths.update(mapped(pid))
        except OSError:
            continue
    return sorted(paths)

"""What is asked of a cluster that no part of this project made: claims, and whether it stays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

import yaml

#: Makes one by Ceph's own tools, on the host where it runs; options are lines of its ceph.conf.
SCRIPT = Path(__file__).resolve().parents[1] / "programs" / "stock_cluster.sh"
#: Shell text that shows all that belongs to a cluster and does not change by itself, and what lies
#: on its hosts.
STATE = """
for what in 'config dump' 'auth ls' 'osd tree' 'osd pool ls detail' 'osd crush dump' 'mon dump' \
    'mgr module ls'; do
    echo "## $what"; ceph $what 2>/dev/null
done | grep -v removed_snaps_queue  # the pool's own, which it empties in time
ceph osd dump | grep -v '^epoch\\|^modified\\|removed_snaps_queue'
rbd ls
find /etc/ceph /var/lib/ceph -name store.db -prune -o -name 'external_log_to*' -o \\
    -printf '%p %M %u %l\\n' | sort  # the monitor writes that log's place anew all the time
cat /etc/ceph/*
"""
_RUN = """
cd {directory}
if {cbt} --no-report -a {name} {name}.yaml > {name}.log 2>&1
then echo {name}: proved; else echo {name}: refused; cat {name}.log; fi
grep -h '"reason".*\\(crypt\\|byte\\|mode\\|flags\\)' {name}/results/*/id-*/proof.json || :
"""
_KILLED = """
cd {directory}
export XDG_STATE_HOME=$PWD/state
setsid {cbt} --no-report -a killed plain.yaml > killed.log 2>&1 &
pid=$!
until grep -q 'cell 1' killed.log; do kill -0 $pid || {{ cat killed.log; exit 1; }}; sleep 0.5; done
kill -9 $pid
rbd ls
"""
_CLEANED = """
cd {directory}
export XDG_STATE_HOME=$PWD/state
{cleanup} killed
"""
#: What a cluster is said to be, truly or not.
CLAIMS: Mapping[str, Any] = {
    "plain": {"As it is": {}},
    "secure": {"As it is": {"secure_messenger": {}}},
    "luks": {"As it is": {"luks": {}}},
}
#: Of a cluster that is not called ceph, whose administrator gave a key that does for images.
NAMED = {"conf_file": "/etc/ceph/lab.conf", "client_id": "bench"}
#: Makes such a cluster by the script that is put behind it.
MAKE_NAMED = """
make_named() {
    CLUSTER=lab sh "$@"
    ceph --cluster lab auth get-or-create client.bench mon 'profile rbd' osd 'profile rbd' \
        -o /etc/ceph/lab.client.bench.keyring
    mv /etc/ceph/lab.client.admin.keyring /root/kept  # nobody is anybody else from now on
}
make_named """


def campaigns(
    host: str,
    tmp_dir: str,
    claims: Mapping[str, Any] = CLAIMS,
    keys: Optional[Mapping[str, Any]] = None,
    **own: int,
) -> dict[str, str]:
    """Name -> the text of a file for each claim: a campaign of one short cell of writes.

    `keys` are more of its cluster, `own` is of its load.
    """
    load = {"vol_size": 64, "iodepth": 8, "time": 4, "op_size": 4096, "mode": "randwrite", **own}
    files = {}
    for name, configurations in claims.items():
        cluster = {
            "head": host, "clients": [host], "use_existing": True, "tmp_dir": tmp_dir,
            "configurations": configurations, **(keys or {}),
        }  # fmt: skip
        sections = {"cluster": cluster, "benchmarks": {"rbd_single_client": load}}
        files[f"{name}.yaml"] = yaml.safe_dump(sections)
    return files


def run_script(name: str, directory: str, cbt: str) -> str:
    """Shell text that runs the campaign of a claim below `directory`, and says how it ended.

    It prints `NAME: proved`, or `NAME: refused` with what was said, and the proof's reasons.
    """
    return _RUN.format(directory=directory, cbt=cbt, name=name)


def kill_script(directory: str, cbt: str) -> str:
    """Shell text that kills the campaign `plain` in its cell, and lists the images that it left."""
    return _KILLED.format(directory=directory, cbt=cbt)


def cleanup_script(directory: str, cleanup: str) -> str:
    """Shell text that removes what it left, by the user's own state of it."""
    return _CLEANED.format(directory=directory, cleanup=cleanup)

"""A campaign whose ssh is killed goes on, and whoever comes back sees where it is and its tables.

ssh, sshd and the terminal are OpenSSH's own, on a node with Ceph of its release.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from real_labs import namespaces, running_lab

import cbt_crypto
from cbt_crypto.engine.choice import PROJECT
from cbt_crypto.lab import access, run
from cbt_crypto.lab.shape import Lab
from cbt_crypto.report import build

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

NAME = f"lost-ssh-{os.getpid()}"
_COMMAND = "from cbt_crypto.cli import cbt_crypto\ncbt_crypto(prog_name='cbt-crypto')\n"
_CAMPAIGN = {
    "cluster": {
        "head": "node0", "clients": ["node0"], "osds": ["node0"],
        "mons": {"node0": {"a": "node0"}}, "mgrs": {"node0": {"x": None}},
        "osds_per_node": 2, "osd_file_size": "2G", "control": False, "rebuild": "needed",
        "pool_profiles": {"rbd": {"pg_size": 8, "pgp_size": 8, "replication": 2}},
        "configurations": {"Unencrypted": {}, "Secure messenger": {"secure_messenger": {}}},
    },
    "benchmarks": {
        "rbd_single_client": {
            "vol_size": 64, "iodepth": 4, "time": 15, "op_size": 4096,
            "workloads": {"mode": ["randread", "randwrite"]},
        },
    },
}  # fmt: skip


@pytest.fixture
def lab() -> Iterator[Lab]:
    with running_lab(NAME, namespaces(1)) as started:
        yield started


def _waited(what: str, condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + 900
    while not condition():
        assert time.monotonic() < ends, f"waited in vain for {what}"
        time.sleep(2)


def test_the_campaign_goes_on_and_the_table_is_right(lab: Lab, tmp_path: Path) -> None:
    files = {
        "cbt_crypto": Path(cbt_crypto.__file__).parent, "main.py": _COMMAND,
        "cbt.py": PROJECT / "cbt.py", "my.yaml": yaml.safe_dump(_CAMPAIGN, sort_keys=False),
    }  # fmt: skip
    run.put(lab, lab.head, "/root/cc", files)

    def watched() -> str:
        return access.run(lab, lab.head, "cd /root/cc; python3 main.py watch archive 2>&1 || :")

    # A login on a terminal that starts the campaign, watches it, and is cut off.
    line = "cd /root/cc; python3 cbt.py --detach --no-report -a archive my.yaml && "
    login = subprocess.Popen(
        [*access.command(lab, lab.head)[:-1], "-tt", lab.head.name,
         f"{line} exec python3 main.py watch archive"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        _waited("IOPS of the first cell", lambda: " IOPS" in watched())
    finally:
        login.kill()
    said = login.communicate()[0].decode(errors="replace")
    assert "running as process" in said
    ours = "pgrep -fc 'main.py watch archive$' || :"
    _waited("the end of the login", lambda: access.run(lab, lab.head, ours).strip() == "0")
    assert "left" in watched(), "it goes on"
    _waited("its end", lambda: "ended; cell 4 of 4" in watched())
    kept = subprocess.run(
        access.command(lab, lab.head, "tar -C /root/cc -c archive"), capture_output=True, check=True
    )
    subprocess.run(["tar", "-x", "-C", str(tmp_path)], input=kept.stdout, check=True)
    cells = build(tmp_path / "archive").cells
    assert [cell.state for cell in cells] == ["measured"] * 4
    assert {cell.name for cell in cells} == {"Unencrypted", "Secure messenger"}
    for cell in cells:
        assert cell.figures["iops"] > 0 and cell.comparisons["iops"].percent > 0
        assert all(run.proof is not None and run.proof.proved for run in cell.runs)
    assert access.run(lab, lab.head, "pgrep -c 'ceph|fio' || :").strip() == "0"

"""Clusters that no part of this project made: Reef's and Tentacle's, by their own tools, in a lab.

What is there is recognised, a false claim fails, and nothing of the cluster is changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from real_labs import namespaces, running_lab

import cbt_crypto
from cbt_crypto.lab import transfer
from cbt_crypto.lab.nodes import ssh
from cbt_crypto.lab.run import CBT_SCRIPT
from cbt_crypto.lab.shape import Lab, Release

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

_STOCK = Path(__file__).resolve().parents[1] / "programs" / "stock_cluster.sh"
#: All that belongs to a cluster and does not change by itself, and what lies on its hosts.
_STATE = """
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
cd /root/campaign
if python3 cbt.py --no-report -a /root/{name} {name}.yaml > {name}.log 2>&1
then echo {name}: proved; else echo {name}: refused; cat {name}.log; fi
grep -h '"reason".*\\(crypt\\|byte\\)' /root/{name}/results/*/id-*/proof.json || :
"""


def campaign(configurations: dict[str, object]) -> str:
    """A campaign of one short cell of writes, with the claim that its configuration is."""
    cluster = {
        "head": "node0", "clients": ["node0"], "use_existing": True, "tmp_dir": "/root/mine",
        "configurations": configurations,
    }  # fmt: skip
    load = {"vol_size": 64, "iodepth": 8, "time": 4, "op_size": 4096, "mode": "randwrite"}
    return yaml.safe_dump({"cluster": cluster, "benchmarks": {"rbd_single_client": load}})


@pytest.fixture(params=[Release.REEF, Release.TENTACLE], ids=lambda release: str(release.value))
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A node of the release, with this package and the campaigns, and no cluster."""
    files = {
        "cbt.py": CBT_SCRIPT,
        "cbt_crypto": Path(cbt_crypto.__file__).parent,
        "stock.sh": _STOCK,
        "plain.yaml": campaign({"As it is": {}}),
        "secure.yaml": campaign({"As it is": {"secure_messenger": {}}}),
        "luks.yaml": campaign({"As it is": {"luks": {}}}),
    }
    with running_lab(f"stock-test-{os.getpid()}", namespaces(1, ceph=request.param)) as started:
        transfer.put(started, started.head, "/root/campaign", files)
        yield started


def make(lab: Lab, *options: str) -> None:
    words = " ".join(f"'{option}'" for option in options)
    ssh.run(lab, lab.head, f"sh /root/campaign/stock.sh {words}")


def state(lab: Lab) -> str:
    return ssh.run(lab, lab.head, _STATE)


def run(lab: Lab, name: str) -> str:
    return ssh.run(lab, lab.head, _RUN.replace("{name}", name))


def test_a_stock_cluster_is_recognised_and_left_as_it_was(lab: Lab) -> None:
    make(lab)
    before = state(lab)
    plain, secure, luks = (run(lab, name) for name in ("plain", "secure", "luks"))
    assert plain.startswith("plain: proved"), plain
    assert "2 of 2 OSDs did not encrypt what they exchanged" in plain
    assert "bytes were encrypted, towards monitors and managers" in plain
    assert secure.startswith("secure: refused"), secure
    assert "its traffic is plain: clients crc, OSDs crc" in secure
    assert luks.startswith("luks: refused"), luks
    assert "below which is no dm-crypt" in luks
    assert state(lab) == before
    assert ssh.run(lab, lab.head, "ls -A /root/mine 2>/dev/null || :") == ""


def test_a_mixture_is_called_one(lab: Lab) -> None:
    make(lab, "ms_cluster_mode = secure")
    said = {name: run(lab, name) for name in ("plain", "secure")}
    for name, text in said.items():
        assert text.startswith(f"{name}: refused"), text
        assert "its traffic is mixed: clients crc, OSDs secure" in text
    # What a load of 4 s makes of all traffic differs from run to run; one of two is near enough.
    assert any("about the share of the OSDs' data" in text for text in said.values()), said


def test_what_is_encrypted_is_proved(lab: Lab) -> None:
    make(lab, *(f"ms_{who}_mode = secure" for who in ("client", "cluster", "service")))
    assert run(lab, "secure").startswith("secure: proved")
    assert run(lab, "plain").startswith("plain: refused")

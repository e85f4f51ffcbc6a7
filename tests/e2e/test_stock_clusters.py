"""Clusters that no part of this project made: Reef's and Tentacle's, by their own tools, in a lab.

What is there is recognised, a false claim fails, and nothing of the cluster is changed.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from real_labs import namespaces, running_lab
from stock_clusters import SCRIPT, STATE, campaigns, run_script

import cbt_crypto
from cbt_crypto.lab import access
from cbt_crypto.lab import run as transfer
from cbt_crypto.lab.run import CBT_SCRIPT
from cbt_crypto.lab.shape import Lab, Release
from cbt_crypto.report import build

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


_RELEASES: dict[str, Any] = {
    "params": [Release.REEF, Release.TENTACLE],
    "ids": lambda release: str(release.value),
}


@contextlib.contextmanager
def node(name: str, release: Release) -> Iterator[Lab]:
    """A node of the release, with this package and the campaigns, and no cluster."""
    files = {
        "cbt.py": CBT_SCRIPT,
        "cbt_crypto": Path(cbt_crypto.__file__).parent,
        "stock.sh": SCRIPT,
        **campaigns("node0", "/root/mine"),
        **campaigns("node0", "/root/mine", {"bench": {"As it is": {}}}, {"client_id": "bench"}),
    }
    with running_lab(f"{name}-{os.getpid()}", namespaces(1, ceph=release)) as started:
        transfer.put(started, started.head, "/root/campaign", files)
        yield started


@pytest.fixture(**_RELEASES)
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A node without a cluster, of the test's own."""
    with node("stock-own", request.param) as started:
        yield started


@pytest.fixture(scope="module", **_RELEASES)
def _shared(request: pytest.FixtureRequest) -> Iterator[Lab]:
    with node("stock-test", request.param) as started:
        make(started)
        yield started


@pytest.fixture
def stock(_shared: Lab) -> Lab:
    """A node with a cluster that was made without options, where no campaign has measured yet."""
    access.run(_shared, _shared.head, "cd /root/campaign; rm -rf plain secure luks bench")
    return _shared


def make(lab: Lab, *options: str) -> None:
    words = " ".join(f"'{option}'" for option in options)
    access.run(lab, lab.head, f"sh /root/campaign/stock.sh {words}")


def state(lab: Lab) -> str:
    return access.run(lab, lab.head, STATE)


def run(lab: Lab, name: str) -> str:
    return access.run(lab, lab.head, run_script(name, "/root/campaign", "python3 cbt.py"))


def test_a_stock_cluster_is_recognised_and_left_as_it_was(stock: Lab) -> None:
    before = state(stock)
    plain, secure, luks = (run(stock, name) for name in ("plain", "secure", "luks"))
    assert plain.startswith("plain: proved"), plain
    assert "2 of 2 OSDs did not encrypt what they exchanged" in plain
    assert "bytes were encrypted, towards monitors and managers" in plain
    assert secure.startswith("secure: refused"), secure
    assert "its traffic is plain: clients crc, OSDs crc" in secure
    assert luks.startswith("luks: refused"), luks
    assert "below which is no dm-crypt" in luks
    assert state(stock) == before
    assert access.run(stock, stock.head, "ls -A /root/mine 2>/dev/null || :") == ""


def test_a_mixture_is_called_one(lab: Lab) -> None:
    make(lab, "ms_cluster_mode = secure")
    said = {name: run(lab, name) for name in ("plain", "secure")}
    for name, text in said.items():
        assert text.startswith(f"{name}: refused"), text
        assert "its traffic is mixed: clients crc, OSDs secure" in text
        # Replicas, and not what clients exchange: two thirds, and more in a short run.
        shares = [float(found) for found in re.findall(r"([\d.]+) % of \d+ bytes", text)]
        assert shares and all(50 < share < 99 for share in shares), text


def test_what_is_encrypted_is_proved(lab: Lab) -> None:
    make(lab, *(f"ms_{who}_mode = secure" for who in ("client", "cluster", "service")))
    assert run(lab, "secure").startswith("secure: proved")
    assert run(lab, "plain").startswith("plain: refused")


def test_a_database_of_its_own_is_looked_at_too(lab: Lab) -> None:
    make(lab, "bluestore_block_db_create = true", "bluestore_block_db_size = 1073741824")
    assert access.run(lab, lab.head, "ls /var/lib/ceph/osd/*/block.db").count("block.db") == 2
    plain, luks = run(lab, "plain"), run(lab, "luks")
    assert plain.startswith("plain: proved"), plain
    assert luks.startswith("luks: refused"), luks
    assert "below which is no dm-crypt" in luks


def test_a_cluster_that_speaks_ipv6_alone(lab: Lab) -> None:
    addresses = "MON_HOST='[v2:[::1]:3300]' MON_ADDRESSES='[v2:[::1]:3300]'"
    options = ("public_network = ::1/128", "ms_bind_ipv6 = true", "ms_bind_ipv4 = false")
    words = " ".join(f"'{option}'" for option in options)
    access.run(lab, lab.head, f"{addresses} sh /root/campaign/stock.sh {words}")
    assert run(lab, "plain").startswith("plain: proved")
    secure = run(lab, "secure")
    assert secure.startswith("secure: refused"), secure
    assert "its traffic is plain" in secure


#: No more than docs/existing-clusters.md asks for, and each a little less.
CAPS = "mon 'allow r' osd 'profile rbd pool=rbd'"
LESS = {
    "osd 'profile rbd pool=rbd'": "does not let client.bench in",
    "mon 'profile rbd'": "rbd info does not tell whether there is an image",
    "mon 'profile rbd' osd 'profile rbd-read-only pool=rbd'": "Operation not permitted",
}
_CLIENT = """
ceph auth add client.bench 2>/dev/null || :
ceph auth caps client.bench {caps}
ceph auth get client.bench -o /etc/ceph/ceph.client.bench.keyring
"""


def test_the_least_that_a_client_must_be_allowed(stock: Lab) -> None:
    access.run(stock, stock.head, _CLIENT.format(caps=CAPS))
    hidden = "/etc/ceph/ceph.client.admin.keyring /root/"
    access.run(stock, stock.head, f"mv {hidden}")
    said = run(stock, "bench")
    access.run(stock, stock.head, "mv /root/ceph.client.admin.keyring /etc/ceph/")
    assert said.startswith("bench: proved"), said
    for caps, why in LESS.items():
        access.run(stock, stock.head, f"rm -rf /root/campaign/bench\n{_CLIENT.format(caps=caps)}")
        said = run(stock, "bench")
        print(caps, said)
        assert said.startswith("bench: refused") and why in said, (caps, said)


_OTHERS = """
cd /root
rbd create --size 256M rbd/others
setsid rbd bench --io-type write --io-size 4K --io-threads 8 --io-total 100G rbd/others \\
    > others.log 2>&1 < /dev/null &
echo $! > others.pid
"""


def test_what_ran_beside_is_said(stock: Lab, tmp_path: Path) -> None:
    def measured(name: str) -> Any:
        assert run(stock, "plain").startswith("plain: proved")
        transfer.bring_results(stock, stock.head, "/root/campaign/plain", tmp_path / name)
        (row,) = build(tmp_path / name).cells
        return row

    alone = measured("alone")
    assert not any("other clients" in warning for warning in alone.warnings)
    access.run(stock, stock.head, f"rm -rf /root/campaign/plain\n{_OTHERS}")
    beside = measured("beside")
    access.run(stock, stock.head, "kill $(cat /root/others.pid)")
    print(alone.figures, beside.figures, beside.warnings, sep="\n")
    assert beside.figures["other_clients_iops"] > 10 * alone.figures["other_clients_iops"]
    assert any("other clients did about" in warning for warning in beside.warnings)

"""Two virtual machines: every kind of tunnel between them, and everything at once over one of them.

The tunnels are looked at from below: one that encrypts must not show a pattern sent through it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from real_labs import running_lab

from cbt_crypto.cluster_overlays.network import Network
from cbt_crypto.hosts.site import Osd, Site
from cbt_crypto.lab import access
from cbt_crypto.lab.shape import Kind, Lab, Shape

pytestmark = [pytest.mark.lab, pytest.mark.timeout(2400)]

NAME = f"mixed-test-{os.getpid()}"
CONFIG = Path(__file__).parents[2] / "configs" / "lab" / "mixed_stack.yaml"
LEFT = """
ls /sys/class/net | grep '^cbtx' || :
ls /run/cbt-crypto /dev/shm/cbt-crypto 2> /dev/null || :
dmsetup ls | grep -v '^No devices' || :
vgs --noheadings 2> /dev/null || :
ls -d /var/lib/cbt-crypto /sys/fs/cgroup/cbt-crypto-* 2> /dev/null || :
pgrep -l 'ceph|fio' || :
for n in 0 1; do wipefs --noheadings /dev/disk/by-partlabel/osd-device-$n-data; done
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    shape = Shape(kind=Kind.VM, nodes=2, disks=2, disk_size=4 * 2**30, memory=3 * 2**30, cpus=2)
    with running_lab(NAME, shape) as started:
        yield started


SITE = Site(
    tmp_dir="/tmp/tunnel-test",
    conf="/tmp/tunnel-test/ceph.conf",
    head="node0",
    clients=("node0",),
    osds=(Osd(0, "node1", "/dev/null", "/nowhere", "/nowhere.asok", "/nowhere.pid"),),
)
PATTERN = "636274637279"
# $PEER is in the tunnel; the pattern of ping's packets is looked for on the network below.
PING = f"""
tcpdump -U -i any -w /tmp/seen '(udp or proto 4 or proto 50)' 2> /tmp/tcpdump &
while ! grep -q listening /tmp/tcpdump; do sleep 0.1; done
ping -c 5 -i 0.3 -s 1200 -p {PATTERN} $PEER > /dev/null
sleep 1; kill $!; wait $! || :
grep -c cbtcrycbtcry /tmp/seen || :
stat -c %s /tmp/seen
"""
TRACES = """
ls /sys/class/net | grep '^cbtx' || :
ls /run/cbt-crypto /dev/shm/cbt-crypto 2> /dev/null || :
ip xfrm state; ip xfrm policy
"""


def on_nodes(lab: Lab, scripts: Mapping[str, str]) -> dict[str, str]:
    nodes = {node.name: node for node in lab.nodes}
    wrapped = {host: f"set -eu\nSUDO=\n(\n{text}\n)" for host, text in scripts.items()}
    return {host: access.run(lab, nodes[host], text).strip() for host, text in wrapped.items()}


@pytest.mark.parametrize("kind", ["vxlan", "ipip", "wireguard", "ipsec"])
def test_a_tunnel_is_made_carries_and_goes(lab: Lab, kind: str) -> None:
    overlay = Network.model_validate({"type": kind})
    needs = overlay.requirements(SITE)
    for need in needs:
        for said in on_nodes(lab, dict.fromkeys(need.hosts, need.script)).values():
            assert need.judge(said) is None
    said = on_nodes(lab, overlay.introduce(SITE))
    on_nodes(lab, overlay.before_daemons(SITE, said))
    shown = on_nodes(lab, {"node0": overlay.probe(SITE)["node0"].partition("@osds")[0]})
    (link,) = json.loads(shown["node0"].partition("\n")[2].rpartition("}")[0] + "}")[
        "links"
    ].values()
    seen, size = on_nodes(lab, {"node0": f"PEER=10.207.0.2\n{PING}"})["node0"].split()
    for _ in range(2):
        on_nodes(lab, overlay.take_down(SITE))
    assert link["kind"] == ("xfrm" if kind == "ipsec" else kind)
    assert int(size) > 5 * 1200
    assert (int(seen) > 0) == (kind in ("vxlan", "ipip"))
    assert set(on_nodes(lab, dict.fromkeys(SITE.hosts, TRACES)).values()) == {""}


@pytest.fixture(scope="module")
def proof(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Overlay -> its verdict in the one cell."""
    archive = tmp_path_factory.mktemp("mixed") / "archive"
    command = [sys.executable, "-m", "cbt_crypto", "lab", "run", str(CONFIG)]
    command += ["-a", str(archive), "--name", NAME]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2000)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = archive.glob("results/*/id-*/proof.json")
    found = json.loads(path.read_text())
    return {verdict["overlay"]: verdict for verdict in found["overlays"]}


def test_every_overlay_proves_itself(proof: dict[str, Any]) -> None:
    present = {name for name, verdict in proof.items() if verdict["present"]}
    assert present == {"network", "db_device", "luks", "cpuset", "secure_messenger"}
    assert all(verdict["proved"] for verdict in proof.values()), proof


def test_data_is_encrypted_and_the_database_is_not(proof: dict[str, Any]) -> None:
    for found in proof["luks"]["evidence"].values():
        tops = [layers[0] for layers in found["opened"].values()]
        kinds = sorted(top["uuid"].partition("-")[0] for top in tops)
        assert kinds == ["CRYPT", "LVM"]
    for found in proof["db_device"]["evidence"].values():
        assert found["metadata"]["bluefs_dedicated_db"] == "1"


def test_wireguard_carries_what_the_secure_messenger_encrypted(proof: dict[str, Any]) -> None:
    carried = proof["network"]["evidence"]["tunnel_bytes"]["node1"]
    sent = proof["secure_messenger"]["evidence"]["osd.1"]
    assert carried >= sent["bytes"] == sent["encrypted_bytes"] > 0


def test_nothing_stays(lab: Lab, proof: dict[str, Any]) -> None:
    for node in lab.nodes:
        assert access.run(lab, node, LEFT).split() == []

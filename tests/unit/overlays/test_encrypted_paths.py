"""What a site encrypts below the cluster: on real links and policies in a network namespace."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from cbt_crypto.cluster_overlays import encrypted_paths_on_host, network
from cbt_crypto.cluster_overlays.network import Network
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.site import Site

pytestmark = pytest.mark.unit

#: As iproute2 6.1 prints them; WireGuard is no part of every kernel.
_WIREGUARD = (
    "5: wg0: <POINTOPOINT,NOARP,UP,LOWER_UP> mtu 1420 qdisc noqueue state UNKNOWN mode DEFAULT "
    "group default qlen 1000\\    link/none  promiscuity 0 minmtu 0 maxmtu 2147483552 \\    "
    "wireguard addrgenmode none numtxqueues 1 numrxqueues 1 gso_max_size 65536"
)
_VLAN = "4: bond0.5@bond0: <BROADCAST,UP> mtu 1500 \\    vlan protocol 802.1Q id 5 <REORDER_HDR>"
#: The last two are another user's, and the kernel's.
_SS = """\
0 0 10.9.0.1:45000 10.9.0.2:6802 timer:(keepalive,4sec,0) uid:167 ino:1 sk:1 <->
0 0 10.9.0.1:22 10.9.0.7:6022 ino:2 sk:2 <->
0 0 127.0.0.1:45001 127.1.0.1:6810 uid:65534 ino:3 sk:3 <->
0 0 [::1]:4 [fd00::2]:3300 ino:0 sk:4 <->"""

# A veth pair stands for the network between two hosts; IPsec's policy is the kernel's own.
_NAMESPACE = """
ip link set lo up
ip link add out0 type veth peer name out1
ip addr add 10.9.0.1/24 dev out0; ip link set out0 up; ip link set out1 up
{more}
python3 -I - '["10.9.0.2"]' <<'PROGRAM'
{program}
PROGRAM
"""
_POLICY = "ip xfrm policy add src 10.9.0.0/24 dst 10.9.0.0/24 dir out tmpl proto esp mode transport"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes network namespaces")
@pytest.mark.parametrize(("more", "how"), [("", {}), (_POLICY, {"10.9.0.2": "IPsec"})])
def test_the_kernel_s_policies_are_seen(more: str, how: dict[str, str]) -> None:
    text = _NAMESPACE.format(more=more, program=shell.program(encrypted_paths_on_host))
    done = subprocess.run(
        ["unshare", "-n", "sh", "-euc", text], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == how


def test_links_are_known_by_their_kind() -> None:
    assert encrypted_paths_on_host.link_kind(_WIREGUARD) == "wg0 (wireguard)"
    assert encrypted_paths_on_host.link_kind(_VLAN) is None
    assert encrypted_paths_on_host.lower(_VLAN) == "bond0"
    assert encrypted_paths_on_host.lower(_WIREGUARD) is None


def test_a_user_s_own_connections_are_no_daemons_of_ceph() -> None:
    """Thousands of his made each proof run out of time, and one stood in its evidence."""
    found = encrypted_paths_on_host.connected(_SS, {0, 167})
    assert list(found) == ["10.9.0.2", "fd00::2"]


def test_it_is_in_the_evidence_and_no_fault(site: Site) -> None:
    overlay = Network.absent()
    assert network.PATHS in overlay.probe(site)["node0"]
    told = {host: f"none\n{network.PATHS}\n{{}}" for host in site.hosts}
    told["node0"] = f'none\n{network.PATHS}\n{{"10.9.0.2": "wg0 (wireguard)"}}'
    verdict = overlay.judge(site, told, told)
    assert verdict.proved
    assert verdict.evidence["node0"] == "none"
    assert verdict.evidence["encrypted_paths"] == ["node0 reaches 10.9.0.2 through wg0 (wireguard)"]

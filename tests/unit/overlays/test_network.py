"""The tunnel's commands, its keys, and what proves that daemons are in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Callable

import pytest
from pydantic import ValidationError

from cbt_crypto.cluster_overlays import tunnel_on_host as on_host
from cbt_crypto.cluster_overlays.base import Transition
from cbt_crypto.cluster_overlays.network import Network
from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.hosts.site import Osd, Site

pytestmark = pytest.mark.unit

ASKED: dict[str, Any] = {
    "action": "make",
    "kind": "vxlan",
    "link": "cbtxabc123",
    "id": 0xABC123,
    "me": "a",
    "hosts": {
        "a": {"tunnel": "10.207.0.1", "underlay": "a"},
        "b": {"tunnel": "10.207.0.2", "underlay": "b"},
        "c": {"tunnel": "10.207.0.3", "underlay": "c"},
    },
    "prefix": 24,
    "mtu": None,
    "port": 14789,
    "key_size": 128,
    "osds": {},
}
WAYS = [
    on_host.Way("b", "10.207.0.2", 1, "192.168.0.1", "192.168.0.2", "eth0"),
    on_host.Way("c", "10.207.0.3", 2, "192.168.0.1", "192.168.0.3", "eth0"),
]


def test_vxlan_learns_from_nobody_where_its_peers_are() -> None:
    """One packet of a stranger with a peer's address inside led that peer's traffic to him."""
    lines, places = on_host.vxlan(ASKED, WAYS, 1450)
    at = "dev cbtxabc123 nud permanent"
    assert lines == [
        "link add cbtxabc123 address 02:cb:70:00:00:00 type vxlan id 11256099 nolearning "
        "local 192.168.0.1 dstport 14789",
        "addr add 10.207.0.1/24 dev cbtxabc123",
        "link set cbtxabc123 mtu 1450 up",
        f"neigh replace 10.207.0.2 lladdr 02:cb:70:00:00:01 {at}",
        f"neigh replace 10.207.0.3 lladdr 02:cb:70:00:00:02 {at}",
    ]
    assert places == [
        f"fdb replace 02:cb:70:00:00:0{n - 1} dev cbtxabc123 dst 192.168.0.{n}" for n in (2, 3)
    ]


def test_ipip_is_a_device_a_peer() -> None:
    lines, _ = on_host.ipip(ASKED, WAYS, 1480)
    assert lines[:3] == [
        "link add cbtxabc123.1 type ipip local 192.168.0.1 remote 192.168.0.2",
        "addr add 10.207.0.1 peer 10.207.0.2/32 dev cbtxabc123.1",
        "link set cbtxabc123.1 mtu 1480 up",
    ]
    assert len(lines) == 6 and "cbtxabc123.2" in lines[3]


def test_wireguard_names_its_key_by_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_host, "make_key_directory", lambda: "/run/cbt-crypto")
    said = {"b": {"public": "PUB="}, "c": {"public": "PUC="}}
    command = on_host.peers({**ASKED, "kind": "wireguard", "port": 51829, "said": said}, WAYS)
    assert command[:5] == ["wg", "set", "cbtxabc123", "listen-port", "51829"]
    assert command[5:7] == ["private-key", "/run/cbt-crypto/cbtxabc123.key"]
    assert command[7:13] == [
        "peer", "PUB=", "allowed-ips", "10.207.0.2/32", "endpoint", "192.168.0.2:51829",
    ]  # fmt: skip


def test_both_ends_of_ipsec_have_the_same_states() -> None:
    secret = b"\x07" * 32
    here = on_host.security(ASKED, WAYS[0], secret)
    back = on_host.Way("a", "10.207.0.1", 0, "192.168.0.2", "192.168.0.1", "eth0")
    there = on_host.security({**ASKED, "me": "b"}, back, secret)
    states = {line for line in here if line.startswith("xfrm state")}
    assert states == {line for line in there if line.startswith("xfrm state")}
    keys = {re.findall(r"0x([0-9a-f]+) 128$", line)[0] for line in states}
    assert len(keys) == 2 and {len(key) for key in keys} == {40}  # 16 bytes and a salt of 4
    assert here[2] == (
        "xfrm policy add src 10.207.0.1/32 dst 10.207.0.2/32 dir out if_id 11256099 "
        "tmpl src 192.168.0.1 dst 192.168.0.2 proto esp mode tunnel"
    )
    assert " dir in if_id 11256099 tmpl src 192.168.0.2 dst 192.168.0.1 " in here[3]


def test_a_256_bit_key_has_36_bytes() -> None:
    assert len(on_host.esp_key(b"x", 1, 256)) == 2 + 72


STATES = """\
src 192.168.0.1 dst 192.168.0.2
\tproto esp spi 0x1aaa0001 reqid 0 mode tunnel
\treplay-window 0 flag esn
\tif_id 0xabc123
src 192.168.0.9 dst 192.168.0.8
\tproto esp spi 0x00000999 reqid 0 mode tunnel
"""
POLICIES = """\
src 10.207.0.1/32 dst 10.207.0.2/32
\tdir out priority 0 ptype main
\ttmpl src 192.168.0.1 dst 192.168.0.2
\t\tproto esp reqid 0 mode tunnel
\tif_id 0xabc123
src 0.0.0.0/0 dst 0.0.0.0/0
\tsocket in priority 0 ptype main
"""


def test_only_states_and_policies_of_ours_are_deleted() -> None:
    assert list(on_host.undone(0xABC123, STATES, "state")) == [
        "xfrm state delete src 192.168.0.1 dst 192.168.0.2 proto esp spi 0x1aaa0001"
    ]
    assert list(on_host.undone(0xABC123, POLICIES, "policy")) == [
        "xfrm policy delete src 10.207.0.1/32 dst 10.207.0.2/32 dir out if_id 11256099"
    ]
    assert list(on_host.undone(5, STATES, "state")) == []


def test_the_addresses_of_established_connections() -> None:
    table = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid inode\n"
        "   0: 0100CF0A:1A90 0200CF0A:8000 01 00000000:00000000 00:00000000 00000000 0 0 77 1\n"
        "   1: 0100007F:1A91 0100007F:8001 01 00000000:00000000 00:00000000 00000000 0 0 78 1\n"
        "   2: 0100CF0A:1A92 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 79 1\n"
    )
    assert list(on_host.established(table, {"socket:[77]", "socket:[79]"})) == ["10.207.0.1"]


@pytest.mark.parametrize(
    "options", [{"subnet": "10.0.0.1/24"}, {"subnet": "10.0.0.0/30"}, {"type": "gre"}]
)
def test_options_that_cannot_be(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Network(**{"type": "vxlan", **options})


def test_monitors_and_networks_are_in_the_tunnel(site: Site) -> None:
    overlay = Network(type="vxlan")
    assert overlay.mon_address(site, "node0", "192.168.0.1:3301") == "10.207.0.1:3301"
    assert overlay.ceph_conf()["global"]["cluster_network"] == "10.207.0.0/24"
    stack = Stack([overlay])
    assert stack.mon_address(site, "node0", "node0") == "10.207.0.1"
    assert Stack([]).mon_address(site, "node0", "node0") == "node0"
    named = {"global": {"public_network": "192.168.5.0/24"}}
    assert "public_network names the network of configurations without the tunnel" in (
        overlay.check_ceph_conf(named) or ""
    )
    addresses = {host: f"192.168.5.{n}" for n, host in enumerate(("a", "b"))}
    assert overlay.model_copy(update={"addresses": addresses}).check_ceph_conf(named) is None
    assert "public_addr leads around the tunnel" in (
        overlay.check_ceph_conf({"osd": {"public_addr": "1.2.3.4"}}) or ""
    )


def test_any_change_takes_a_rebuild() -> None:
    vxlan, absent = Network(type="vxlan"), Network.absent()
    assert absent.transition_to(vxlan) is Transition.REBUILD
    assert vxlan.transition_to(Network(type="ipip")) is Transition.REBUILD
    assert absent.transition_to(Network.absent()) is Transition.NONE


def test_one_host_is_one_sentence(osd: Callable[..., Osd], site_of: Callable[..., Site]) -> None:
    alone = site_of(osd(0, "node0"), clients=("node0",))
    needs = Network(type="ipip").requirements(alone)
    assert any("two hosts or more" in need.script for need in needs)


def test_no_script_but_the_hosts_own_has_a_key(site: Site) -> None:
    overlay = Network(type="wireguard")
    said = {host: json.dumps({"public": f"{host}="}) for host in site.hosts}
    texts = [*overlay.introduce(site).values(), *overlay.before_daemons(site, said).values()]
    assert all("python3 -I -" in text for text in texts)
    assert "node3=" in overlay.before_daemons(site, said)["node0"]


#: In the order of the site: head and daemons first.
TUNNEL = {"node0": "10.207.0.1", "node2": "10.207.0.2", "node1": "10.207.0.3"}


@pytest.fixture
def lone(osd: Callable[..., Osd], site_of: Callable[..., Site]) -> Site:
    """One OSD on a host of its own."""
    return site_of(osd(0, "node2"))


def _outputs(carried: int, sent: int, **changes: Any) -> dict[str, str]:
    """What a probe prints after so many bytes, with something changed."""
    kind, address = changes.get("kind", "vxlan"), changes.get("address", TUNNEL["node2"])
    connected = changes.get("connected", TUNNEL["node2"])

    def tunnel(host: str) -> str:
        link = {"kind": kind, "mtu": 1450, "rx_bytes": carried, "tx_bytes": 0}
        sockets = {"osd.0": {connected: 3}} if host == "node2" else {}
        return f"@tunnel\n{json.dumps({'links': {'cbtx1': link}, 'sockets': sockets})}\n"

    counters = {"AsyncMessenger::Worker-0/msgr_send_bytes": sent}
    answers = {"answers": {"osd.0": [counters, counters]}, "errors": {}}
    vector = {"addrvec": [{"type": "v2", "addr": f"{address}:6800", "nonce": 1}]}
    osds = {"osds": [{"osd": 0, "public_addrs": vector, "cluster_addrs": vector}]}
    mon = {"addrvec": [{"type": "v2", "addr": f"{TUNNEL['node0']}:3300", "nonce": 0}]}
    mons = {"mons": [{"name": "a", "public_addrs": mon}]}
    return {
        "node0": f"{tunnel('node0')}@osds\n{json.dumps(osds)}\n@mons\n{json.dumps(mons)}",
        "node1": tunnel("node1"),
        "node2": f"{tunnel('node2')}@bytes\n{json.dumps(answers)}\n{tunnel('node2')}",
    }


def test_proved_by_addresses_connections_and_counters(lone: Site) -> None:
    verdict = Network(type="vxlan").judge(lone, _outputs(100, 50), _outputs(5100, 4050))
    assert verdict.proved, verdict.reason
    assert verdict.evidence["osd_bytes"] == {"osd.0": 4000}
    assert verdict.evidence["tunnel_bytes"]["node2"] == 5000


def _wrong() -> Iterator[tuple[dict[str, Any], int, str]]:
    yield {"kind": "ipip"}, 5100, "is ipip and not vxlan"
    yield {"address": "192.168.0.3"}, 5100, "has public_addrs at 192.168.0.3"
    yield {"connected": "192.168.0.3"}, 5100, "has connections from 192.168.0.3"
    yield {}, 3000, "of 4000 bytes of its OSD only 2900 went through the tunnel"
    yield {}, 100, "which proves nothing"


@pytest.mark.parametrize(("changes", "carried", "reason"), list(_wrong()))
def test_not_proved(lone: Site, changes: dict[str, Any], carried: int, reason: str) -> None:
    after = _outputs(carried, 4050, **changes)
    verdict = Network(type="vxlan").judge(lone, _outputs(100, 50, **changes), after)
    assert not verdict.proved and reason in verdict.reason


def test_silence_proves_nothing(lone: Site) -> None:
    assert not Network(type="vxlan").judge(lone, {}, {}).proved
    assert not Network.absent().judge(lone, {}, {}).proved


def test_absence_is_that_no_host_has_a_tunnel(lone: Site) -> None:
    none = dict.fromkeys(lone.hosts, "none")
    assert Network.absent().judge(lone, none, none).proved
    verdict = Network.absent().judge(lone, none, {**none, "node1": "cbtx1"})
    assert not verdict.proved and verdict.reason == "node1 has cbtx1"

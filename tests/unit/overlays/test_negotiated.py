"""Clusters that somebody else deployed: how their peers speak, by what was agreed.

The captured ones were made by hand by their releases' own tools, without any `ms_` option.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Optional

import pytest

from cbt_crypto.cluster_overlays import secure_messenger
from cbt_crypto.cluster_overlays.base import Verdict
from cbt_crypto.cluster_overlays.secure_messenger import (
    Mode,
    SecureMessenger,
    Traffic,
    agreed,
    chosen,
)
from cbt_crypto.hosts.site import Site

pytestmark = pytest.mark.unit

SECURE, CRC = SecureMessenger(), SecureMessenger.absent()
STOCK = {"ms_cluster_mode": "crc secure", "ms_service_mode": "crc secure",
         "ms_mon_client_mode": "secure crc"}  # fmt: skip
ALL_SECURE = dict.fromkeys(STOCK, "secure")
MB = 10**6

Judge = Callable[..., Verdict]


@pytest.fixture
def judge(one_host: Site, data: Path) -> Judge:
    """Judge two captured looks at a cluster of somebody else's."""
    osds = tuple(replace(osd, is_existing=True) for osd in one_host.osds)
    site = replace(one_host, osds=osds, active_clients=("node0",))

    def judged(overlay: SecureMessenger, before: str, after: str, client: str = "") -> Verdict:
        texts = [(data / "messenger" / f"{name}.json").read_text() for name in (before, after)]
        looks = [{"node0": f"{text}\n@client-mode\n{client}\n"} for text in texts]
        return overlay.judge(site, *looks)

    return judged


@pytest.mark.parametrize("release", ["18.2.7", "20.2.4"])
def test_a_stock_cluster_is_plain_with_its_share(judge: Judge, release: str) -> None:
    looks = (f"{release}_stock_before", f"{release}_stock_after")
    verdict = judge(CRC, *looks)
    assert verdict.proved, verdict.reason
    assert "2 of 2 OSDs did not encrypt what they exchanged with clients" in verdict.reason
    assert "bytes were encrypted, towards monitors and managers" in verdict.reason
    verdict = judge(SECURE, *looks)
    assert not verdict.proved
    assert "its traffic is plain: clients crc, OSDs crc" in verdict.reason


def test_connections_are_evidence_where_ceph_tells_them(judge: Judge) -> None:
    verdict = judge(CRC, "20.2.4_stock_before", "20.2.4_stock_after")
    seen = verdict.evidence["osd.0"]["connections"]
    assert seen == {"client": {"crc": 1}, "mgr": {"secure": 4}, "mon": {"secure": 1},
                    "osd": {"crc": 1}}  # fmt: skip
    older = judge(CRC, "18.2.7_stock_before", "18.2.7_stock_after")
    assert older.evidence["osd.0"]["connections"] is None


def test_an_idle_stock_cluster_is_judged_by_its_modes(judge: Judge) -> None:
    looks = ("18.2.7_stock_idle0", "18.2.7_stock_idle1")
    assert judge(CRC, *looks, client="crc secure").proved
    assert not judge(SECURE, *looks, client="crc secure").proved


@pytest.mark.parametrize("kind", ["secure", "crc"])
def test_a_release_that_counts_nothing_is_judged_by_its_modes(judge: Judge, kind: str) -> None:
    looks = (f"16.2.15_{kind}_before", f"16.2.15_{kind}_after")
    right, wrong = (SECURE, CRC) if kind == "secure" else (CRC, SECURE)
    verdict = judge(right, *looks, client=kind)
    assert verdict.proved, verdict.reason
    assert "by their modes (this Ceph counts no encrypted bytes)" in verdict.reason
    assert not judge(wrong, *looks, client=kind).proved


def test_what_a_client_wants_and_nobody_knows_is_not_proved(judge: Judge, data: Path) -> None:
    unknown = agreed(_traffic(10 * MB, None), None, STOCK, [""])
    assert unknown.clients is Mode.UNKNOWN
    assert secure_messenger.fault(unknown, Mode.CRC, _traffic(10 * MB, None)) is not None
    assert secure_messenger.fault(unknown, Mode.SECURE, _traffic(10 * MB, None)) is not None


@pytest.mark.parametrize(
    ("wanted", "allowed", "mode"),
    [
        ("crc secure", "crc secure", Mode.CRC),
        ("secure crc", "crc secure", Mode.SECURE),
        ("crc secure", "secure", Mode.SECURE),
        ("crc", "secure", Mode.UNKNOWN),
        ("quantum crc", "quantum crc", Mode.UNKNOWN),
        ("quantum crc", "crc", Mode.CRC),
        ("", "", Mode.UNKNOWN),
    ],
)
def test_who_connects_chooses(wanted: str, allowed: str, mode: Mode) -> None:
    assert chosen(wanted.split(), allowed.split()) is mode


def _traffic(
    total: int, encrypted: Optional[int], received: float = 0.5, osd_data: int = 0
) -> Traffic:
    """An OSD that clients loaded; of what was encrypted, that part was received."""
    return Traffic(
        total=total, encrypted=encrypted, drift=0, received=total // 2,
        encrypted_received=int((encrypted or 0) * received), client_data=total // 2,
        osd_data=osd_data,
    )  # fmt: skip


def _fault(traffic: Traffic, modes: dict[str, str], wanted: Mode) -> Optional[str]:
    return secure_messenger.fault(agreed(traffic, None, modes, ["crc secure"]), wanted, traffic)


def test_many_reports_to_managers_do_not_make_a_cluster_encrypted() -> None:
    """Sixty OSDs, one client with one request at a time: most that they send are reports."""
    traffic = _traffic(10 * MB, 4 * MB, received=0)
    assert _fault(traffic, STOCK, Mode.CRC) is None
    assert "is plain" in (_fault(traffic, STOCK, Mode.SECURE) or "")


def test_everything_encrypted_is_encrypted_and_not_plain() -> None:
    traffic = _traffic(10 * MB, 10 * MB, osd_data=2 * MB)
    assert _fault(traffic, ALL_SECURE, Mode.SECURE) is None
    assert "is encrypted: clients secure, OSDs secure" in _fault(traffic, ALL_SECURE, Mode.CRC)  # type: ignore[operator]


def test_a_mixture_is_called_one_with_its_share() -> None:
    modes = {**STOCK, "ms_cluster_mode": "secure"}
    traffic = _traffic(10 * MB, 6 * MB, osd_data=5 * MB)
    for wanted in (Mode.CRC, Mode.SECURE):
        fault = _fault(traffic, modes, wanted)
        assert fault is not None
        assert "is mixed: clients crc, OSDs secure, by its bytes and modes" in fault
        assert fault.endswith("60.00 % of 10000000 bytes were encrypted")


def test_an_osd_that_is_nobodys_primary_says_nothing_of_clients_by_its_bytes() -> None:
    """Replicas are all it moves, so clients' mode is what the modes foretell."""
    replicas = replace(_traffic(10 * MB, 10 * MB, osd_data=5 * MB), client_data=0)
    modes = {**STOCK, "ms_cluster_mode": "secure"}
    for wanted in (Mode.CRC, Mode.SECURE):
        fault = _fault(replicas, modes, wanted) or ""
        assert "is mixed: clients crc, OSDs secure, by its bytes and modes" in fault
    assert _fault(replicas, ALL_SECURE, Mode.SECURE) is None
    unknown = agreed(replicas, None, modes, [""])
    assert unknown.clients is Mode.UNKNOWN
    assert secure_messenger.fault(unknown, Mode.SECURE, replicas) is None
    assert secure_messenger.fault(unknown, Mode.CRC, replicas) is not None


def test_modes_that_were_set_after_peers_had_connected_do_not_count() -> None:
    """`ceph config set` while all are connected: what was agreed before goes on."""
    traffic = _traffic(10 * MB, 0, osd_data=5 * MB)
    assert _fault(traffic, ALL_SECURE, Mode.CRC) is None
    assert _fault(traffic, ALL_SECURE, Mode.SECURE) is not None


def test_reads_show_nothing_of_osds_among_themselves_so_modes_do() -> None:
    traffic = _traffic(10 * MB, 0)
    fault = _fault(traffic, {**STOCK, "ms_cluster_mode": "secure"}, Mode.CRC)
    assert fault is not None
    assert "is mixed: clients crc, OSDs secure" in fault


def test_modes_say_nothing_where_messenger_v2_is_not_spoken() -> None:
    """Ceph takes `secure` without a word where it has no messenger that could be."""
    modes = {**ALL_SECURE, "ms_bind_msgr2": "false"}
    uncounted = _traffic(10 * MB, None)
    old = agreed(uncounted, None, modes, ["secure"])
    assert secure_messenger.fault(old, Mode.CRC, uncounted) is None
    assert (secure_messenger.fault(old, Mode.SECURE, uncounted) or "").startswith(
        "its traffic is plain: clients crc, OSDs crc, by its messenger v1, which encrypts nothing"
    )
    assert agreed(uncounted, None, {**modes, "ms_bind_msgr2": "true"}, ["secure"]).osds is (
        Mode.SECURE
    )


def test_heartbeats_of_a_secure_group_are_no_load_that_is_encrypted() -> None:
    """As seen beside one, under a few reads a second: 5 % of its bytes, and it was not proved."""
    modes = {"ms_service_mode": "crc", "ms_cluster_mode": "crc secure", "ms_bind_msgr2": "true"}
    seen = Traffic(
        2_996_224, 165_376, 0, received=600_000, encrypted_received=82_000, client_data=2_600_000
    )
    for traffic, is_watched, mode in (
        (seen, True, Mode.CRC),
        (seen, False, Mode.MIXED),
        # As much as a client's data, or all replicas, would be.
        (replace(seen, encrypted=2_000_000), True, Mode.MIXED),
        (replace(seen, total=9_000_000, encrypted=1_200_000, osd_data=1_100_000), True, Mode.MIXED),
    ):
        assert agreed(traffic, None, modes, ["crc"], is_watched).clients is mode


def test_an_osd_that_idled_is_no_contradiction() -> None:
    idle = Traffic(total=60_000, encrypted=10_000, drift=0, received=30_000, encrypted_received=900)
    assert _fault(idle, STOCK, Mode.CRC) is None
    assert _fault(idle, STOCK, Mode.SECURE) is not None, "its modes say what it agrees on"


def test_little_from_clients_to_each_of_many_osds_is_a_contradiction() -> None:
    """Two hundred OSDs with 1 MB each were idle, and the cell of plain clients proved secure."""
    little = Traffic(total=1_500_000, encrypted=300_000, drift=0, received=1_000_000,
                     encrypted_received=150_000, client_data=1_000_000)  # fmt: skip
    modes = {**STOCK, "ms_cluster_mode": "secure"}
    plain = agreed(little, None, modes, ["crc"])
    assert "clients crc" in str(secure_messenger.fault(plain, Mode.SECURE, little))
    nothing = replace(little, client_data=0)
    assert secure_messenger.fault(plain, Mode.SECURE, nothing) is None


def test_a_captured_look_is_what_the_probe_asks_for(one_host: Site) -> None:
    osds = tuple(replace(osd, is_existing=True) for osd in one_host.osds)
    script = SECURE.probe(replace(one_host, osds=osds, active_clients=("c9",)))
    assert set(script) == {"node0", "c9"}
    assert json.dumps("messenger dump") in script["node0"]
    assert "@client-mode" in script["c9"]
    assert "messenger dump" not in SECURE.probe(one_host)["node0"]

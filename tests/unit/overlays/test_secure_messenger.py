"""Captured from clusters of two OSDs: secure, crc, and secure with one client let in with crc."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Callable

import pytest

from cbt_crypto.cluster_overlays import OVERLAYS
from cbt_crypto.cluster_overlays.base import Transition, Verdict
from cbt_crypto.cluster_overlays.secure_messenger import SecureMessenger
from cbt_crypto.hosts.site import Site

pytestmark = pytest.mark.unit

SECURE = SecureMessenger()
CRC = SecureMessenger.absent()
RELEASES = ("16.2.15", "18.2.7")
MODES = {
    "ms_client_mode",
    "ms_cluster_mode",
    "ms_service_mode",
    "ms_mon_client_mode",
    "ms_mon_cluster_mode",
    "ms_mon_service_mode",
}

Judge = Callable[[SecureMessenger, str, str], Verdict]


@pytest.fixture
def judge(one_host: Site, data: Path) -> Judge:
    """Judge two captured outputs, by their names."""

    def judged(overlay: SecureMessenger, before: str, after: str) -> Verdict:
        outputs = [
            {"node0": (data / "messenger" / f"{name}.json").read_text()} for name in (before, after)
        ]
        return overlay.judge(one_host, *outputs)

    return judged


def test_it_is_in_the_table() -> None:
    assert OVERLAYS["secure_messenger"] is SecureMessenger


def test_conf_of_the_secure_messenger() -> None:
    conf = SECURE.ceph_conf()["global"]
    assert {option for option, value in conf.items() if value == "secure"} == MODES
    assert {option: value for option, value in conf.items() if option not in MODES} == {
        "ms_bind_msgr1": "false",
        "auth_cluster_required": "cephx",
        "auth_service_required": "cephx",
        "auth_client_required": "cephx",
    }


def test_conf_of_the_baseline_states_crc() -> None:
    assert CRC.ceph_conf() == {"global": dict.fromkeys(MODES, "crc")}


def test_presence_and_transitions() -> None:
    assert SECURE.is_present
    assert not CRC.is_present
    assert SECURE.transition_to(CRC) == CRC.transition_to(SECURE) == Transition.RESTART
    assert SECURE.transition_to(SecureMessenger()) == Transition.NONE
    assert CRC.transition_to(SecureMessenger.absent()) == Transition.NONE


@pytest.mark.parametrize("section", ["global", "osd.3"])
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("auth cluster required", "none"),
        ("auth_service_required", "none"),
        ("auth-client-required", " None "),
        ("auth  client_required", "cephx, none"),
        ("Auth Supported", "none"),
        ("ms bind msgr1", "true"),
        ("ms_cluster_mode", "crc secure"),
    ],
)
def test_a_conf_that_contradicts_is_one_sentence(section: str, option: str, value: str) -> None:
    conf = {"mon": {"debug_mon": "0/0"}, section: {option: value}}
    sentence = SECURE.check_ceph_conf(conf)
    assert sentence is not None
    assert sentence.startswith(f"ceph.conf sets {option} = {value} in [{section}], but ")


def test_a_conf_that_agrees() -> None:
    conf = {
        "global": {"auth_client_required": "cephx", "ms_cluster_mode": "secure"},
        "osd": {"osd_memory_target": "4294967296", "ms_bind_msgr1": "false"},
    }
    assert SECURE.check_ceph_conf(conf) is None


def test_without_encryption_the_conf_may_do_without_cephx() -> None:
    assert CRC.check_ceph_conf({"global": {"auth client required": "none"}}) is None
    assert CRC.check_ceph_conf({"osd": {"ms cluster mode": "secure"}}) is not None


def test_one_script_a_host_asks_for_all_its_osds(site: Site) -> None:
    scripts = SECURE.probe(site)
    assert set(scripts) == {"node2", "node3"}
    for number in (2, 3):
        assert f'"socket": "/tmp/cbt/run/osd.{number}.asok"' in scripts["node3"]
        assert f'"/tmp/cbt/run/osd.{number}.asok"' not in scripts["node2"]
    assert scripts["node2"].count("python3") == 1


@pytest.mark.parametrize("release", RELEASES)
def test_secure_is_proved(judge: Judge, release: str) -> None:
    verdict = judge(SECURE, f"{release}_secure_before", f"{release}_secure_after")
    assert verdict.proved
    assert verdict.reason.startswith("2 of 2 OSDs encrypted every byte")
    json.dumps(verdict.evidence)
    for found in verdict.evidence.values():
        assert found["bytes"] > 10_000_000
        assert found["encrypted_bytes"] == (found["bytes"] if release == "18.2.7" else None)


@pytest.mark.parametrize("release", RELEASES)
def test_crc_is_proved(judge: Judge, release: str) -> None:
    verdict = judge(CRC, f"{release}_crc_before", f"{release}_crc_after")
    assert verdict.proved
    assert verdict.reason.startswith("2 of 2 OSDs encrypted no byte")


@pytest.mark.parametrize("release", RELEASES)
def test_each_is_not_the_other(judge: Judge, release: str) -> None:
    assert not judge(CRC, f"{release}_secure_before", f"{release}_secure_after").proved
    assert not judge(SECURE, f"{release}_crc_before", f"{release}_crc_after").proved


def test_where_bytes_are_not_counted_the_reason_says_what_shows_it(judge: Judge) -> None:
    counted = judge(SECURE, "18.2.7_secure_before", "18.2.7_secure_after").reason
    inferred = judge(SECURE, "16.2.15_secure_before", "16.2.15_secure_after").reason
    assert counted == "2 of 2 OSDs encrypted every byte"
    assert "counts no encrypted bytes" in inferred


def test_one_client_in_the_clear_is_seen_though_every_mode_says_secure(judge: Judge) -> None:
    verdict = judge(SECURE, "18.2.7_mixed_before", "18.2.7_mixed_after")
    assert not verdict.proved
    assert verdict.reason == (
        "0 of 2 OSDs encrypted every byte; "
        "osd.0 on node0: 33445952 of 38910178 bytes were encrypted (and 1 more)"
    )


@pytest.mark.parametrize("release", RELEASES)
def test_a_cell_without_traffic_proves_nothing(judge: Judge, release: str) -> None:
    verdict = judge(SECURE, f"{release}_secure_after", f"{release}_secure_after")
    assert not verdict.proved
    assert verdict.reason == ("no OSD sent or received a byte in this cell, which proves nothing")
    assert judge(CRC, f"{release}_crc_after", f"{release}_crc_after").proved


def test_a_restart_in_the_cell_is_seen(judge: Judge) -> None:
    for overlay, mode in ((SECURE, "secure"), (CRC, "crc")):
        verdict = judge(overlay, f"18.2.7_{mode}_after", f"18.2.7_{mode}_before")
        assert not verdict.proved
        assert "it was restarted" in verdict.reason


def _document(counters: dict[str, int], previous: dict[str, int], mode: str) -> dict[str, str]:
    worker = "AsyncMessenger::Worker-0/"
    pair = [{worker + name: n for name, n in look.items()} for look in (previous, counters)]
    answers = {"osd.0 bytes": pair, "osd.0 modes": dict.fromkeys(MODES, mode)}
    return {"node0": json.dumps({"answers": answers, "errors": {}})}


def _counters(total: int, encrypted: int) -> dict[str, int]:
    return {"msgr_recv_bytes": total, "msgr_recv_encrypted_bytes": encrypted}


@pytest.mark.parametrize(("encrypted", "proved"), [(960, True), (959, False), (1041, False)])
def test_bytes_that_moved_while_reading_may_be_missed_but_no_more(
    site_of: Callable[..., Site], one_host: Site, encrypted: int, proved: bool
) -> None:
    small = site_of(one_host.osds[0])
    before = _document(_counters(0, 0), _counters(0, 0), "secure")
    after = _document(_counters(1000, encrypted), _counters(960, 960), "secure")
    assert SECURE.judge(small, before, after).proved is proved


def test_an_osd_that_does_not_answer_fails_the_proof(one_host: Site) -> None:
    silent = {"node0": json.dumps({"answers": {}, "errors": {"osd.0 bytes": "a.asok: gone"}})}
    verdict = SECURE.judge(one_host, silent, silent)
    assert not verdict.proved
    assert "osd.0 on node0: a.asok: gone" in verdict.reason

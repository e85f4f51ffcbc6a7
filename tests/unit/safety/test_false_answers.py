"""Hosts that speak for others: what one says of another's OSDs counts for nothing."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from typing import Any

import pytest

from cbt_crypto.cluster_overlays.base import Overlay
from cbt_crypto.cluster_overlays.ceph_build import CephBuild
from cbt_crypto.cluster_overlays.ceph_options import CephOptions
from cbt_crypto.cluster_overlays.db_device import DbDevice
from cbt_crypto.cluster_overlays.luks.overlay import Luks
from cbt_crypto.cluster_overlays.network import Network
from cbt_crypto.cluster_overlays.osd_service import CACHE, CACHE_BYTES, OPEN_FILES, OsdService
from cbt_crypto.cluster_overlays.secure_messenger import SecureMessenger
from cbt_crypto.hosts import admin_socket, remote
from cbt_crypto.hosts.site import Drive, HostOutputs, Osd, Site
from cbt_crypto.run.cell import proof
from cbt_crypto.run.cell.watch import WatchRecord
from cbt_crypto.run.targets.drive import DriveProof

pytestmark = pytest.mark.unit

OSD = Osd(0, "honest", "/dev/sdb", "/t/osd.0", "/t/osd.0.asok", "/t/osd.0.pid")
SITE = Site("/t", "/t/ceph.conf", "head", ("hostile",), (OSD,), ("hostile",))
DRIVE = Drive("NVMe", "honest", ("/dev/sdb",), "/t/drive", path="/dev/sdb")
ON_DRIVE = Site("/t", "/t/ceph.conf", "head", ("hostile",), (), drives=(DRIVE,))

OPEN = {"running": True, "named": {"data": "8:16"}, "opened": {"8:16": [{"device": "8:16"}]}}
USED = {**OPEN, "path": "8:16", "note": {"program": "fio", "pid": 1, "devices": ["8:16"]}}
SERVICE = {
    "environment": {CACHE: str(CACHE_BYTES)}, "user": "root",
    "open_files": str(OPEN_FILES), "open_files_allowed": str(OPEN_FILES),
}  # fmt: skip
BUILD = {"exe": "/usr/bin/ceph-osd", "mapped": ["/usr/lib/librados.so.2"], "version": "20.2.4"}
MODES = dict.fromkeys(SecureMessenger.absent().ceph_conf()["global"], "crc")
BYTES = [{"AsyncMessenger::Worker-0/msgr_recv_bytes": 0}] * 2
SOCKET = {"answers": {"osd.0 bytes": BYTES, "osd.0 modes": MODES}, "errors": {}}
LINKS = "@links\nosd.0 block.db \nosd.0 block.wal \n"
DB = f"{LINKS}@storage\n{json.dumps({'osd.0': OPEN})}\n"
METADATA = f"@metadata\n{json.dumps([{'id': 0, 'bluefs_dedicated_db': '1'}])}\n"

CASES: list[tuple[Overlay, Site, HostOutputs]] = [
    (Luks.absent(), SITE, {"honest": json.dumps({"osd.0": OPEN})}),
    (OsdService(), SITE, {"honest": json.dumps({"osd.0": SERVICE})}),
    (SecureMessenger.absent(), SITE, {"honest": json.dumps(SOCKET)}),
    (DbDevice.absent(), SITE, {"honest": LINKS}),
    (DbDevice(directory="/fast", size="2G"), SITE, {"honest": DB, "head": METADATA}),
    (CephBuild(), SITE,
     {"hostile": json.dumps({"mon.a": BUILD}), "honest": json.dumps({"osd.0": BUILD})}),
    (DriveProof(), ON_DRIVE, {"honest": json.dumps({"drive NVMe": USED})}),
]  # fmt: skip


@pytest.mark.parametrize(("overlay", "site", "said"), CASES, ids=lambda case: str(case)[:20])
@pytest.mark.parametrize("moved", ["honest", "head"])
def test_one_host_does_not_prove_what_is_on_another(
    overlay: Overlay, site: Site, said: dict[str, str], moved: str
) -> None:
    """Answers were merged by the OSD's name: whoever spoke last was believed."""
    assert overlay.judge(site, said, said).proved
    lies = {**said, "hostile": said.get("hostile", "") + "\n" + said.get(moved, ""), moved: ""}
    assert overlay.judge(site, lies, lies).proved == (moved not in said)


def test_a_host_is_not_this_machine_because_dns_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an old PTR record of the head's address, its own disks were those of osd1."""
    monkeypatch.setattr(socket, "gethostname", lambda: "head")
    for full, own in (("osd1.example.org", False), ("head.example.org", True), ("head", True)):
        monkeypatch.setattr(socket, "getfqdn", lambda full=full: full)
        remote.local_names.cache_clear()
        assert remote.is_local(full) is own
        assert remote.is_local("head") and remote.is_local("localhost")
    remote.local_names.cache_clear()


def test_a_lie_that_comes_last_does_not_replace_the_truth() -> None:
    """A host without LUKS was called encrypted, and the other way round, by another's word."""
    crypt = {"device": "254:0", "mapping": "x", "uuid": "CRYPT-LUKS2-x", "table": None}
    encrypted = {**OPEN, "opened": {"254:0": [crypt]}}
    said = {"honest": json.dumps({"osd.0": encrypted}), "hostile": json.dumps({"osd.0": OPEN})}
    verdict = Luks.absent().judge(SITE, said, said)
    assert not verdict.proved and "osd.0 on honest: it is on x" in verdict.reason


def test_admin_sockets_of_others() -> None:
    """A hostile host had given the bytes of another's OSD, and its faults."""
    document = {"answers": {"osd.0 bytes": "lie"}, "errors": {"osd.0 modes": "lie"}}
    answers = admin_socket.parse(SITE, {"hostile": json.dumps(document)})
    assert (answers.values, answers.errors) == ({}, {})


def test_connections_and_addresses_of_others_osds() -> None:
    """The tunnel was proved by what a host said of another's connections, or in the head's name."""
    vector = {"addrvec": [{"addr": "10.207.0.3:6800"}]}
    osds = json.dumps({"osds": [{"osd": 0, "public_addrs": vector, "cluster_addrs": vector}]})
    mons = json.dumps({"mons": [{"name": "a", "public_addrs": vector}]})

    def tunnel(carried: int, **sockets: Any) -> str:
        links = {"cbtx1": {"kind": "vxlan", "rx_bytes": carried, "tx_bytes": 0}}
        return f"@tunnel\n{json.dumps({'links': links, 'sockets': sockets})}\n"

    def probe(carried: int, sockets_on: str, dumps_on: str) -> dict[str, str]:
        counted = [{"AsyncMessenger::Worker-0/msgr_send_bytes": carried}] * 2
        answers = json.dumps({"answers": {"osd.0": counted}, "errors": {}})
        dumps = f"@osds\n{osds}\n@mons\n{mons}\n"
        return {
            host: tunnel(carried, **({"osd.0": {"10.207.0.3": 3}} if host == sockets_on else {}))
            + (f"@bytes\n{answers}\n" if host == "honest" else "")
            + (dumps if host == dumps_on else "")
            for host in SITE.hosts
        }

    def judged(sockets_on: str, dumps_on: str) -> Any:
        looks = (probe(carried, sockets_on, dumps_on) for carried in (10, 5010))
        return Network(type="vxlan").judge(SITE, *looks)

    assert judged("honest", "head").proved, judged("honest", "head").reason
    assert "osd.0 on honest has no connection" in judged("hostile", "head").reason
    assert not judged("honest", "hostile").proved


def test_a_monitor_that_two_hosts_speak_for_is_judged_by_each() -> None:
    """One of another version was hidden by a second host's word for the same name."""
    old = {**BUILD, "version": "16.2.15"}
    said = {"honest": json.dumps({"osd.0": BUILD, "mon.a": old}),
            "hostile": json.dumps({"mon.a": BUILD})}  # fmt: skip
    verdict = CephBuild().judge(SITE, said, said)
    assert not verdict.proved and "several versions: 16.2.15, 20.2.4" in verdict.reason


def test_what_another_s_osd_has_served() -> None:
    """One host's word for another's OSD stood in the report, as that OSD's own."""
    looks = [{"osd.0": {"ops": n, "pgs": 64, "pid": 1}} for n in (0, 10**6)]
    records = {host: WatchRecord(counted={proof.NAME: looks}) for host in ("hostile", "head")}
    assert proof.served_operations(SITE, records) == {}
    records["honest"] = WatchRecord(counted={proof.NAME: [{"osd.0": {"ops": 7}}] * 2})
    records["hostile"] = records.pop("hostile")
    assert proof.served_operations(SITE, records) == {"osd.0": {"ops": 0}}


def test_options_that_another_host_says_an_osd_has() -> None:
    """What was set by hand at an OSD was hidden by another host's word, and the cell proved."""
    named: dict[str, tuple[Overlay, ...]] = {
        "plain": (), "few": (CephOptions(osd={"osd_max_backfills": 1}),),
    }  # fmt: skip
    overlay = CephOptions.beside(named)["plain"][0]

    def judged(honest: Any, hostile: Any) -> Any:
        said = {"honest": json.dumps(honest), "hostile": json.dumps(hostile)}
        return overlay.judge(SITE, said, said)

    right, wrong = (
        {"osd_max_backfills": {"value": value, "set": levels}}
        for value, levels in (("1", []), ("9", ["override"]))
    )
    assert judged({"osd.0": right}, {"mon.a": right}).proved
    lies = {"osd.0": right, "client on honest": right}
    verdict = judged({"osd.0": wrong}, lies)
    assert not verdict.proved
    assert verdict.reason == "osd.0: osd_max_backfills was set there (override)"
    assert list(judged({"osd.0": right}, lies).evidence) == ["osd.0"]
    assert "osd.0 did not say" in judged({}, {"osd.0": right}).reason
    assert not judged({"osd.0": right, "mon.a": wrong}, {"mon.a": right}).proved


@pytest.mark.parametrize("is_existing", [False, True])
def test_encrypted_db_devices_of_osds_that_have_none(is_existing: bool) -> None:
    """No part was looked at, and all OSDs were proved to be on dm-crypt: LUKS cost nothing."""
    osd = replace(OSD, is_existing=is_existing, device="" if is_existing else OSD.device)
    site = replace(SITE, osds=(osd,))
    luks, said = Luks(devices=("db",)), {"honest": json.dumps({"osd.0": OPEN})}
    verdict = luks.judge(site, said, said)
    assert not verdict.proved and "has no device of db that could be encrypted" in verdict.reason
    said_before = [one.script for one in luks.requirements(site) if "osd.0" in one.name]
    said = "osd.0 has no DB device for luks to encrypt; add db_device, or name data"
    assert [said in one for one in said_before] == [True] * (not is_existing)
    assert not [one for one in Luks().requirements(site) if "osd.0" in one.name]

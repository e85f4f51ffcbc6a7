"""One device by two paths, two names of its host, or for two purposes: refused before anything."""

from __future__ import annotations

import json
from typing import Any, Callable

import pytest
from fake_hosts import FakeHosts

from cbt_crypto.errors import UsageError
from cbt_crypto.plan.order import cells_of
from cbt_crypto.run import devices

pytestmark = pytest.mark.unit

Known = dict[str, dict[str, dict[str, str]]]
A = {"size": "1000", "seen": "boot1 7 8:0"}
B = {"size": "1000", "seen": "boot1 8 8:16"}
PART = {"size": "500", "start": "2048", "seen": "boot1 7 8:1"}
NEXT = {"size": "500", "start": "4096", "seen": "boot1 7 8:2"}


def look(campaign_of: Callable[..., Any], known: Known, **cluster: Any) -> Any:
    """What becomes of a campaign whose hosts say this of the devices."""
    hosts = list(known)
    section = {
        "clients": [hosts[0]], "osds": hosts, "osds_per_node": 2, "tmp_dir": "/t", **cluster,
    }  # fmt: skip
    campaign = campaign_of(cluster=section)
    remote = FakeHosts(lambda host, command: json.dumps(known[host])).remote("/t")
    return devices.read_identities(remote, campaign, cells_of(campaign))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (A, A),
        (A, PART),
        ({**A, "wwn": "w"}, {**B, "wwn": "w"}),
        ({"size": "1", "seen": "boot 8:0"}, {"size": "1", "seen": "boot 8:0"}),
    ],
)  # fmt: skip
def test_two_paths(
    campaign_of: Callable[..., Any], one: dict[str, str], other: dict[str, str]
) -> None:
    with pytest.raises(UsageError, match=r"osd_devices name one device twice, n1: /dev/x and n1: "):
        known = {"n1": {"/dev/x": one, "/dev/y": other}}
        look(campaign_of, known, osd_devices=["/dev/x", "/dev/y"])


def test_two_names_of_a_host(campaign_of: Callable[..., Any]) -> None:
    known = {host: {"/dev/x": A, "/dev/y": B} for host in ("n1", "n1.example.org")}
    twice = "one device twice, n1: /dev/x and n1.example.org: /dev/x"
    with pytest.raises(UsageError, match=twice):
        look(campaign_of, known, osd_devices=["/dev/x", "/dev/y"])


def test_data_and_database(campaign_of: Callable[..., Any]) -> None:
    overlay = {"db_device": {"devices": "/dev/y", "size": "1G"}}
    configurations = {"Plain": {}, "Fast database": overlay}
    known = {"n1": {"/dev/x": A, "/dev/y": B}}
    twice = "osd_devices and db_device.devices name one device twice"
    with pytest.raises(UsageError, match=twice):
        look(
            campaign_of, known, osd_devices=["/dev/x", "/dev/y"], configurations=configurations,
            baseline="Plain",
        )  # fmt: skip


def test_a_file_that_names_it_twice(campaign_of: Callable[..., Any]) -> None:
    """No host need be asked for that."""
    cluster = {"osd_file_size": ..., "osds_per_node": 2, "osd_devices": ["/dev/x", "/dev//./x"]}
    campaign = campaign_of(cluster=cluster)
    with pytest.raises(UsageError, match=r"twice, o0: /dev/x and o0: /dev//\./x; keep"):
        devices.check_distinct(campaign, cells_of(campaign))
    overlay = {"db_device": {"devices": "/dev/y", "size": "1G"}}
    cluster |= {"osd_devices": ["/dev/x", "/dev/y"], "baseline": "A"}
    cluster |= {"configurations": {"A": {}, "B": overlay}}
    campaign = campaign_of(cluster=cluster)
    with pytest.raises(UsageError, match=r"osd_devices and db_device\.devices name one device"):
        devices.check_distinct(campaign, cells_of(campaign))


@pytest.mark.parametrize(("one", "other"), [(A, B), (PART, NEXT)])
def test_two_devices_are_two(
    campaign_of: Callable[..., Any], one: dict[str, str], other: dict[str, str]
) -> None:
    known = {"n1": {"/dev/x": one, "/dev/y": other}}
    assert set(look(campaign_of, known, osd_devices=["/dev/x", "/dev/y"])["n1"]) == set(known["n1"])


def test_cloned_machines_have_drives_of_their_own(campaign_of: Callable[..., Any]) -> None:
    """Virtual disks say the same of themselves on each of them."""
    known = {
        host: {
            path: {"size": "1", "wwn": f"qemu-{path}", "seen": f"{host} {path} 8:0"}
            for path in ("/dev/x", "/dev/y")
        }
        for host in ("n1", "n2")
    }
    found = look(campaign_of, known, osd_devices=["/dev/x", "/dev/y"])
    assert [len(found[host]) for host in known] == [2, 2]

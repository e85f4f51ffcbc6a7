"""What a report that is given away says of hosts, people and networks: nothing."""

from __future__ import annotations

import json
import string
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbt_crypto.report import ReportOptions, build
from cbt_crypto.report.anonymize import Hider, hosts_of
from cbt_crypto.report.document import document, reopened
from cbt_crypto.report.page import page

pytestmark = pytest.mark.unit

LABELS = st.text(string.ascii_lowercase, min_size=4, max_size=10).map(lambda text: f"q{text}x7")
DOMAINS = st.lists(LABELS, min_size=1, max_size=3).map(".".join)


@given(
    hosts=st.lists(LABELS, min_size=1, max_size=5, unique=True),
    names=st.tuples(DOMAINS, LABELS, LABELS),
    forms=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    numbers=st.tuples(
        st.binary(min_size=6, max_size=6), st.ip_addresses(v=6), st.ip_addresses(v=4)
    ),
)
def test_no_name_is_left_however_it_is_spelled(
    hosts: list[str], names: tuple[str, str, str], forms: tuple[bool, bool, bool], numbers: Any
) -> None:
    """`qualified`: the file has the domains; `written_so`: the text has them."""
    (domain, user, other), (upper, qualified, written_so) = names, forms
    hide = Hider([f"{host}.{domain}" if qualified else host for host in hosts])
    found = (numbers[0].hex(":"), str(numbers[1]), str(numbers[2]))
    places = [f"{host}.{domain}" if written_so else host for host in hosts]
    text = f"{user}@{places[0]} (process 1), /home/{user}/x, {', '.join(places)}; {' '.join(found)}"
    text += f" {other}.{domain}" if qualified else ""
    said = hide(text.upper().replace("/HOME/", "/home/") if upper else text).lower()
    for name in (*hosts, user, *found, *([other, domain] if qualified else ())):
        assert name not in said, said
    for number in range(1, len(hosts) + 1):
        assert f"host{number}" in said
    assert "(process 1)" in said and "user1@host1" in said


def test_a_domain_that_is_called_like_a_host() -> None:
    """`registry` stayed: its domain was taken for the host of that name."""
    hide = Hider(["osd.lab", "lab.lab"])
    said = hide("root@osd.lab, lab.lab: registry.lab; lab, OSD, mon.osd")
    assert said == "root@host1, host2: name1; host2, host1, mon.host1"


@pytest.mark.parametrize(
    "text, said",
    [
        ("node1_public node1-eth0 mon.node1_x", "host1_public host1-eth0 mon.host1_x"),
        ("at 10.0.0.1. At node1.lab.example.", "at address1. At host1."),
        ("version 1.2.3.4.5", "version 1.2.3.4.5"),
        (
            "connect to fd00::1: refused, ab:cd::1: no route",
            "connect to address1: refused, address2: no route",
        ),
        ("ip.10.0.0.1 and x.10.1.2.3:6", "ip.address1 and x.address2:6"),
        ("/Users/alice/x", "/Users/user1/x"),
        ("does client.alice's key let it in?", "does client.user1's key let it in?"),
        ("/etc/ceph/ceph.client.alice.keyring", "/etc/ceph/ceph.client.user1.keyring"),
        ("client.admin and the session client.4123", "client.admin and the session client.4123"),
        (f"{':'.join(['80'] * 20)} up", "mac1 up"),
        ("node10 xnode1 node1x", "node10 xnode1 node1x"),
    ],
)
def test_names_where_programs_put_them(text: str, said: str) -> None:
    assert Hider(["node1"])(text) == said


def test_hosts_that_are_called_like_their_new_names() -> None:
    assert Hider(["host2", "host1"])("host1 host2 host1.x") == "host2 host1 host2"


@pytest.mark.parametrize("text", ["a.", "a-", "aa:", "x@", "node1.lab ", "/home/", "a"])
def test_a_long_text_of_many_names(text: str) -> None:
    """Each took the square of its length."""
    hide, began = Hider(f"node{number}.lab" for number in range(20_000)), time.process_time()
    hide(text * 100_000)
    assert time.process_time() - began < 30


@pytest.mark.parametrize("words", [450, 120])
def test_a_host_of_many_words(words: int) -> None:
    """It took the square of the words times the length of the text."""
    host, told = "a-" * words + "b", "a-" * 100_000
    hide, began = Hider([host]), time.process_time()
    said = [hide(told), hide(f"ssh {host.upper()}: no answer"), hide(f"{'a-' * 126} " * 700)]
    assert time.process_time() - began < 3
    assert host not in " ".join(said).lower()
    assert said[1] in ("ssh host1: no answer", "ssh name2: no answer")


def test_very_many_addresses() -> None:
    """Each counted all that came before it: a page with a million of them was never written."""
    hide, began = Hider([]), time.process_time()
    for net in range(100):
        said = hide(" ".join(f"10.{net}.{n >> 8}.{n & 255}" for n in range(500)))
    assert said.startswith("address49501 ") and said.endswith(" address50000")
    assert time.process_time() - began < 10


@given(host=LABELS)
def test_one_host_is_one_word(host: str) -> None:
    hide = Hider([f"{host}.lab.example"])
    assert hide(f"{host} {host.upper()} {host}.lab.example {host}.LAB.example") == " ".join(
        ["host1"] * 4
    )


def test_one_network_card_is_one_word() -> None:
    hide = Hider([])
    assert hide("aa:bb:cc:00:11:22 AA:BB:CC:00:11:22, aa-bb-cc-00-11-23") == "mac1 mac1, mac2"
    assert hide("enx001122334455: wlxAABBCC001123.10") == "mac3: mac4.10", "cards called by theirs"
    assert hide("12:30:45 root@x 4:4:4 2026-11-22") == "12:30:45 root@x 4:4:4 2026-11-22"


def test_a_whole_report(small: Path) -> None:
    """Names in reasons, in the environment and in titles."""
    plan, environment = (small / "results" / f"{name}.json" for name in ("plan", "environment"))
    known = json.loads(environment.read_text())
    known["ceph_conf"] = {"A": "[mon.a]\nhost = CLIENT0.Lab.Example\nmac = 52:54:00:12:34:56\n"}
    for about in known["hosts"].values():
        about.update(before=[{"command_line": "ro custom=hunter2"}], smt="on")
        about.update(command_line="ro custom=hunter2", networks={"enx001122334455": {"mtu": 9000}})
    environment.write_text(json.dumps(known))
    changed = json.loads(plan.read_text())
    plan.write_text(json.dumps({**changed, "title": "what alice@OSD0 measured for Client0"}))
    cell = next(small.glob("results/0*/id-*")) / "cell.json"
    value = {**json.loads(cell.read_text()), "state": "failed", "reason": "bob@osd0: no answer"}
    cell.write_text(json.dumps(value))
    text = json.dumps(document(build(small, ReportOptions(anonymize=True)))).lower()
    names = ("client0", "osd0", "alice", "bob", "52:54:00", "lab.ex", "hunter2", "0011223344")
    assert not [name for name in names if name in text]


def test_a_host_that_only_ceph_conf_names_is_hidden() -> None:
    """As a monitor's, on which nothing was measured."""
    conf = "[global]\nfsid = x\n[mon.a]\n\thost = secretmon\n[osd.0]\nhost=other # here\n"
    hidden = hosts_of(
        SimpleNamespace(environment={"ceph_conf": {"Plain": conf}}, cells=[])  # type: ignore[arg-type]
    )
    assert hidden == ["secretmon", "other"]


def test_every_line_of_ceph_conf_that_names_a_host() -> None:
    """`host =` was looked for alone; a monitor called `a` hides no word of a sentence."""
    conf = (
        "[global]\nmon_host = qmon1, qmon2.lab:6789 [v2:10.0.0.1:3300/0,v1:[2001:db8::1]:6789/0]\n"
        "mon host = v2:qmon3:3300/0 2001:db8::2 10.0.0.3 # in the cellar\n"
        "mon_initial_members = a,qmon4\nmon-addr = qmon5:6789\n[mon.qmon6]\n[mon.b]\n"
        "[client.rgw.qgate]\nRGW DNS Name = s3.payroll.example ; here\nlog_to_file = true\n"
    )
    report: Any = SimpleNamespace(environment={"ceph_conf": {"Plain": conf}}, cells=[])
    hidden = ["qmon1", "qmon2.lab", "qmon3", "qmon4", "qmon5", "qmon6", "qgate"]
    assert hosts_of(report) == [*hidden, "s3.payroll.example"]
    said = Hider(hosts_of(report))(conf)
    assert "qmon" not in said and "qgate" not in said and "payroll" not in said
    assert "members = a,host4" in said and "in the cellar" in said and "address1:3300/0" in said


def test_the_page_has_ceph_conf_line_by_line(small: Path) -> None:
    """It was one endless line; and of a host that only it names, anonymizing saw no line."""
    environment = small / "results" / "environment.json"
    known = json.loads(environment.read_text())
    conf = "[global]\nfsid = x\x1b[2J\n[mon.a]\n\thost = secretmon\n"
    known["ceph_conf"] = {"Unencrypted": conf}
    environment.write_text(json.dumps(known))
    shown = "[global]\nfsid = x\ufffd[2J\n[mon.a]\n\thost = secretmon\n"
    report = build(small)
    assert f">{shown}</pre>" in page(report)
    again = reopened(json.dumps(document(report)).encode())
    assert again.environment["ceph_conf"] == {"Unencrypted": shown}
    assert "secretmon" not in page(build(small, ReportOptions(anonymize=True)))

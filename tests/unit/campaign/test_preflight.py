"""How what the hosts print is judged; the scripts themselves are run in test_nothing_touched."""

from __future__ import annotations

import io
import time
from collections.abc import Mapping
from typing import Any, Callable, Optional

import pytest
from fake_hosts import FakeHosts
from rich.console import Console

from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.hosts.remote import Remote, clock_bounds, clock_difference
from cbt_crypto.hosts.requirement import Requirement
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.order import cells_of
from cbt_crypto.run.preflight import check, table
from cbt_crypto.run.preflight.check import checks
from cbt_crypto.run.preflight.survey import (
    Governor,
    HostFinding,
    LoadAverage,
    Login,
    NetworkFact,
    Space,
    Version,
    survey,
)

pytestmark = pytest.mark.unit

Make = Callable[..., Campaign]


def answers(by_number: Mapping[int, str]) -> Callable[[str, str], str]:
    """A host that answers the requirements of these numbers so, and ok to the others."""

    def say(node: str, command: str) -> str:
        marks = [line.split() for line in command.splitlines() if "@cbt-crypto-requirement" in line]
        numbers = [int(words[-1]) for words in marks]
        return "".join(
            f"\n@cbt-crypto-requirement {number}\n{by_number.get(number, 'ok')}\n"
            for number in numbers
        )

    return say


class Picky(Requirement):
    def judge(self, output: str) -> Optional[str]:
        return None if output == "two\nlines" else f"said {output!r}"


NEEDS = [
    Requirement("one", ("a", "b"), "echo ok"),
    Requirement("two", ("b",), "echo ok"),
    Picky("three", ("a",), "echo ok"),
]


def unmet(common: Any) -> list[str]:
    """What is wrong, as `cbt.py` prints it."""
    found = survey(Remote(common, "/t"), ["a", "b"], NEEDS)
    return [f"{one.host}: {one.error}" for one in found if one.error]


@pytest.mark.parametrize(
    ("printed", "problems"),
    [
        ({2: "two\nlines"}, []),
        ({0: "no fio", 2: "two\nlines"}, ["a: no fio", "b: no fio"]),
        ({1: "", 2: "two\nlines"}, ["b: two is missing"]),
        ({2: "ok"}, ["a: said 'ok'"]),
    ],
)
def test_each_host_is_judged_by_its_own_words(
    printed: Mapping[int, str], problems: list[str]
) -> None:
    common = FakeHosts(answers(printed))
    assert unmet(common) == problems
    assert len(common.calls) == 1, "one call for all hosts and requirements"


def test_a_host_that_says_nothing_about_a_requirement_does_not_meet_it() -> None:
    common = FakeHosts(lambda node, command: "something else")
    assert unmet(common) == [
        "a: one is missing",
        "a: said ''",
        "b: one is missing",
        "b: two is missing",
    ]


def test_a_host_that_falls_silent_midway_cannot_be_reached() -> None:
    common = FakeHosts(lambda node, command: None if node == "b" else "")
    assert unmet(common) == [
        "a: one is missing",
        "a: said ''",
        "b: cannot be reached; ssh to it must work without a password",
    ]


def names(campaign: Campaign) -> dict[str, tuple[str, ...]]:
    needs = check.requirements(campaign, cells_of(campaign))
    return {need.name: need.hosts for need in needs}


@pytest.mark.parametrize("overlay", [{"luks": {}}, {"cpuset": {"osd_cores": 1}}])
def test_only_overlays_that_are_present_are_asked(campaign_of: Make, overlay: Any) -> None:
    """Where another configuration has one, its absence is proved, and asks nothing of hosts."""
    campaign = campaign_of(cluster={"configurations": {"Plain": {}, "With": overlay}})
    (name,) = overlay
    cells = cells_of(campaign)
    asked = {}
    for configuration in ("Plain", "With"):
        stack = Stack(campaign.configurations[configuration])
        assert name in {one.name for one in stack.overlays}
        asked[configuration] = {need.column for need in checks(campaign, cells, [stack])}
    assert name not in asked["Plain"] and name in asked["With"]


def test_each_program_is_looked_for_where_it_runs(campaign_of: Make) -> None:
    found = names(
        campaign_of(
            cluster={"osd_file_size": "1G"},
            benchmarks={"rbd_multi_client": {}, "rbd_single_client": {"fio_cmd": "/opt/fio"}},
        )
    )
    assert found["ceph"] == found["rbd"] == found["ceph-mon"] == found["ceph-mgr"] == ("head",)
    assert found["ceph-osd"] == ("o0", "o1")
    assert found["fio"] == ("c0", "c1")
    assert found["/opt/fio"] == ("c0",)
    assert found["collectl"] == ("c0", "c1", "o0", "o1", "head")
    assert found["tmp_dir"] == ("head", "o0", "o1", "c0", "c1")
    assert "perf" not in found


def test_an_existing_cluster_needs_no_daemons(campaign_of: Make) -> None:
    absent = dict.fromkeys(("osds", "mons", "mgrs"), ...)
    found = names(campaign_of(cluster={"use_existing": True, **absent}))
    always = {
        "ceph",
        "rbd",
        "python3",
        "client",
        "pdcp",
        "collectl",
        "tmp_dir",
        "existing cluster",
    }
    assert set(found) == {*always, "fio", "fio with rbd"}


def test_every_device_is_looked_at_on_its_host(campaign_of: Make) -> None:
    devices = {"o0": ["/dev/a", "/dev/b"], "o1": ["/dev/a", "/dev/c"]}
    campaign = campaign_of(cluster={"osd_devices": devices, "osds_per_node": 2})
    found = checks(campaign, cells_of(campaign), [])
    looked_at = [(need.hosts, need.device) for need in found if hasattr(need, "device")]
    assert looked_at == [
        (("o0",), "/dev/a"),
        (("o0",), "/dev/b"),
        (("o1",), "/dev/a"),
        (("o1",), "/dev/c"),
    ]


GIB = 1 << 30


@pytest.mark.parametrize(
    ("fact", "output", "shown", "error", "warning"),
    [
        (Login("", (), "", user="root"), "root", "root", None, None),
        (Login("", (), "", user="root"), "eve", "eve", "logs in as eve and not as root", None),
        (Login("", (), ""), "eve", "eve", None, None),
        (Space("", (), "", needed=GIB), str(2 * GIB), "2.0 GiB", None, None),
        (Space("", (), "", needed=9 * GIB), str(GIB), "1.0 GiB", "needs about 9.0 GiB", None),
        (Space("", (), "", needed=GIB), "df: no such", "?", None, None),
        (Governor("", (), ""), "performance", "performance", None, None),
        (Governor("", (), ""), "", "none", None, None),
        (Governor("", (), ""), "ondemand\nperformance", "ondemand+performance", None, "cpupower"),
        (LoadAverage("", (), ""), "0.30 64", "0.30/64", None, None),
        (LoadAverage("", (), ""), "40.1 64", "40.1/64", None, "load is 40.1 on 64 CPUs"),
        (
            LoadAverage("", (), ""),
            "0.1 64\nceph-osd\nfio\nfio",
            "0.1/64",
            None,
            "ceph-osd, fio of somebody else runs there; unless it is of the cluster",
        ),
        (LoadAverage("", (), ""), "", "?", None, None),
        (NetworkFact("", (), ""), "eth0 9000 25000", "eth0 9000 25G", None, None),
        (NetworkFact("", (), ""), "eth0 1500 -1", "eth0 1500", None, None),
        (NetworkFact("", (), ""), "", "?", None, None),
        (Version("", (), ""), "ceph version 18.2.7 (abc) reef", "18.2.7", None, None),
        (Version("", (), ""), "fio-3.33", "3.33", None, None),
        (Version("", (), ""), "", "?", None, None),
    ],
)
def test_what_a_fact_shows_and_says(
    fact: Any, output: str, shown: str, error: Optional[str], warning: Optional[str]
) -> None:
    assert fact.shown(output) == shown
    for said, wanted in ((fact.judge(output), error), (fact.advice(output), warning)):
        assert (said is None) if wanted is None else (wanted in str(said))


@pytest.mark.parametrize(
    ("begin", "end", "offset"),
    [(10.2, 10.8, 0.0), (15.2, 15.8, 4.8), (5.2, 5.8, -4.8), (10.0, 11.0, 0.0)],
)
def test_a_clock_s_offset_is_at_least_what_the_way_cannot_explain(
    begin: float, end: float, offset: float
) -> None:
    known = clock_bounds(begin, end, sent=10.0, received=11.0)
    assert clock_difference(known, (0.0, 0.0)) == pytest.approx(offset)


def test_hosts_that_agree_do_not_differ_by_how_wrong_this_machine_is() -> None:
    """Here it is 5 s later on both; one was asked for the whole second, the other was quick."""
    slow = clock_bounds(15.0, 16.0, sent=10.0, received=11.0)
    quick = clock_bounds(15.4, 15.5, sent=10.0, received=11.0)
    assert clock_difference(quick, slow) == clock_difference(slow, quick) == 0.0
    later = clock_bounds(25.4, 25.5, sent=10.0, received=11.0)
    assert clock_difference(later, slow) == pytest.approx(9.5)
    assert clock_difference(slow, later) == pytest.approx(-9.5)


@pytest.mark.parametrize("first", ["nan", "inf", "-1"])
def test_a_first_host_without_a_time_does_not_make_all_clocks_agree(first: str) -> None:
    """No difference to `nan` is beyond the limit: every clock was called right."""

    def say(node: str, command: str) -> str:
        clock = {"a": first, "b": str(time.time()), "c": str(time.time() + 3600)}[node]
        return f"@cbt-crypto-clock {clock}\n@cbt-crypto-clock {clock}\n"

    found = survey(FakeHosts(say).remote(), ["a", "b", "c"], [])
    clocks = {one.host: one for one in found if one.column == "clock"}
    assert (clocks["a"].shown, clocks["b"].shown) == ("?", "ok")
    assert "ahead of" in str(clocks["c"].error)


def test_differences_between_hosts_and_clocks_are_found() -> None:
    def say(node: str, command: str) -> str:
        clock = time.time() + (7 if node == "b" else 0)
        version = "3.39" if node == "b" else "3.33"
        mark = "@cbt-crypto-clock"
        return f"{mark} {clock}\n@cbt-crypto-requirement 0\nfio-{version}\n{mark} {clock}\n"

    needs = [Version("fio", ("a", "b"), "fio --version", "fio")]
    found = survey(FakeHosts(say).remote(), ["a", "b"], needs)
    said = [f"{one.host}: {one.error or one.warning}" for one in found if one.error or one.warning]
    assert said[0].startswith("b: its clock is 7.0 s ahead of the head's; start chrony")
    assert said[1] == "b: fio is 3.39 and 3.33 on a; make them the same"


def test_the_table_has_a_field_for_each_host_and_column() -> None:
    out = io.StringIO()
    table.show(
        [
            HostFinding("a", "ssh", "ok"),
            HostFinding("a", "ceph", "18.2.7"),
            HostFinding("a", "ceph", "ok"),
            HostFinding("b[bold]", "ssh", "no", error="cannot be reached"),
            HostFinding("a", "governor", "powersave", warning="set it"),
            # What is wrong with the file stood in the row of the head, beside "ok".
            HostFinding("campaign", "", "", warning="fits into memory"),
        ],
        Console(file=out, width=60),
    )
    lines = out.getvalue().splitlines()
    assert lines[0].split() == ["host", "ssh", "ceph", "governor"]
    assert lines[1].split() == ["a", "ok", "18.2.7", "powersave", "!"]
    assert lines[2].split() == ["b[bold]", "no"]
    assert lines[3:] == [
        "error: b[bold]: cannot be reached",
        "warning: a: set it",
        "warning: campaign: fits into memory",
    ]


def test_a_cipher_that_the_release_may_not_know_is_asked_for(campaign_of: Make) -> None:
    assert "auth_cipher" not in names(campaign_of(cluster={"auth_cipher": "aes"}))
    found = names(campaign_of(cluster={"auth_cipher": "aes256k"}))
    assert found["auth_cipher"] == ("head",)


@pytest.mark.parametrize("width", [60, 80, 200])
def test_nothing_is_cut_on_a_narrow_terminal(width: int) -> None:
    columns = ("ssh", "user", "space", "network", "governor", "collectl", "python3", "luks")
    found = [
        HostFinding(f"osd{n}", column, "59.6 GiB" if column == "space" else "ok")
        for n in range(3)
        for column in columns
    ]
    output = io.StringIO()
    table.show(found, Console(file=output, width=width, force_terminal=True, color_system=None))
    text = output.getvalue().replace("\u00a0", " ")
    assert all(len(line) <= width for line in text.splitlines())
    assert "…" not in text
    assert text.count("59.6 GiB") == 3
    assert ("host" in text) == (width >= 80), "a table where there is room"


def test_what_hosts_say_is_shown_without_what_a_terminal_obeys() -> None:
    """Escape sequences and bidi marks of a host's answer reached the terminal."""
    evil = "\x1b]0;owned\x07 \u202eon\x9b2J"
    finding = HostFinding(f"a{evil}", f"b{evil}", f"c{evil}", f"d{evil}", f"e{evil}")
    printed = io.StringIO()
    table.show([finding], Console(file=printed, width=300))
    assert not set(evil) & set(printed.getvalue()) - set(" ]0;ownedon2J")


def test_a_host_that_says_megabytes_of_itself() -> None:
    """All of it was printed, in the table and below it, and took minutes."""
    said = "fio is missing " * 100_000
    clock = "\n@cbt-crypto-clock 1796000000.0\n"
    answer = f"{clock}\n@cbt-crypto-requirement 0\n{said}\n{clock}"
    found = survey(FakeHosts(lambda host, command: answer).remote(), ["a"], [NEEDS[0]])
    printed, began = io.StringIO(), time.process_time()
    table.show(found, Console(file=printed, width=80))
    assert time.process_time() - began < 5 and len(printed.getvalue()) < 50_000
    assert "error: a: fio is missing fio is missing" in printed.getvalue()

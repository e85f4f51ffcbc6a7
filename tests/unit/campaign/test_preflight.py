"""How what the hosts print is judged; the scripts themselves are run in test_nothing_touched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable, Optional

import pytest

from cbt_crypto import preflight
from cbt_crypto.errors import UsageError
from cbt_crypto.file import Campaign
from cbt_crypto.overlay import Requirement
from cbt_crypto.plan import cells_of
from cbt_crypto.remote import Remote

pytestmark = pytest.mark.unit

Make = Callable[..., Campaign]


class FakeCommon:
    """Hosts that print what `say` returns for their script; None for one that never answers."""

    def __init__(self, say: Callable[[str, str], Optional[str]]) -> None:
        self.say = say
        self.calls = 0

    def pdsh_each(self, commands: Mapping[str, str], continue_if_error: bool = True) -> Any:
        self.calls += 1
        lines = []
        for node, command in commands.items():
            said = self.say(node, command)
            if said is not None:
                lines += [f"{node}: {line}" for line in said.splitlines()]
                lines += [f"{node}: ", f"{node}: @cbt-crypto-exit-status 0"]

        class Handle:
            timed_out = False

            def communicate(self, timeout: Optional[float] = None) -> tuple[str, str]:
                return "".join(f"{line}\n" for line in lines), ""

        return Handle()


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
    common = FakeCommon(answers(printed))
    assert preflight.unmet(Remote(common, "/t"), NEEDS) == problems
    assert common.calls == 1, "one call for all hosts and requirements"


def test_a_host_that_says_nothing_about_a_requirement_does_not_meet_it() -> None:
    common = FakeCommon(lambda node, command: "something else")
    assert preflight.unmet(Remote(common, "/t"), NEEDS) == [
        "a: one is missing",
        "a: said ''",
        "b: one is missing",
        "b: two is missing",
    ]


def test_a_host_that_falls_silent_midway_is_a_usage_error() -> None:
    common = FakeCommon(lambda node, command: None if node == "b" else "")
    with pytest.raises(UsageError, match="b: check the host: no answer; is the host up"):
        preflight.unmet(Remote(common, "/t"), NEEDS)


def names(campaign: Campaign) -> dict[str, tuple[str, ...]]:
    needs = preflight.requirements(campaign, cells_of(campaign))
    return {need.name: need.hosts for need in needs}


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
    assert set(found) == {"ceph", "rbd", "librados", "collectl", "tmp_dir", "fio", "fio with rbd"}


def test_every_device_is_looked_at_on_its_host(campaign_of: Make) -> None:
    devices = {"o0": ["/dev/a", "/dev/b"], "o1": ["/dev/a", "/dev/c"]}
    found = preflight.requirements(
        campaign_of(cluster={"osd_devices": devices, "osds_per_node": 2}), []
    )
    looked_at = [(need.hosts, need.device) for need in found if hasattr(need, "device")]
    assert looked_at == [
        (("o0",), "/dev/a"),
        (("o0",), "/dev/b"),
        (("o1",), "/dev/a"),
        (("o1",), "/dev/c"),
    ]

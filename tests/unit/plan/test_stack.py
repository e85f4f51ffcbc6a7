"""Overlays on top of one another: order, precedence, and what taking them down does."""

from __future__ import annotations

import subprocess
from typing import Callable

import pytest

from cbt_crypto.cluster_overlays.base import Overlay, Transition
from cbt_crypto.cluster_overlays.stack import Stack, leftovers
from cbt_crypto.hosts.site import Osd, Site

pytestmark = pytest.mark.unit

Make = Callable[..., Overlay]
OSD = Osd(0, "o0", "/dev/sdb", "/d", "/a", "/p", db_device="/dev/nvme0n1")
SITE = Site("/t", "/c", "head", ("c0",), (OSD,))


def sh(text: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        ["sh", "-c", f"set -eu\n{text}"], check=False, capture_output=True, text=True
    )
    return done.returncode, done.stdout.splitlines()


def test_absent_overlays_lie_below_those_that_are_named(overlay: Make) -> None:
    stack = Stack([overlay("live", value=3)])
    assert [(one.name, one.is_present) for one in stack.overlays] == [
        ("restart", False),
        ("live", True),
    ]


def test_a_later_overlay_s_options_replace_an_earlier_one_s(overlay: Make) -> None:
    one, other = overlay("live", value=3), overlay("restart")
    assert Stack([one, other]).ceph_conf() == {
        "global": {"who": "restart", "live": "3"},
        "osd": {"restart": "1"},
    }
    assert Stack([other, one]).ceph_conf()["global"]["who"] == "live"


def test_devices_and_commands_are_wrapped_bottom_first(overlay: Make) -> None:
    stack = Stack([overlay("build"), overlay("live"), overlay("restart")])
    assert stack.osd_device(OSD, OSD.device) == "/dev/sdb+build"
    assert stack.osd_db_device(OSD, OSD.db_device) == "/dev/nvme0n1"
    assert stack.wrap_osd(OSD, "ceph-osd") == "restart live ceph-osd"
    assert stack.wrap_client("c0", "fio") == "fio"


def test_scripts_of_a_host_run_one_after_another_each_in_its_own_shell(overlay: Make) -> None:
    stack = Stack([overlay("live"), overlay("restart")])
    assert sh(stack.after_osds(SITE)["o0"]) == (0, ["live", "live"])


def test_a_script_that_fails_ends_its_host(overlay: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type(overlay("live"))
    monkeypatch.setattr(kind, "before_osds", lambda *_: {"o0": "echo one\nfalse\necho two"})
    stack = Stack([overlay("live"), overlay("restart")])
    assert sh(f"{stack.before_osds(SITE)['o0']}\necho three") == (1, ["one"])


def test_take_down_goes_top_first_and_on_after_a_failure(overlay: Make) -> None:
    stack = Stack([overlay("restart"), overlay("live", value=7)])
    scripts = leftovers([stack], SITE)
    status, printed = sh(scripts["o0"])
    assert status != 0
    assert printed == ["down live 7", "down restart"]
    assert sh(scripts["o1"]) == (0, ["down restart"])


def test_leftovers_take_down_each_configuration_once(overlay: Make) -> None:
    stacks = [Stack([overlay("live", value=n)]) for n in (1, 2, 1)]
    status, printed = sh(leftovers(stacks, SITE)["o0"])
    assert status != 0
    assert [line for line in printed if "live" in line] == ["down live 1", "down live 2"]


def test_a_change_takes_what_its_dearest_overlay_takes(overlay: Make) -> None:
    plain, live = Stack([]), Stack([overlay("live")])
    both = Stack([overlay("live"), overlay("restart")])
    built = Stack([overlay("build")])
    assert plain.transition_to(plain) is Transition.NONE
    assert plain.transition_to(live) is live.transition_to(plain) is Transition.LIVE
    assert plain.transition_to(both) is Transition.RESTART
    assert plain.transition_to(built) is built.transition_to(plain) is Transition.REBUILD
    assert built.transition_to(built) is Transition.NONE


def test_each_contradiction_is_a_sentence(overlay: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type(overlay("live"))
    monkeypatch.setattr(kind, "check_ceph_conf", lambda self, conf: "no" if conf else None)
    assert Stack([overlay("live"), overlay("restart")]).contradictions({"a": {}}) == ["no", "no"]
    assert Stack([overlay("live")]).contradictions({}) == []

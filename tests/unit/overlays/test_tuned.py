"""Outputs are of TuneD 2.25; the scripts are run with a stand-in that keeps its state in a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Optional

import pytest
from pydantic import ValidationError

from cbt_crypto.cluster_overlays import OVERLAYS
from cbt_crypto.cluster_overlays.base import Transition
from cbt_crypto.cluster_overlays.tuned import Tuned
from cbt_crypto.hosts.site import Site

pytestmark = pytest.mark.unit

ABSENT = Tuned.absent()
LATENCY = Tuned(profile="network-latency")

STAND_IN = """#!/bin/sh
cd "$TUNED"
case $1 in
    active)
        [ -e down ] && { echo "Cannot talk to TuneD daemon via DBus." >&2; exit 0; }
        [ -s profile ] || { echo "No current active profile."; exit 1; }
        echo "Current active profile: $(cat profile)" ;;
    profile_info) [ "$2" != nonesuch ] ;;
    profile) shift; echo "$*" > profile; echo "profile $*" >> calls ;;
    off) : > profile; echo off >> calls ;;
    auto_profile) echo balanced > profile; echo auto_profile >> calls ;;
    verify) echo "Verification succeeded, current system settings match the preset profile." ;;
esac
"""


class FakeTuned:
    """A `tuned-adm` first on PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "tuned-adm").write_text(STAND_IN)
        (folder / "tuned-adm").chmod(0o755)
        self.profile = "balanced"

    @property
    def profile(self) -> str:
        return (self.folder / "profile").read_text().strip()

    @profile.setter
    def profile(self, name: str) -> None:
        (self.folder / "profile").write_text(name)

    @property
    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()


@pytest.fixture
def tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeTuned:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("TUNED", str(folder))
    return FakeTuned(folder)


@pytest.fixture
def here(site_of: Callable[..., Site], tmp_path: Path) -> Site:
    return site_of(tmp_dir=str(tmp_path), clients=("node0",))


Shell = Callable[[str], str]


def test_it_is_in_the_table() -> None:
    assert OVERLAYS["tuned"] is Tuned


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"profile": ""},
        {"profile": "a;b"},
        {"profile": "a  b"},
        {"profile": "balanced", "roles": []},
        {"profile": "balanced", "roles": ["osd"]},
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Tuned.model_validate(options)


def test_transitions_are_live() -> None:
    assert ABSENT.transition_to(LATENCY) == LATENCY.transition_to(ABSENT) == Transition.LIVE
    assert LATENCY.transition_to(Tuned(profile="network-latency")) == Transition.NONE


def test_the_roles_get_the_profile_and_the_others_their_own_back(site: Site) -> None:
    on_osds = Tuned(profile="network-latency", roles=("osds",))
    applied = on_osds.after_osds(site)
    restored = ABSENT.after_osds(site)
    assert set(applied) == set(restored) == {"node0", "node1", "node2", "node3"}
    assert applied["node0"] == restored["node0"]
    assert applied["node2"].endswith("\nactivate network-latency /tmp/cbt/tuned.node2")
    assert restored["node2"].endswith("\nrestore /tmp/cbt/tuned.node2")
    assert ABSENT.take_down(site) == on_osds.take_down(site) == restored


def test_requirements_are_of_its_hosts(site: Site) -> None:
    assert ABSENT.requirements(site) == ()
    (need,) = LATENCY.requirements(site)
    assert need.hosts == ("node2", "node3", "node0", "node1")
    (need,) = Tuned(profile="balanced", roles=("mons",)).requirements(site)
    assert need.hosts == ("node0",)


@pytest.mark.parametrize(
    ("profile", "sentence"),
    [
        ("network-latency", None),
        ("balanced nonesuch", "TuneD has no profile nonesuch; 'tuned-adm list' shows those it has"),
    ],
)
def test_a_profile_must_exist(
    here: Site, tuned: FakeTuned, sh: Shell, profile: str, sentence: Optional[str]
) -> None:
    (need,) = Tuned(profile=profile).requirements(here)
    assert need.judge(sh(need.script)) == sentence


def test_roles_that_no_host_has_prove_nothing(site: Site) -> None:
    """Cells of drives were proved without the profile: TuneD made no difference."""
    look = dict.fromkeys(site.hosts, "")
    without = replace(site, osds=())
    verdict = Tuned(profile="balanced", roles=("osds",)).judge(without, look, look)
    assert not verdict.proved and verdict.reason == "no host here has its roles"


def test_tuned_must_run(here: Site, tuned: FakeTuned, sh: Shell) -> None:
    (tuned.folder / "down").touch()
    (need,) = LATENCY.requirements(here)
    assert need.judge(sh(need.script)) == (
        "TuneD is not running; start it, e.g. with: systemctl start tuned"
    )


def test_tuned_must_be_there(here: Site, sh: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    (need,) = LATENCY.requirements(here)
    script = need.script.replace("tuned-adm >", "no-such-tuned-adm >")
    assert need.judge(sh(script)) == "tuned-adm is missing; install tuned"


@pytest.mark.parametrize(
    ("before", "way_back"), [("balanced", "profile balanced"), ("a b", "profile a b"), ("", "off")]
)
def test_the_profile_of_before_comes_back_once(
    here: Site, tuned: FakeTuned, sh: Shell, before: str, way_back: str
) -> None:
    tuned.profile = before
    two = Tuned(profile="network-latency powersave")
    for overlay in (LATENCY, LATENCY, two):
        sh(overlay.after_osds(here)["node0"])
    assert tuned.profile == "network-latency powersave"
    for _ in range(2):
        sh(ABSENT.take_down(here)["node0"])
    assert tuned.profile == before
    assert tuned.calls == [
        "profile network-latency",
        "profile network-latency",
        "profile network-latency powersave",
        way_back,
    ]


def test_a_profile_that_somebody_chose_meanwhile_stays(
    here: Site, tuned: FakeTuned, sh: Shell
) -> None:
    """The end of the campaign gave the host the profile of before its beginning."""
    sh(LATENCY.after_osds(here)["node0"])
    tuned.profile = "his own"
    sh(LATENCY.take_down(here)["node0"])
    assert tuned.profile == "his own" and not Path(here.tmp_dir, "tuned.node0").exists()


@pytest.mark.parametrize("killed", ["before the second", "by a version of before"])
def test_a_kill_between_two_profiles_of_ours(
    here: Site, tuned: FakeTuned, sh: Shell, killed: str
) -> None:
    note = Path(here.tmp_dir, "tuned.node0")
    sh(LATENCY.after_osds(here)["node0"])
    if killed == "before the second":
        sh(Tuned(profile="powersave").after_osds(here)["node0"])
        tuned.profile = LATENCY.profile
    else:
        note.write_text("profile balanced\n")
    assert sh(LATENCY.way_back(here)["node0"]) == "profile balanced\n"
    sh(LATENCY.take_down(here)["node0"])
    assert tuned.profile == "balanced" and not note.exists()


def test_a_note_that_a_power_cut_left_empty_is_none(
    here: Site, tuned: FakeTuned, sh: Shell
) -> None:
    """Every cleanup ended at `tuned-adm` without a word, and the profile stayed."""
    note = Path(here.tmp_dir, "tuned.node0")
    sh(LATENCY.after_osds(here)["node0"])
    note.write_text("")
    (put_back,) = LATENCY.put_back(here, {"node0": "profile balanced"}).values()
    sh(put_back)
    sh(LATENCY.take_down(here)["node0"])
    assert tuned.profile == "balanced" and not note.exists()
    note.write_text("")
    sh(ABSENT.take_down(here)["node0"])
    assert tuned.profile == "balanced" and not note.exists()


def test_probes(here: Site, tuned: FakeTuned, sh: Shell) -> None:
    sh(LATENCY.after_osds(here)["node0"])
    look = {"node0": sh(LATENCY.probe(here)["node0"])}
    # A Tuned for mons alone: node0 is that host here, so that both kinds of probe are run.
    assert Tuned(profile="network-latency", roles=("mons",)).judge(here, look, look).proved
    assert not ABSENT.judge(here, *[{"node0": sh(ABSENT.probe(here)["node0"])}] * 2).proved
    sh(ABSENT.after_osds(here)["node0"])
    assert ABSENT.judge(here, *[{"node0": sh(ABSENT.probe(here)["node0"])}] * 2).proved
    tuned.profile = ""
    assert sh(LATENCY.probe(here)["node0"]).startswith("No current active profile.")


@pytest.fixture
def output(data: Path) -> Callable[[str], Mapping[str, str]]:
    def read(name: str) -> Mapping[str, str]:
        return {"node0": (data / "tuned" / f"{name}.txt").read_text()}

    return read


Output = Callable[[str], Mapping[str, str]]


@pytest.mark.parametrize(
    ("overlay", "name", "proved", "reason"),
    [
        (
            LATENCY,
            "network_latency",
            True,
            "network-latency is active on 1 of 1 hosts, "
            "without the kernel arguments that it would set at the next boot",
        ),
        (
            Tuned(profile="network-latency powersave"),
            "two_profiles",
            True,
            "network-latency powersave is active on 1 of 1 hosts, "
            "without the kernel arguments that it would set at the next boot",
        ),
        (
            Tuned(profile="virtual-guest"),
            "other_profile",
            True,
            "virtual-guest is active on 1 of 1 hosts",
        ),
        (LATENCY, "other_profile", False, "node0 runs virtual-guest"),
        (LATENCY, "two_profiles", False, "node0 runs network-latency powersave"),
        (LATENCY, "not_running", False, "node0 runs no TuneD profile"),
        (
            LATENCY,
            "differs",
            False,
            "node0 differs from its TuneD profile: 'net.core.busy_read' = '3', expected '50'",
        ),
        (ABSENT, "absent", True, "no TuneD profile of ours is in force"),
        (ABSENT, "not_restored", False, "node0 has not got its own profile back"),
    ],
)
def test_judged(
    one_host: Site, output: Output, overlay: Tuned, name: str, proved: bool, reason: str
) -> None:
    verdict = overlay.judge(one_host, output(name), output(name))
    assert (verdict.proved, verdict.reason) == (proved, reason)
    assert verdict.evidence == output(name)


def test_a_profile_that_was_changed_during_the_cell_fails_the_proof(
    one_host: Site, output: Output
) -> None:
    changed = LATENCY.judge(one_host, output("other_profile"), output("network_latency"))
    assert (changed.proved, changed.reason) == (False, "node0 runs virtual-guest")
    silent = LATENCY.judge(one_host, output("network_latency"), {})
    assert (silent.proved, silent.reason) == (False, "node0 did not answer")


def test_a_failed_verification_without_its_reasons_fails_the_proof(one_host: Site) -> None:
    look = {"node0": "Current active profile: network-latency\nVerification failed, ...\n"}
    verdict = LATENCY.judge(one_host, look, look)
    assert not verdict.proved
    assert verdict.reason.endswith("see /var/log/tuned/tuned.log there")

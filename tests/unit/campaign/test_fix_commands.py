"""The commands that fix what is red; and that no host can have one of its own run."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from typing import Optional

import pytest

from cbt_crypto.run.preflight import table
from cbt_crypto.run.preflight.check import how_to_fix
from cbt_crypto.run.preflight.survey import HostFinding

pytestmark = pytest.mark.unit

CLOCK = "its clock is 3.0 s ahead of the head's; start chrony or systemd-timesyncd on both"


def lines(manager: str, *found: tuple[str, str], user: Optional[str] = None) -> Sequence[str]:
    """The commands for one host, without their ssh."""
    findings = [HostFinding("osd0", column, "no", sentence) for column, sentence in found]
    made = list(table.script(findings, {"osd0": manager}, user))
    text = "\n".join(made)
    subprocess.run(["sh", "-n"], input=text, text=True, check=True)
    return [shlex.split(line)[3] if line.startswith("ssh") else line for line in made[3:]]


def test_packages_of_one_host_come_together() -> None:
    told = (("fio", "fio is missing; install fio"), ("tools", "wg is missing; install x"))
    assert lines("apt-get", *told) == [
        "sudo apt-get update && sudo apt-get install -y --no-install-recommends fio wireguard-tools"
    ]
    assert lines("dnf", *told) == ["sudo dnf install -y fio fio-engine-rbd wireguard-tools"]


def test_a_run_that_lacks_packages_names_the_command_that_installs_them() -> None:
    missing = HostFinding("osd0", "fio", "no", "fio is missing; install fio")
    other = HostFinding("osd0", "sudo", "no", "needs root for block devices")
    assert "check --fix-commands" in " ".join(how_to_fix([other, missing]))
    assert how_to_fix([other]) == []


def test_the_repository_that_others_are_in_comes_first() -> None:
    assert lines("dnf", ("pdsh", "pdcp is missing; install pdsh")) == [
        "sudo dnf install -y epel-release", "sudo dnf install -y pdsh pdsh-rcmd-ssh",
    ]  # fmt: skip


def test_services_and_sudo() -> None:
    found = lines(
        "apt-get",
        ("clock", CLOCK),
        ("tuned", "TuneD is not running; start it, e.g. with: systemctl start tuned"),
        ("sudo", "needs root for block devices; use a root user, or give cbt sudo"),
        user="cbt",
    )
    assert found[0].endswith(" chrony")
    assert found[1].startswith("sudo systemctl enable --now chrony")
    assert found[2] == "sudo systemctl enable --now tuned"
    assert found[3].startswith('echo "cbt ALL=(ALL) NOPASSWD: ALL" | sudo tee')


def test_what_destroys_is_left_to_people() -> None:
    sentence = "/dev/sda carries data (xfs); name another device, or say wipe: true"
    assert lines("apt-get", ("devices", sentence)) == [f"# by hand: {sentence}"]


@pytest.mark.parametrize(
    "said",
    [
        "fio; reboot is missing; install $(reboot)", "x is missing; install x && reboot",
        "evil\nssh osd0 reboot", "$(reboot)", "`reboot`", "'; reboot #", "\x1b[2J",
    ],
)  # fmt: skip
def test_what_a_host_says_is_never_a_command(said: str) -> None:
    findings = [HostFinding("osd0", "tools", "no", said)]
    made = list(table.script(findings, {"osd0": "apt-get"}, None))
    assert all(line.startswith("#") or not line for line in made)
    assert all(line.isprintable() for line in made)


def test_a_host_without_a_known_manager_is_left_to_people() -> None:
    findings = [HostFinding("osd0", "fio", "no", "fio is missing; install fio")]
    assert list(table.script(findings, {}, None))[-1].startswith("# by hand: fio is missing")

"""Parts of a script that are proved, each by itself or all by one start of Python."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from cbt_crypto.hosts.devices import destroy

pytestmark = pytest.mark.unit


def run(
    tmp_path: Path, text: str, sudo: str = ""
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run it as a campaign does; the second value has a line for each start of Python."""
    starts = tmp_path / "starts"
    starts.write_text("")
    program = tmp_path / "bin" / "python3"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\necho started >> {starts}\nexec /usr/bin/python3 "$@"\n')
    program.chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", f"SUDO='{sudo}'\n(\nset -eu\n{text}\n)"],
        check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL,
        env={**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"},
    )  # fmt: skip
    return done, starts.read_text().splitlines()


def parts(tmp_dir: str, *calls: str) -> str:
    return "\n".join(f"(\n{destroy.proved(tmp_dir, [call])}\n)" for call in calls)


def test_all_parts_share_one_python(tmp_path: Path) -> None:
    tmp_dir = str(tmp_path / "ours")
    calls = ("prove all-claimed; echo it\\'s first", 'prove where /dev/none; echo "second"')
    plain, starts = run(tmp_path, parts(tmp_dir, *calls))
    assert (plain.returncode, len(starts)) == (0, 2)
    done, starts = run(tmp_path, destroy.at_once(tmp_dir, parts(tmp_dir, *calls)))
    assert (done.returncode, done.stderr, len(starts)) == (0, "", 1)
    assert done.stdout == plain.stdout
    assert [line for line in done.stdout.splitlines() if line] == ["it's first", "second"]


def test_a_part_that_fails_ends_the_script(tmp_path: Path) -> None:
    tmp_dir = str(tmp_path / "ours")
    text = parts(tmp_dir, "prove claim /dev/none; echo claimed", "echo second")
    done, _ = run(tmp_path, destroy.at_once(tmp_dir, text))
    assert done.returncode == 1
    assert done.stdout == ""
    assert "/dev/none was not identified before this run" in done.stderr


def test_another_campaign_s_notes_are_not_asked(tmp_path: Path) -> None:
    text = parts(str(tmp_path / "other"), "prove all-claimed; echo done")
    done, starts = run(tmp_path, destroy.at_once(str(tmp_path / "ours"), text))
    assert (done.returncode, done.stdout.split(), len(starts)) == (0, ["done"], 2)


def test_with_sudo_each_part_is_proved_by_itself(tmp_path: Path) -> None:
    tmp_dir = str(tmp_path / "ours")
    text = destroy.at_once(tmp_dir, parts(tmp_dir, "echo 1", "echo 2") + '\necho "by $SUDO"')
    done, starts = run(tmp_path, text, sudo="env A=1")
    assert (done.returncode, len(starts)) == (0, 2)
    assert done.stdout.splitlines() == ["1", "2", "by env A=1"]

"""A campaign's user with sudo, for real: Debian's sudo, and another user than root.

What may sudo is written in a mount namespace of the test's own: the machine's is not touched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cbt_crypto.hosts.remote import kill_script, preamble

pytestmark = pytest.mark.unit

NOBODY = 65534
OWN = "/srv/cbt-sudo-test"
Start = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def as_sudo_user(tmp_path: Path) -> Start:
    """Starts shell text as `nobody`, who may sudo without a password; or skips, and says why."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to be another user with sudo")
    for program in ("sudo", "setpriv", "unshare"):
        if not shutil.which(program):
            pytest.skip(f"needs {program}; make test-packages installs it")
    rules = tmp_path / "sudoers.d"
    rules.mkdir()
    (rules / "test").write_text("nobody ALL=(ALL) NOPASSWD: ALL\n")
    (rules / "test").chmod(0o440)

    def start(text: str) -> subprocess.Popen[str]:
        script = f"{preamble(OWN)}\nset -eu\n{text}"
        bind = f'mount --bind {rules} /etc/sudoers.d && exec "$@"'
        command = ["unshare", "--mount", "sh", "-c", bind, "sh", "setpriv", f"--reuid={NOBODY}",
                   f"--regid={NOBODY}", "--clear-groups", "sh", "-c", script]  # fmt: skip
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/",
            env={"PATH": os.environ["PATH"], "CBT_HOST": "h"}, start_new_session=True,
        )  # fmt: skip

    return start


def marked() -> dict[int, int]:
    """Processes with the mark, by the kernel's word: number -> user."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"CBT_CRYPTO_MARK={OWN}@h".encode() in path.read_bytes().split(b"\0"):
                found[int(path.parent.name)] = path.parent.stat().st_uid
        except OSError:
            continue
    return found


def test_root_s_own_commands_are_found_and_ended(as_sudo_user: Start) -> None:
    """A luksFormat that hung under sudo had no mark, and finished after take-down."""
    told = as_sudo_user("$SUDO sh -c 'echo \"$(id -u) $CBT_CRYPTO_MARK $CBT_CRYPTO_UID\"'")
    said, problem = told.communicate(timeout=60)
    assert said == f"0 {OWN}@h {NOBODY}\n", problem
    hung = as_sudo_user("$SUDO sh -c 'trap \"\" TERM HUP; sleep 300; sleep 300'")
    try:
        ends = time.monotonic() + 30
        while 0 not in marked().values() or len(marked()) < 3:
            assert hung.poll() is None and time.monotonic() < ends
            time.sleep(0.2)
        roots = [pid for pid, user in marked().items() if user == 0]
        assert any(b"sleep" in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in roots)
        ended = as_sudo_user(kill_script(("TERM", "KILL"), timeout=3))
        _, problem = ended.communicate(timeout=90)
        assert ended.returncode == 0, problem
        assert marked() == {} and hung.wait(10) != 0
    finally:
        for pid in marked():
            os.kill(pid, 9)
        hung.kill()


def test_what_is_no_campaign_s_goes_on(as_sudo_user: Start) -> None:
    """Root's and the user's other processes, one with a mark that only begins like ours."""
    others = [
        subprocess.Popen(["sleep", "60"], env={"CBT_CRYPTO_MARK": mark})
        for mark in (f"{OWN}@h2", f"{OWN}2@h", f"x{OWN}@h", "")
    ]
    try:
        ended = as_sudo_user(kill_script(("KILL",), timeout=3))
        assert ended.wait(60) == 0
        assert [one.poll() for one in others] == [None] * 4
    finally:
        for one in others:
            one.kill()
            one.wait()

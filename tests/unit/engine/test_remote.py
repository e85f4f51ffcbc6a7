"""Scripts on hosts: what arrives there, what comes back, and what is said of one that failed."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_hosts import FakeHosts, Printed, in_a_shell

from cbt_crypto.engine.embedded import common
from cbt_crypto.errors import HostError
from cbt_crypto.hosts import remote as execution
from cbt_crypto.hosts.remote import FRAME, HostResult, Remote, clock_offsets, packed
from cbt_crypto.hosts.site import Site

pytestmark = pytest.mark.unit


@pytest.fixture(params=["embedded, here", "embedded, there", "plain"])
def remote(request: pytest.FixtureRequest, shims: Any, monkeypatch: pytest.MonkeyPatch) -> Remote:
    """Each way in which a script can reach a host; hosts a and b."""
    if request.param == "plain":
        return FakeHosts(in_a_shell).remote()
    here = frozenset({"a", "b"}) if request.param == "embedded, here" else frozenset()
    monkeypatch.setattr(execution, "local_names", lambda: here)
    return Remote(common, "/t")


def test_each_host_runs_its_own_script(remote: Remote) -> None:
    scripts = {"a": "echo first $CBT_HOST", "b": "echo second $CBT_HOST"}
    assert remote.run(scripts, "say it") == {"a": "first a", "b": "second b"}


def test_hosts_without_a_script_are_left_out(remote: Remote) -> None:
    assert remote.run({"a": "  \n", "b": "echo x"}, "say it") == {"b": "x"}
    assert remote.run({}, "say it") == {}


def test_the_first_command_that_fails_fails_the_host(remote: Remote) -> None:
    results = remote.attempt({"a": "echo one\nsh -c 'exit 7'\necho two", "b": "echo fine"})
    assert (results["a"].stdout, results["a"].status) == ("one", 7)
    assert (results["b"].stdout, results["b"].status) == ("fine", 0)


def test_the_host_that_failed_is_named_and_quoted(remote: Remote) -> None:
    with pytest.raises(HostError) as caught:
        remote.run({"a": "echo fine", "b": "echo 'no space' >&2; exit 3"}, "make OSDs")
    assert str(caught.value) == "b: make OSDs: exit status 3: no space"
    assert caught.value.host == "b"


@pytest.mark.parametrize(
    "script",
    ["exit 0", "set +e; false; true", "(exit 1) || :", "false | true", "if false; then :; fi"],
)
def test_success_is_the_shell_s(remote: Remote, script: str) -> None:
    assert remote.attempt({"a": script})["a"].status == 0


@pytest.mark.parametrize(
    "script", ["false", "echo $unset_variable", "exit 5", "(false)", "nonesuch"]
)
def test_failure_is_the_shell_s(remote: Remote, script: str) -> None:
    assert remote.attempt({"a": script})["a"].status not in (0, None)


def test_output_is_kept_as_it_is(remote: Remote) -> None:
    text = "a: b\n\n  indented\t\ntrailing  \n100% of %h $HOME `x` \\n 'q' \"q\""
    script = f"cat <<'EOF'\n{text}\nEOF"
    assert remote.run({"a": script}, "print")["a"] == text


@pytest.mark.parametrize(("printed", "output"), [("", ""), ("x", "x"), ("x\\n", "x"), ("\\n", "")])
def test_a_last_line_without_an_end(remote: Remote, printed: str, output: str) -> None:
    assert remote.run({"a": f"printf '{printed}'"}, "print")["a"] == output


def test_nothing_is_left_on_standard_input(remote: Remote) -> None:
    assert remote.run({"a": "cat; echo end"}, "read")["a"] == "end"


def test_scripts_of_any_length(remote: Remote) -> None:
    long = {host: "\n".join(f": '{host} {n:060}'" for n in range(1500)) for host in "ab"}
    outputs = remote.run({host: f"{text}\necho {host}" for host, text in long.items()}, "run")
    assert outputs == {"a": "a", "b": "b"}


def test_a_line_of_any_length(remote: Remote) -> None:
    script = "head -c 300000 /dev/zero | tr '\\0' x"
    assert remote.run({"a": script}, "print")["a"] == "x" * 300000


def test_what_every_script_can_rely_on(remote: Remote) -> None:
    printed = remote.run({"a": 'echo "$CBT_CRYPTO_MARK|$SUDO"'}, "print")["a"]
    mark, sudo = printed.split("|")
    assert mark == "/t@a"
    assert sudo == ("" if os.geteuid() == 0 else sudo)


def test_the_user_is_the_campaign_s(shims: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "local_names", frozenset)
    assert Remote(common, "/t", "bench").run({"a": "echo $CBT_HOST"}, "x") == {"a": "a"}
    (call,) = shims.calls("ssh")
    assert call[call.index("-l") + 1] == "bench"


def test_a_host_named_in_full_is_heard(shims: Any) -> None:
    scripts = {"a.one.example": "echo one; echo e1 >&2", "a.two.example": "echo two; exit 4"}
    results = Remote(common, "/t").attempt(scripts)
    assert [(r.stdout, r.stderr, r.status) for r in results.values()] == [
        ("one", "e1", 0),
        ("two", "", 4),
    ]


def test_a_host_that_is_not_there(shims: Any) -> None:
    shims.dead("a")
    remote = Remote(common, "/t")
    with pytest.raises(HostError) as caught:
        remote.run({"b": "echo", "a": "echo"}, "make OSDs", timeout=30)
    assert str(caught.value) == (
        "a: make OSDs: no answer; is the host up, and does ssh to it work without a password: "
        "ssh: connect to host a port 22: No route to host"
    )


def test_a_host_that_never_answers(shims: Any) -> None:
    shims.mute("b")
    results = Remote(common, "/t").attempt({"a": "echo fine", "b": "echo"}, timeout=1.5)
    assert (results["a"].status, results["a"].timed_out) == (0, False)
    assert (results["b"].status, results["b"].timed_out) == (None, True)


@pytest.mark.parametrize("remote", ["embedded, here", "embedded, there"], indirect=True)
def test_a_script_that_takes_too_long_says_what_it_said(remote: Remote) -> None:
    with pytest.raises(HostError) as caught:
        remote.run({"a": "echo a warning >&2; sleep 60"}, "prefill", timeout=1.5)
    assert str(caught.value) == "a: prefill: no answer within 1.5 s: a warning"


def test_a_command_that_took_too_long_leaves_nothing_here(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    text = f"sleep 61 & echo $! > {pid_file}; wait"
    Remote(common, str(tmp_path)).attempt({"localhost": text}, timeout=0.5)
    pid = int(pid_file.read_text())
    for _ in range(100):
        if not Path(f"/proc/{pid}").exists():
            break
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()


def test_one_call_for_any_number_of_hosts_and_any_length(shims: Any) -> None:
    for hosts, lines in ((2, 1), (40, 800)):
        before = len(shims.calls("pdsh"))
        filler = "\n".join(f": '{n:090}'" for n in range(lines))
        scripts = {f"h{n}": f"{filler}\necho {n}" for n in range(hosts)}
        outputs = Remote(common, "/t").run(scripts, "run")
        assert outputs == {f"h{n}": str(n) for n in range(hosts)}
        assert len(shims.calls("pdsh")) - before == 1


def test_no_script_is_in_an_argument(shims: Any) -> None:
    Remote(common, "/t").run({"a": "echo s3cret"}, "run")
    assert "s3cret" not in str(shims.calls())


def test_what_is_long_is_packed() -> None:
    text = ": " + "x" * 200_000 + '\necho "it\'s $CBT_HOST"'
    short = packed(text)
    done = subprocess.run(
        ["sh", "-c", short], env={**os.environ, "CBT_HOST": "h0"}, check=True, capture_output=True
    )
    assert done.stdout == b"it's h0\n" and len(short) < 10_000


@pytest.mark.parametrize("status", [0, 1, 127, 255])
def test_statuses_are_parsed(remote: Remote, status: int) -> None:
    assert remote.attempt({"a": f"exit {status}"})["a"].status == status


def test_output_that_looks_like_a_frame_is_output(remote: Remote) -> None:
    result = remote.attempt({"a": "echo '@cbt-crypto-answer-00 0'; exit 6"})["a"]
    assert result.status == 6
    assert result.stdout == "@cbt-crypto-answer-00 0"


def said_by(say: Callable[[str], str]) -> HostResult:
    """What becomes of all that a host prints; `say` is given the mark."""
    hosts = FakeHosts(lambda _, command: Printed(say(re.findall(FRAME + "[0-9a-f]+", command)[0])))
    return hosts.remote().attempt({"a": "true"})["a"]


def test_a_greeting_of_the_login_shell_is_no_part_of_the_answer() -> None:
    """It counted as an answer: so a lock of another run was seen as held by this one."""
    result = said_by(lambda mark: f"Welcome to a!\n{mark} begin\nbusy\n\n{mark} 0\nGood bye")
    assert (result.stdout, result.status) == ("busy", 0)


@pytest.mark.parametrize(
    "torn",
    ["", "{0} begin\nheld\n{0}", "{0} begin\n{0} x", "{0} 0", "held\n@cbt-crypto-exit-status 0",
     "{0} begin\n{0} -1", "{0}x begin\n{0}x 0"],
)  # fmt: skip
def test_a_torn_answer_is_none(torn: str) -> None:
    assert said_by(torn.format).status is None


def test_an_endless_answer_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cbt_crypto.hosts.remote.LONGEST", 100)
    result = said_by(lambda mark: f"{mark} begin\n{'x' * 101}\n{mark} 0")
    assert (result.status, result.stdout) == (None, "")
    assert result.stderr == execution.TOO_LONG


def test_an_answer_of_endless_lists_is_none() -> None:
    """JSON of them took thirty times as much memory, for each host that gave it."""
    result = said_by(lambda mark: f"{mark} begin\n[{'[],' * 4_000_000}0]\n{mark} 0")
    assert (result.status, result.stdout, result.stderr) == (None, "", execution.TOO_LONG)


@pytest.mark.parametrize("remote", ["embedded, here", "embedded, there"], indirect=True)
def test_an_answer_of_endless_short_lines_takes_no_minutes(remote: Remote) -> None:
    """Tens of millions of lines took two minutes, and gigabytes."""
    began = time.monotonic()
    result = remote.attempt({"a": "yes | head -c 40000000"})["a"]
    flooded = remote.attempt({"b": "yes | head -c 40000000 >&2; echo fine"})["b"]
    assert time.monotonic() - began < 30
    assert (result.stdout, result.stderr) == ("", execution.TOO_LONG)
    assert flooded.stdout == "fine" and len(flooded.stderr) <= 64 << 10


@pytest.mark.parametrize("said", ["", "12 o'clock", "nan", "inf", "-1", "1e300", "{}", "1\n2"])
def test_a_clock_that_says_no_time_is_an_error_of_its_host(said: str) -> None:
    hosts = FakeHosts(lambda *_: said)
    site = Site("/t", "/c", "a", (), ())
    with pytest.raises(
        HostError, match=r"^a: read the clock: an answer that cannot be understood: "
    ):
        clock_offsets(hosts.remote(), site)

"""What `results/commands.log` says, what it hides, and where it is written."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbt_crypto.engine.embedded import common
from cbt_crypto.hosts import command_log, secret
from cbt_crypto.hosts.remote import Remote

pytestmark = pytest.mark.unit

LINE = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\t\d+\.\d{3} s\t(?P<ending>[^\t]+)\t(?P<hosts>[^\t]+)\t"
    r"(?P<what>[^\t]+)\t(?P<command>[^\t]*)(\tsaid: (?P<said>[^\t]*))?"
)


def entries(archive: Path) -> list[re.Match[str]]:
    lines = (archive / command_log.NAME).read_text(encoding="utf-8").splitlines()
    found = [LINE.fullmatch(line) for line in lines]
    assert all(found), lines
    return [one for one in found if one]


def test_a_command_its_host_status_and_last_words(tmp_path: Path) -> None:
    remote = Remote(common, str(tmp_path))
    with command_log.recording() as log:
        log.open(tmp_path)
        remote.attempt({"localhost": "echo fine"}, None, "say something")
        remote.attempt({"localhost": "echo it broke >&2\nexit 7"}, None, "break")
        remote.attempt({"localhost": "sleep 30"}, 0.3, "wait")
    fine, broken, late = entries(tmp_path)
    assert (fine["ending"], fine["hosts"], fine["what"]) == (
        "exit 0", "localhost", "say something",
    )  # fmt: skip
    assert fine["command"] == "echo fine"
    assert fine["said"] is None
    assert (broken["ending"], broken["said"]) == ("exit 7", "it broke")
    assert broken["command"] == r"echo it broke >&2\nexit 7"
    assert late["ending"] == "timed out"


def test_copies_are_in_it(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    with command_log.recording() as log:
        log.open(tmp_path)
        common.pdcp("localhost", "", f"{tmp_path}/a", f"{tmp_path}/b").communicate()
    (copied,) = entries(tmp_path)
    assert (copied["what"], copied["command"]) == ("copy to", f"{tmp_path}/a {tmp_path}/b")


def test_a_check_is_held_back_until_there_is_an_archive(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    with command_log.recording() as log:
        command_log.record(["h"], "look", "uname", "exit 0", 0.1)
        assert not archive.exists()
        log.open(archive)
        command_log.record(["h"], "deploy", "true", "exit 0", 0.1)
    assert [entry["what"] for entry in entries(archive)] == ["look", "deploy"]


def test_without_an_archive_nothing_is_written(tmp_path: Path) -> None:
    with command_log.recording():
        command_log.record(["h"], "look", "uname", "exit 0", 0.1)
    assert list(tmp_path.iterdir()) == []


def test_kept_secrets_and_what_looks_like_one_are_hidden(tmp_path: Path) -> None:
    real = subprocess.run(
        ["openssl", "rand", "-base64", "24"], capture_output=True, text=True, check=True
    ).stdout.strip()
    secret.keep(real)
    keyring = "cat > k <<'END'\n[osd.0]\n\tkey = AQBaJ2Ff8gAAABAAnotkept==\nEND"
    script = f"ceph auth add osd.0 {real}\n{keyring}"
    with command_log.recording() as log:
        log.open(tmp_path)
        command_log.record(["h"], "make keys", script, "exit 1", 0.1, f"bad key {real}")
    (entry,) = entries(tmp_path)
    assert real not in entry[0]
    assert "notkept" not in entry[0]
    assert entry["said"] == "bad key ***"
    assert r"key = ***" in entry["command"]


@pytest.mark.parametrize(
    "harmless",
    ["--key-file /dev/shm/x", "key=$key", "keyring = /var/lib/keyring", "--key-size 512"],
)
def test_words_that_are_no_secret_stay(harmless: str) -> None:
    assert secret.masked(harmless) == harmless


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=6000), st.text(max_size=900))
def test_any_command_is_one_bounded_printable_line(command: str, said: str) -> None:
    text = command_log.line(0.0, ["h"] * 40, "w", command, "exit 1", 0.0, said)
    assert "\n" not in text
    assert text.count("\t") <= 6
    assert all(character.isprintable() or character == "\t" for character in text)
    assert len(text) < 2000 + 1200


def test_a_program_for_a_host_is_told_by_its_length() -> None:
    script = "python3 - <<'PYTHON_PROGRAM'\n" + "x = 1\n" * 200 + "PYTHON_PROGRAM\necho done"
    text = command_log.line(0.0, ["h"], "w", script, "exit 0", 0.0)
    assert text.endswith(r"python3 - <<'PYTHON_PROGRAM' [200 lines]\necho done")


def test_a_link_that_somebody_put_there_is_not_written_through(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "results").mkdir()
    (tmp_path / command_log.NAME).symlink_to(victim)
    with command_log.recording() as log:
        log.open(tmp_path)
        command_log.record(["h"], "w", "a", "exit 0", 0.0)
        command_log.record(["h"], "w", "b", "exit 0", 0.0)
    assert victim.read_text() == "mine"
    assert capsys.readouterr().err.count("commands are not logged") == 1

"""Standard output that is closed or full: no traceback, and no exit status that means another."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from rich.console import Console

from cbt_crypto.command_line import SentenceCommand, SentenceGroup, unfailing_output
from cbt_crypto.hosts.command_log import CommandLog

pytestmark = pytest.mark.unit

SCHEMA = [sys.executable, "-m", "cbt_crypto", "schema"]


def test_a_full_disk_below_stdout_is_a_sentence() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(SCHEMA, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        "standard output: No space left on device; what was printed is incomplete\n"
    )


@pytest.mark.parametrize("errors", ["", " 2>&1"])
def test_a_reader_that_leaves_changes_no_exit_status(errors: str) -> None:
    script = f"{' '.join(SCHEMA)}{errors} | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("0\n", "")


def group(action: object) -> click.Group:
    """A program of one command that does this."""
    made = SentenceGroup("program")
    made.command("act")(action)  # type: ignore[arg-type]
    return made


def test_an_interrupt_is_none_of_a_gate_s_answers() -> None:
    def act() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    # A shell starts what runs in its background with this signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        result = CliRunner().invoke(group(act), ["act"])
    finally:
        signal.signal(signal.SIGINT, before)
    assert (result.exit_code, result.stderr) == (2, "interrupted\n")


def test_a_removed_current_directory_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    code = "from cbt_crypto.main import cbt; import os; os.rmdir(os.getcwd()); cbt()"
    campaign = Path(__file__).parents[3] / "configs" / "quickstart.yaml"
    done = subprocess.run(
        [sys.executable, "-c", code, "-a", tmp_path / "a", campaign], cwd=tmp_path / "here",
        capture_output=True, text=True, check=False, env={**os.environ, "CBT_HOME": ""},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (
        2, "the current directory was removed; change to another one\n"
    )  # fmt: skip


def test_a_full_temporary_directory_is_a_sentence() -> None:
    def act() -> None:
        raise OSError(28, "No space left on device", "/tmp/x")

    result = CliRunner().invoke(group(act), ["act"])
    assert (result.exit_code, result.stderr) == (2, "/tmp/x: No space left on device\n")


def test_a_campaign_keeps_its_own_status_where_nobody_reads() -> None:
    @click.command(cls=SentenceCommand)
    def act() -> None:
        Console().print("x")
        click.echo("y")
        sys.exit(3)

    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError(32, "Broken pipe")

    before, sys.stdout = sys.stdout, Closed()
    try:
        with pytest.raises(SystemExit) as ended:
            act.main([], prog_name="x")
    finally:
        sys.stdout = before
    assert ended.value.code == 3


def test_marks_that_reorder_a_terminal_s_text_are_shown_as_such() -> None:
    before, sys.stdout = sys.stdout, io.StringIO()
    try:
        with unfailing_output():
            print("no\u202eyes\x9b2Jü")
        assert sys.stdout.getvalue() == "no\ufffdyes\ufffd2Jü\n"
    finally:
        sys.stdout = before


def test_an_archive_that_cannot_be_written_is_told_by_who_must_write(tmp_path: Path) -> None:
    """The command log's own error was a traceback."""
    (tmp_path / "archive").touch()
    log = CommandLog()
    log.open(tmp_path / "archive")
    log.close()

"""The report where people read it: 80 columns, no colour, ASCII, a pipe, and GitHub."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import cmarkgfm
import psutil
import pytest
from click.testing import CliRunner
from lxml import html
from rich.console import Console

from cbt_crypto import report_commands
from cbt_crypto.command_line import speak_ascii
from cbt_crypto.errors import UsageError
from cbt_crypto.report import Report, build, show
from cbt_crypto.report.markdown import markdown
from cbt_crypto.report.model import Comparison, Conclusion

pytestmark = pytest.mark.unit

EVIL = "a|b <script>x</script> `c` *d* [e](f)"


def printed(report: Report, width: int) -> list[str]:
    output = io.StringIO()
    console = Console(file=output, width=width, force_terminal=True, color_system=None)
    show(report, console)
    assert "\x1b" not in output.getvalue(), "no colour"
    return output.getvalue().splitlines()


@pytest.mark.parametrize("width", [72, 80, 100, 116, 200])
def test_no_line_is_too_long_and_no_figure_is_cut(small: Path, width: int) -> None:
    lines = printed(build(small), width)
    assert all(len(line) <= width for line in lines)
    assert not any("…" in line for line in lines)
    row = next(line for line in lines if line.startswith("  LUKS"))
    assert "50.00" in row or "50.0" in row


def test_more_columns_where_there_is_room(small: Path) -> None:
    report = build(small)
    heads = {}
    for width in (50, 100):
        lines = printed(report, width)
        heads[width] = next(one for one in lines if "percent" in one and "IOPS" in one)
    assert "p99" not in heads[50] and "sys %" in heads[100]
    assert any("Too narrow for: " in line and "p99 ms" in line for line in printed(report, 50))


def test_many_configurations_go_down_and_not_across(small: Path) -> None:
    report = build(small)
    many = tuple(
        Conclusion("small reads", f"LUKS {number}", "High", Comparison(50.0), None)
        for number in range(8)
    )
    lines = printed(replace(report, conclusions=many), 80)
    assert all(len(line) <= 80 for line in lines)
    assert any(line.startswith("  LUKS 7 ") for line in lines)


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_a_pipe_that_knows_ascii_alone(
    small: Path, errors: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", errors=errors)
    monkeypatch.setattr(sys, "stdout", stream)
    speak_ascii()
    show(replace(build(small), title="µ ± … 日本"), Console(file=stream, width=120))
    stream.flush()
    text = raw.getvalue().decode("ascii")
    assert "u ~ . ??" in text
    assert "##########  100.00" in text


def test_github_renders_the_markdown_as_it_is(small: Path) -> None:
    """By cmark-gfm, GitHub's own renderer."""
    report = build(small)
    tree = html.fromstring(cmarkgfm.github_flavored_markdown_to_html(markdown(report)))
    tables = tree.findall(".//table")
    assert len(tables) >= 2
    for table in tables:
        widths = {len(row.findall("./*")) for row in table.iter("tr")}
        assert len(widths) == 1, "every row has all cells"
    assert not any("|" in (one.text_content()) for one in tree.iter("p")), "no table fell apart"
    assert tree.find(".//img").get("src") == "charts/forest.svg"


def test_github_shows_a_hostile_name_as_text(small: Path) -> None:
    report = build(small)
    tables = tuple(
        replace(t, sections=tuple(
            replace(s, cells=tuple(replace(c, name=EVIL) for c in s.cells)) for s in t.sections
        ))
        for t in report.tables
    )  # fmt: skip
    text = markdown(replace(report, tables=tables))
    tree = html.fromstring(cmarkgfm.github_flavored_markdown_to_html(text))
    assert any(EVIL in cell.text_content() for cell in tree.iter("td"))
    assert not list(tree.iter("script"))


def test_without_a_browser_nothing_is_printed(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(small))
    done = CliRunner().invoke(report_commands.report, ["--pdf", str(small)])
    assert isinstance(done.exception, UsageError) and "install one" in str(done.exception)


_BROWSER = """#!/bin/sh
sleep 300 &
echo $! > "$TMPDIR/child"
sleep 300
"""


def test_a_browser_that_hangs_leaves_nothing(small: Path, tmp_path: Path) -> None:
    """It stayed with its children and its profile, when the print was ended."""
    (programs := tmp_path / "bin").mkdir()
    (programs / "chromium").write_text(_BROWSER)
    (programs / "chromium").chmod(0o755)
    (scratch := tmp_path / "tmp").mkdir()
    environment = {**os.environ, "TMPDIR": str(scratch), "PATH": f"{programs}:{os.environ['PATH']}"}
    command = [sys.executable, "-m", "cbt_crypto", "report", "--pdf", str(small)]
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        while not (scratch / "child").is_file() or not (scratch / "child").read_text():
            assert process.poll() is None
            time.sleep(0.05)
        child = psutil.Process(int((scratch / "child").read_text()))
        process.terminate()
        assert process.wait(60)
    assert psutil.wait_procs([child], timeout=10)[1] == []
    assert [path.name for path in scratch.iterdir()] == ["child"]


def test_a_browser_that_starts_as_a_signal_comes_leaves_nothing(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Popen raised before anybody held what it had started, which stayed for its 300 s."""
    (tmp_path / "chromium").write_text(_BROWSER)
    (tmp_path / "chromium").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    children: list[psutil.Process] = []

    class Slow(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **keywords: Any) -> None:
            super().__init__(*arguments, **keywords)
            while not psutil.Process(self.pid).children():
                time.sleep(0.01)
            children.extend([psutil.Process(self.pid), *psutil.Process(self.pid).children()])
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", Slow)
    assert CliRunner().invoke(report_commands.report, ["--pdf", str(small)]).exit_code
    assert children and psutil.wait_procs(children, timeout=10)[1] == []


def test_those_who_read_cells_end_with_who_asked_them(repeated: Path) -> None:
    """After `timeout -k` they stayed for ever, past a SIGTERM."""
    command = [sys.executable, "-m", "cbt_crypto", "report", "--fresh", str(repeated)]
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("on one CPU cells are read by one process")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while not (workers := psutil.Process(process.pid).children()):
            assert process.poll() is None
            time.sleep(0.001)
        process.kill()
    assert psutil.wait_procs(workers, timeout=20)[1] == []

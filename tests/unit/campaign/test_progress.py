"""What a person sees while a campaign runs."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from cbt_crypto.run.progress import CampaignProgress

pytestmark = pytest.mark.unit


def test_plain_lines_where_there_is_no_terminal() -> None:
    output = io.StringIO()
    with CampaignProgress(Console(file=output, width=40), cells=2, seconds=20) as progress:
        progress.phase("deploy [bold]LUKS[/bold] [4k]")
        progress.cell("rbd_multi_client / LUKS [4k] / randread 4K iodepth 128")
        progress.done(10)
        progress.note("failed: a sentence that is longer than the console is wide: " + "x" * 60)
        progress.cell("second")
    lines = output.getvalue().splitlines()
    assert [re.sub(r"^\[ *\d+:\d\d\] ", "", line) for line in lines] == [
        "deploy [bold]LUKS[/bold] [4k]",
        "cell 1/2: rbd_multi_client / LUKS [4k] / randread 4K iodepth 128",
        "failed: a sentence that is longer than the console is wide: " + "x" * 60,
        "cell 2/2: second",
    ]
    assert all(re.match(r"\[  0:0\d\] ", line) for line in (lines[0], lines[1], lines[3]))


def test_a_bar_on_a_terminal_that_notes_stay_above() -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=100, legacy_windows=False)
    with CampaignProgress(console, cells=4, seconds=40) as progress:
        progress.cell("first")
        progress.done(10)
        progress.phase("prove [it]")
        progress.note("failed: first: no space")
    text = output.getvalue()
    assert "25 %" in text
    assert "1/4" in text
    assert "failed: first: no space" in text


def test_a_campaign_without_seconds() -> None:
    console = Console(file=io.StringIO(), force_terminal=True)
    with CampaignProgress(console, cells=0, seconds=0) as progress:
        progress.done(0)

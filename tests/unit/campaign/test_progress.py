"""What a person sees while a campaign runs."""

from __future__ import annotations

import io
import json
import re
import time
import zipfile
from pathlib import Path

import pytest
from fake_hosts import FakeHosts
from rich.console import Console

from cbt_crypto.engine.contract import LiveFigures
from cbt_crypto.hosts.site import Site
from cbt_crypto.plan.predict import Left
from cbt_crypto.run.prepare import followed
from cbt_crypto.run.progress import CampaignProgress

pytestmark = pytest.mark.unit


def test_plain_lines_where_there_is_no_terminal() -> None:
    output = io.StringIO()
    with CampaignProgress(Console(file=output, width=40), cells=2, seconds=20) as progress:
        progress.phase("deploy [bold]LUKS[/bold] [4k] :smile:")
        progress.cell("rbd_multi_client / LUKS [4k] / randread 4K iodepth 128")
        progress.done(10)
        progress.note(
            "failed :ok:: a sentence that is longer than the console is wide: " + "x" * 60
        )
        progress.cell("second")
    lines = output.getvalue().splitlines()
    assert [re.sub(r"^\[ *\d+:\d\d\] ", "", line) for line in lines] == [
        "deploy [bold]LUKS[/bold] [4k] :smile:",
        "cell 1/2: rbd_multi_client / LUKS [4k] / randread 4K iodepth 128",
        "failed :ok:: a sentence that is longer than the console is wide: " + "x" * 60,
        "cell 2/2: second",
    ]
    assert all(re.match(r"\[  0:0\d\] ", line) for line in (lines[0], lines[1], lines[3]))


def test_how_fast_volumes_are_filled_is_told_once_without_a_bar() -> None:
    output = io.StringIO()
    with CampaignProgress(Console(file=output), cells=1, seconds=20) as progress:
        progress.filling(412.4, 3.2)
        progress.filling(398.0, 6.0)
    assert output.getvalue() == "filled at 412 MiB/s, 3 %\n"


def test_a_cluster_is_asked_how_much_it_has_stored_while_it_is_filled() -> None:
    """`stored` of `ceph df` counts each byte once, whatever the replicas."""
    told: list[tuple[float, float]] = []
    stored = iter(range(0, 1 << 40, 64 << 20))

    def say(host: str, command: str) -> str:
        assert host == "head" and "ceph -c /c df --format json" in command
        return json.dumps({"pools": [{"stats": {"stored": next(stored), "bytes_used": 1}}]})

    remote, site = FakeHosts(say).remote(), Site("/t", "/c", "head", (), ())
    with followed(remote, site, 640, lambda rate, percent: told.append((rate, percent)), 0.05):
        time.sleep(1.0)
    assert len(told) > 1
    rate, percent = told[0]
    assert 100 < rate < 64 / 0.05 and percent == 10
    with followed(remote, None, 640, lambda rate, percent: None):
        pass


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


def test_time_left_stands_on_the_terminal_from_the_first_second() -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=100, legacy_windows=False)
    with CampaignProgress(console, 4, 40, _Known()) as progress:
        progress.phase("deploy LUKS")
    assert "1:30 left ±5 s" in output.getvalue()
    assert "-:--:--" not in output.getvalue()


def test_the_archive_tells_onlookers_where_it_stands(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    path = tmp_path / "results/progress.json"
    with CampaignProgress(Console(file=io.StringIO()), 4, 40, _Known(), tmp_path) as progress:
        progress.cell("first")
        told = json.loads(path.read_text())
        assert (told["phase"], told["cell"], told["cells"]) == ("cell 1/4: first", 1, 4)
        assert (told["seconds_left"], told["uncertainty_s"]) == (90, 5)
        assert not told["ended"]
    assert json.loads(path.read_text())["ended"]


def test_what_the_clients_do_stands_below_the_bar_and_in_the_archive(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=80, legacy_windows=False)
    with CampaignProgress(console, 4, 40, _Known(), tmp_path) as progress:
        progress.cell("first")
        progress.live(LiveFigures(12345.4, 0.002071))
        told = json.loads((tmp_path / "results/progress.json").read_text())
        assert (told["phase"], told["iops"], told["latency_s"]) == (
            "cell 1/4: first",
            12345.4,
            0.002071,
        )
        progress.phase("deploy")
        assert "iops" not in json.loads((tmp_path / "results/progress.json").read_text())
    assert "now 12,345 IOPS, mean 2.07 ms" in output.getvalue()


def test_percents_so_far_stand_there_when_a_cell_is_measured(small: Path) -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=80, legacy_windows=False)
    with CampaignProgress(console, 4, 40, _Known(), small) as progress:
        progress.cell("first")
        assert "so far" not in output.getvalue(), "nothing is measured"
        progress.done(10)
        progress.cell("second")
        progress.phase("prove")
    assert "throughput in percent of Unencrypted, so far" in output.getvalue()
    assert "50.00" in output.getvalue()


@pytest.fixture
def small(tmp_path: Path) -> Path:
    packed = Path(__file__).parent.parent / "data/packs/archive-format-1.zip"
    with zipfile.ZipFile(packed) as file:
        file.extractall(tmp_path / "small")
    return tmp_path / "small"


class _Known:
    """A forecast that does not change."""

    def learn(self) -> None:
        """Nothing."""

    def left(self) -> Left:
        return Left(90, 5)

    def cell_done(self) -> None:
        """Nothing."""


def test_what_takes_long_is_told_again_without_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two lines of a log were minutes, and nothing said whether it went on."""
    monkeypatch.setattr("cbt_crypto.run.progress.SILENT_S", 0.01)
    output = io.StringIO()
    with CampaignProgress(Console(file=output), cells=1, seconds=20) as progress:
        progress.phase("deploy LUKS")
        ends = time.monotonic() + 60
        while "still: deploy LUKS" not in output.getvalue() and time.monotonic() < ends:
            time.sleep(0.01)
    assert re.search(r"\] deploy LUKS\n\[  0:\d\d\] still: deploy LUKS\n", output.getvalue())

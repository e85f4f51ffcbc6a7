"""What a cell's clients do at this moment: what fio itself prints, read while it runs."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from cbt_crypto.benchmarks import base
from cbt_crypto.engine.contract import LiveFigures
from cbt_crypto.engine.embedded import common
from cbt_crypto.errors import HostError
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.run.cell import watch

pytestmark = pytest.mark.unit

_READS = "Jobs: 1 (f=1): [r(1)][50.0%][r=4000KiB/s][r=1000 IOPS][eta 00m:03s]"
_MIXED = "Jobs: 1 (f=1): [m(1)][9.0%][r=40MiB/s,w=2000KiB/s][r=12.3k,w=500 IOPS][eta 00m:03s]"


def test_the_last_line_of_every_process_counts() -> None:
    printed = {
        "c0": f"@live\nJobs: 1 (f=0)\n{_MIXED}\n{_READS}\n@live\n{_MIXED}\n",
        "c1": f"@live\n{_READS}",
    }
    figures = watch.parse_live(printed, 3, in_flight=64)
    assert figures.iops == 1000 + 12_800 + 1000
    assert figures.latency_s == pytest.approx(64 / 14_800)
    assert str(figures) == "14,800 IOPS, mean 4.32 ms"
    assert str(watch.parse_live(printed, 3, None)) == "14,800 IOPS"
    assert str(LiveFigures(3.0, 42.667)) == "3 IOPS, mean 42,667 ms"


@pytest.mark.parametrize("text", ["", "@live\n", "@live\nJobs: 1 (f=0)\n", f"@live\n{_READS}"])
def test_while_one_says_nothing_there_is_no_figure(text: str) -> None:
    with pytest.raises(ValueError, match="not all"):
        watch.parse_live({"c0": f"@live\n{_READS}", "c1": text}, 3, None)


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not here")
def test_what_fio_says_of_a_rate_that_it_is_held_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the same commands as on a host, while fio runs; its files are whole afterwards."""
    monkeypatch.setattr(watch, "FIRST_S", 1.5)
    monkeypatch.setattr(watch, "LIVE_EVERY_S", 0.5)
    job = {
        "ioengine": "null", "rw": "randread", "bs": "4096B", "size": "1g", "time_based": None,
        "runtime": 6, "rate_iops": 2000, **base.results(0, 1000), "name": "x",
    }  # fmt: skip
    told: list[LiveFigures] = []
    remote = Remote(common, str(tmp_path / "tmp"))
    onlooker = watch.Onlooker(told.append, ["localhost"], 1, in_flight=4)
    with watch.followed(remote, str(tmp_path), onlooker):
        text = base.run(0, base.command("fio", job))
        subprocess.run(["sh", "-c", text], cwd=tmp_path, check=True)
    assert told, "fio ran for six seconds"
    assert told[-1].iops == pytest.approx(2000, rel=0.25)
    assert told[-1].latency_s == pytest.approx(4 / told[-1].iops)
    assert (tmp_path / "exit_status.0").read_text() == "0\n"
    assert (tmp_path / "output.0").read_text() == ""
    assert (tmp_path / "json_output.0").read_text().lstrip().startswith("{")
    assert not list(tmp_path.glob("live.*")) and not list(tmp_path.glob("errors.*"))


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not here")
def test_nobody_else_has_fio_print_figures_as_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody who made /tmp/fio-dump-status had what was measured until then be the result."""
    shared, own = tmp_path / "shared", tmp_path / "own"
    shared.mkdir()
    own.mkdir()
    (shared / "fio-dump-status").touch()
    monkeypatch.setenv("TMPDIR", str(shared))
    job = {"ioengine": "null", "rw": "read", "size": "1g", "time_based": None, "runtime": 2}
    text = base.run(0, base.command("fio", {**job, **base.results(0, 1000), "name": "x"}))
    subprocess.run(["sh", "-c", text], cwd=own, check=True)
    assert (own / "json_output.0").read_text().count("fio version") == 1
    assert (shared / "fio-dump-status").exists()


def test_what_goes_wrong_with_it_is_nobody_s_concern(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "FIRST_S", 0.01)
    monkeypatch.setattr(watch, "LIVE_EVERY_S", 0.01)
    looks = 0

    class Broken:
        def run(self, *_: Any) -> dict[str, str]:
            nonlocal looks
            looks += 1
            raise HostError("c0", "look", "no answer", "")

    remote: Any = Broken()
    with watch.followed(remote, "/nowhere", watch.Onlooker(pytest.fail, ["c0"], 1, None)):
        ends = time.monotonic() + 20
        while looks < 2 and time.monotonic() < ends:
            time.sleep(0.01)
    assert looks >= 2

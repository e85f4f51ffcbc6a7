"""Recordings in the docs: asciinema's format, and thinned without a difference on the screen."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.unit

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def record() -> ModuleType:
    spec = importlib.util.spec_from_file_location("record", DOCS / "record.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def frame(seconds: float, lines: int, text: str, written: int | None = None) -> list[Any]:
    erase = "\r\x1b[2K" + "\x1b[1A\x1b[2K" * lines
    return [seconds, "o", erase + f"{text}\r\n" * (lines if written is None else written)]


def test_redraws_of_as_many_lines_are_left_out(record: ModuleType) -> None:
    events = [[0.0, "o", "$ "], *(frame(n, 2, str(n)) for n in range(1, 8)), [9.0, "o", "end"]]
    kept = record.thinned(events)
    assert [event[0] for event in kept] == [0.0, 2, 4, 6, 7, 9.0]


def test_what_is_no_whole_redraw_is_kept(record: ModuleType) -> None:
    grown = [frame(1, 2, "a"), frame(2, 2, "b", written=3), frame(3, 3, "c"), [4, "o", "text"]]
    assert record.thinned([[0.0, "o", "$ "], *grown]) == [[0.0, "o", "$ "], *grown]


def test_a_command_is_recorded_to_its_end(
    record: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "KEY_S", 0.0)
    cast = tmp_path / "x.cast"
    monkeypatch.setattr("sys.argv", ["record.py", str(cast), "tput cols; echo héllo", "exit 3"])
    assert record.main() == 3
    header, *events = map(json.loads, cast.read_text(encoding="utf-8").splitlines())
    assert (header["version"], header["width"], header["height"]) == (2, 100, 32)
    shown = "".join(text for _, kind, text in events if kind == "o")
    assert "100\r\nhéllo\r\n" in shown


def test_the_recording_of_the_docs_is_one(record: ModuleType) -> None:
    header, *events = map(json.loads, (DOCS / "first-hour.cast").read_text().splitlines())
    assert header["version"] == 2
    times = [seconds for seconds, kind, text in events]
    assert times == sorted(times) and {kind for _, kind, _ in events} == {"o"}
    shown = "".join(text for _, _, text in events)
    for said in ("campaign.yaml: good", "so far", "Report: "):
        assert said in shown

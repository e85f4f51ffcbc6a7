"""The steps that an archive notes, each added behind those that are there."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from cbt_crypto.archive.folder import Timeline, steps_of, usual_seconds
from cbt_crypto.plan.predict import Durations
from cbt_crypto.plan.steps import Prefill, plan

pytestmark = pytest.mark.unit


def note(archive: Path, *kinds: str) -> Path:
    timeline = Timeline(archive)
    for kind in kinds:
        with timeline.step(kind, mib=1):
            pass
    return archive / "results" / "timeline.json"


def noted(archive: Path) -> list[str]:
    return [step["step"] for step in steps_of(archive)]


def test_a_step_is_added_in_place_and_the_document_stays_whole(tmp_path: Path) -> None:
    path = note(tmp_path, "deploy")
    first, number = path.read_text(), path.stat().st_ino
    note(tmp_path, "prefill", "measure")
    assert (noted(tmp_path), path.stat().st_ino) == (["deploy", "prefill", "measure"], number)
    text = path.read_text()
    assert text.startswith(first.removesuffix("\n ]\n}\n"))
    assert text == json.dumps(json.loads(text), indent=1) + "\n"


@pytest.mark.parametrize("content", ["", "{", '{"steps": []}', '{"format": 1, "steps": [{"ste'])
def test_what_ends_otherwise_is_written_anew(tmp_path: Path, content: str) -> None:
    path = tmp_path / "results" / "timeline.json"
    path.parent.mkdir()
    path.write_text(content)
    note(tmp_path, "deploy", "measure")
    assert noted(tmp_path) == ["deploy", "measure"]


def test_steps_of_a_file_in_another_form_are_kept(tmp_path: Path) -> None:
    path = note(tmp_path, "deploy")
    path.write_text(json.dumps(json.loads(path.read_text())))
    note(tmp_path, "measure")
    assert noted(tmp_path) == ["deploy", "measure"]


@pytest.mark.parametrize("seconds", [None, "", [], 1e9])
def test_a_time_that_is_no_number_of_seconds_predicts_nothing(
    tmp_path: Path, seconds: object
) -> None:
    path = note(tmp_path, "deploy")
    steps = [{"step": "deploy", "seconds": seconds}, {"step": "deploy", "seconds": 3}, {}, 4]
    path.write_text(json.dumps({"format": 1, "steps": steps}))
    assert usual_seconds(steps_of(tmp_path), "deploy") == 3


@pytest.mark.parametrize("mib", [1e-195, 5e-324])
def test_a_fill_that_took_an_age_for_nothing(campaign_of: Any, mib: float) -> None:
    """`plan --like` of somebody's archive ended in a traceback: the square was no number."""
    steps = [{"step": "prefill", "mib": mib, "seconds": 1e8}]
    benchmarks = {"rbd_single_client": {"vol_size": 1024, "time": 1}}
    planned = plan(campaign_of(benchmarks=benchmarks)).steps
    assert any(isinstance(step, Prefill) for step in planned)
    assert math.isfinite(Durations(steps).uncertainty(planned))


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_file_elsewhere_is_not_written_to(tmp_path: Path, link: object) -> None:
    theirs = note(tmp_path / "theirs", "deploy")
    before = theirs.read_text()
    path = tmp_path / "ours" / "results" / "timeline.json"
    path.parent.mkdir(parents=True)
    assert callable(link)
    link(theirs, path)
    note(tmp_path / "ours", "measure")
    assert theirs.read_text() == before
    assert "measure" in noted(tmp_path / "ours")

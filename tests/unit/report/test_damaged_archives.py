"""Every damaged file is a warning or a failed cell that names it; never a traceback."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from cbt_crypto.archive.folder import Folder, open_archive
from cbt_crypto.errors import UsageError
from cbt_crypto.report import build, show
from cbt_crypto.report.document import document, tidy
from cbt_crypto.report.model import Report, ReportCell
from cbt_crypto.report.page import page
from cbt_crypto.results.cell.run import read_run

pytestmark = pytest.mark.unit

#: The baseline's random reads.
CELL = "results/00000000/id-00000000"
JSON = "json_output.0.client1"


def _cell(report: Report, name: str = "Unencrypted", mode: str = "randread") -> ReportCell:
    found = [c for t in report.tables for s in t.sections if s.mode == mode for c in s.cells]
    return next(cell for cell in found if cell.name == name)


def _printed(report: Report) -> str:
    text = io.StringIO()
    show(report, Console(file=text, width=100))
    return text.getvalue()


def _cut_in_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _collectl(archive: Path) -> Path:
    return next((archive / CELL / "collectl.osd0").glob("*.raw.gz"))


def test_the_archive_as_it_is_has_no_warning(small):
    report = build(small)
    assert [cell.state for cell in report.cells] == ["measured"] * 4
    assert [cell.warnings for cell in report.cells] == [()] * 4
    luks = _cell(report, "LUKS")
    assert luks.comparisons["iops"].percent == pytest.approx(50)
    assert luks.figures["osd_cpu_sys_percent"] == pytest.approx(20, abs=0.1)
    assert luks.comparisons["osd_cpu_us_per_io"].percent == pytest.approx(
        100 * 40 / 30 * 2, rel=0.01
    )


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (_cut_in_half, f"{JSON} is cut off or damaged"),
        (_empty, f"{JSON} is empty"),
        (Path.unlink, f"{JSON} is missing"),
        (lambda path: path.write_text("fio: failed\n"), f"{JSON} holds no JSON"),
        (lambda path: path.write_text("[" * 10**6), f"{JSON} holds no JSON"),
        (
            lambda path: path.write_text(path.read_text().replace('"error": 0', '"error": 5')),
            f"{JSON} says that job rbd-randread ended with error 5",
        ),
        (
            lambda path: path.write_text(
                re.sub(r'"(total_ios|N)": 12000', r'"\1": 0', path.read_text())
            ),
            f"{JSON} says that no IO was done",
        ),
    ],
)
def test_a_client_without_figures_fails_its_cell(small, damage, reason):
    damage(small / CELL / JSON)
    report = build(small)
    cell = _cell(report)
    assert cell.state == "failed"
    assert cell.reason is not None and cell.reason.startswith(reason)
    assert cell.figures == {}
    assert _cell(report, "LUKS").comparisons == {}
    assert "failed" in _printed(report)
    assert "failed" in tidy(report)


def test_text_before_the_json_is_a_warning_beside_the_figures(small):
    path = small / CELL / JSON
    path.write_text("fio: pid=7, err=28/file:x.c: No space left\n" + path.read_text())
    cell = _cell(build(small))
    assert cell.figures["iops"] == pytest.approx(2000)
    assert cell.warnings == (
        f"{JSON} has text before its JSON: fio: pid=7, err=28/file:x.c: No space left",
    )


def test_what_fio_announces_of_its_servers_is_no_warning(small):
    path = small / CELL / JSON
    announced = "<osd0> j: (g=0): rw=randread, bs=4096B\n<osd0> Starting 1 process\n<osd0> \n\n"
    path.write_text(announced + path.read_text())
    assert _cell(build(small)).warnings == ()
    path.write_text("<osd0> fio: file:x.c: No space left\n" + path.read_text())
    assert "No space left" in _cell(build(small)).warnings[0]


def test_a_torn_line_of_a_log_is_a_warning_and_changes_no_figure(small):
    before = _cell(build(small)).figures
    path = small / CELL / "output.0_iops.1.log.client0"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:5], lines[5][:15], *lines[6:]]))
    cell = _cell(build(small))
    assert cell.warnings == ("output.0_iops.1.log.client0 has a torn line, left out",)
    # How much seconds differ is not known where one of them lacks its line.
    assert before.pop("iops_variation_percent") is not None
    assert cell.figures == before


@pytest.mark.parametrize("damage", [_cut_in_half, _empty, Path.unlink])
def test_an_iops_log_that_does_not_tell_all_is_not_used(small, damage):
    before = _cell(build(small)).figures
    damage(small / CELL / "output.0_iops.1.log.client0")
    report = build(small)
    cell = _cell(report)
    assert cell.figures["iops"] == before["iops"]
    assert not cell.runs[0].series
    assert _cell(report, "LUKS").comparisons["iops"].basis is None
    if damage is not Path.unlink:
        assert "output.0_iops" in cell.warnings[0]


@pytest.mark.parametrize("damage", [_cut_in_half, _empty])
def test_a_damaged_histogram_log_leaves_the_percentiles_of_the_output(small, damage):
    before = _cell(build(small)).figures
    damage(small / CELL / "output.0_clat_hist.1.log.client0")
    cell = _cell(build(small))
    assert cell.figures == before
    assert any("output.0_clat_hist.1.log.client0" in warning for warning in cell.warnings)


@pytest.mark.parametrize("damage", [_cut_in_half, _empty, Path.unlink])
def test_samples_that_do_not_cover_the_window_give_no_cpu(small, damage):
    damage(_collectl(small))
    report = build(small)
    cell = _cell(report)
    assert not [key for key in cell.figures if key.startswith("osd_cpu")]
    assert cell.figures["iops"] == pytest.approx(2000)
    assert any("collectl" in warning for warning in cell.warnings)
    assert "-" in _printed(report)


def test_nothing_unproved_is_published(small):
    (small / CELL / "proof.json").unlink()
    cell = _cell(build(small))
    assert (cell.state, cell.figures) == ("failed", {})
    assert cell.reason == "proof.json is missing, and nothing unproved is published"


def test_a_proof_that_failed_fails_its_cell(small):
    path = small / CELL / "proof.json"
    proof = json.loads(path.read_text())
    overlay = {"overlay": "luks", "proved": False, "reason": "osd.0 is on /dev/sdb"}
    path.write_text(json.dumps({**proof, "proved": False, "overlays": [overlay]}))
    cell = _cell(build(small))
    assert (cell.state, cell.figures) == ("failed", {})
    assert cell.reason == "the configuration is not proved: luks: osd.0 is on /dev/sdb"


def _change_cell(small: Path, **changes: object) -> None:
    path = small / CELL / "cell.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_cell_that_the_campaign_gave_up_says_why(small):
    _change_cell(small, state="failed", reason="client0: fio was killed")
    cell = _cell(build(small))
    assert (cell.state, cell.reason) == ("failed", "client0: fio was killed")


@pytest.mark.parametrize("status", [1, None])
def test_a_process_that_did_not_succeed_fails_its_cell(small, status):
    processes = json.loads((small / CELL / "cell.json").read_text())["processes"]
    processes[1]["exit_status"] = status
    _change_cell(small, processes=processes)
    cell = _cell(build(small))
    assert cell.state == "failed"
    assert cell.reason is not None and cell.reason.startswith(
        "client1: the fio process of volume 0"
    )


def _two_cells_exchanged(small: Path) -> None:
    path = small / "results" / "plan.json"
    plan = json.loads(path.read_text())
    first, third = plan["cells"][0], plan["cells"][2]
    assert [first["configuration"], third["configuration"]] == ["Unencrypted", "LUKS"]
    first["path"], third["path"] = third["path"], first["path"]
    path.write_text(json.dumps(plan))


def _another_s_proof(small: Path) -> None:
    path = small / CELL / "proof.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "configuration": "LUKS"}))


def _a_proof_that_says_both(small: Path) -> None:
    path = small / CELL / "proof.json"
    overlays = [{"overlay": "luks", "proved": False, "reason": "no OSD is on dm-crypt"}]
    path.write_text(json.dumps({**json.loads(path.read_text()), "overlays": overlays}))


def _one_output_for_two(small: Path) -> None:
    processes = json.loads((small / CELL / "cell.json").read_text())["processes"]
    _change_cell(small, processes=[*processes, {**processes[0], "volume": "1"}])


def _ten_times_the_iops(small: Path) -> None:
    path = small / CELL / JSON
    text = path.read_text()
    path.write_text(text.replace('"iops": 1000.0', '"iops": 10000.0'))
    assert path.read_text() != text


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (_two_cells_exchanged, "cell.json says configuration LUKS and plan.json Unencrypted"),
        (lambda small: _change_cell(small, iteration=1), "cell.json says iteration 1 and plan"),
        (lambda small: _change_cell(small, id="id-00000007"), "cell.json says id id-00000007"),
        (_another_s_proof, "proof.json is of LUKS, not Unencrypted"),
        (_a_proof_that_says_both, "proof.json says proved, and of an overlay that it is not"),
        (_one_output_for_two, "cell.json names the same output for two processes"),
        (_ten_times_the_iops, f"{JSON} says 10000 IOPS, and 12000 IOs in 12000 ms"),
    ],
)
def test_a_cell_that_contradicts_itself_has_no_figures(small, damage, reason):
    """Each had a verdict and no warning; LUKS was the baseline, or had many times its IOPS."""
    damage(small)
    report = build(small)
    cell = _cell(report)
    assert (cell.state, cell.figures) == ("failed", {})
    assert cell.reason is not None and cell.reason.startswith(reason)
    if reason.startswith("proof.json"):
        assert "3 of 4 cells proved" in report.headline[-1]


def test_a_cell_whose_name_was_of_8_digits_is_the_same_cell(small):
    """A run that goes on renames it, and leaves cell.json as it was."""
    plan = small / "results" / "plan.json"
    plan.write_text(plan.read_text().replace('"id": "id-00000000"', '"id": "id-0000000012345678"'))
    assert _cell(build(small)).state == "measured"


def test_a_cell_that_was_not_run_is_missing(small):
    shutil.rmtree(small / CELL)
    cell = _cell(build(small))
    assert (cell.state, cell.reason) == ("missing", "it has not been run")


@pytest.mark.parametrize("name", ["cell.json", "proof.json"])
@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": "one"}', '{"format": 99}'])
def test_a_damaged_document_fails_its_cell_and_is_named(small, name, text):
    (small / CELL / name).write_text(text)
    cell = _cell(build(small))
    assert cell.state == "failed"
    assert cell.reason is not None and cell.reason.startswith(name)


def test_a_process_may_not_name_a_file_outside_of_the_archive(small):
    (small.parent / "secret").write_text("{}")
    processes = json.loads((small / CELL / "cell.json").read_text())["processes"]
    processes[0]["json"] = "../../../../secret"
    _change_cell(small, processes=processes)
    cell = _cell(build(small))
    assert cell.state == "failed"
    assert cell.reason is not None and "outside of the archive" in cell.reason


def test_a_host_whose_name_leads_out_of_the_archive_has_no_samples(small):
    _change_cell(small, osd_hosts=["../../etc"])
    cell = _cell(build(small))
    assert cell.state == "measured"
    assert "names 'perf.../../etc', which is outside of the archive" in cell.warnings


def test_a_link_out_of_the_archive_is_not_followed(small):
    path = small / CELL / JSON
    outside = small.parent / "outside.json"
    path.rename(outside)
    path.symlink_to(outside)
    cell = _cell(build(small))
    assert cell.reason == f"{JSON} is a link out of the archive, so it was not read"


def test_a_plan_may_not_lead_out_of_the_archive(small):
    path = small / "results/plan.json"
    plan = json.loads(path.read_text())
    plan["cells"][0]["path"] = "../elsewhere"
    path.write_text(json.dumps(plan))
    assert _cell(build(small)).state == "failed"


@pytest.mark.parametrize("text", ["", "{", '{"format": 2, "cells": []}', '{"format": 1}'])
def test_an_archive_without_a_plan_that_can_be_read_is_refused(small, text):
    (small / "results/plan.json").write_text(text)
    with pytest.raises(UsageError, match=r"plan\.json"):
        build(small)


@pytest.mark.parametrize("dimension", ["scenario", "mode"])
def test_a_baseline_that_no_campaign_can_have(small, dimension):
    """A plan whose baseline was a scenario ended `report` with a KeyError."""
    path = small / "results" / "plan.json"
    plan = json.loads(path.read_text())
    plan["baseline"] = {"dimension": dimension, "value": "rbd_multi_client"}
    path.write_text(json.dumps(plan))
    with pytest.raises(UsageError, match=f"the values of {dimension} are different workloads"):
        build(small)


def test_what_is_no_archive_is_refused(tmp_path):
    with pytest.raises(UsageError, match="there is no such directory"):
        build(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="not the archive of a campaign"):
        build(tmp_path)
    (tmp_path / "results").mkdir()
    with pytest.raises(UsageError, match="cbt-crypto compare"):
        build(tmp_path)


def test_a_damaged_environment_is_a_note(small):
    (small / "results/environment.json").write_text("{")
    report = build(small)
    assert report.notes[0].startswith("results/environment.json")
    assert "results/environment.json" in _printed(report)


def test_clients_that_never_ran_together_fail_their_cell(small):
    path = small / CELL / "output.0_iops.1.log.client0"
    lines = [line.split(",", 1) for line in path.read_text().splitlines()]
    path.write_text("".join(f"{int(time) + 60_000},{rest}\n" for time, rest in lines))
    cell = _cell(build(small))
    assert cell.reason == "the client processes never ran at the same time"


FILES = st.sampled_from(
    ["cell.json", "proof.json", JSON, "output.0_iops.1.log.client0", "output.0_clat.1.log.client1",
     "output.0_clat_hist.1.log.client0", "collectl.osd0"]
)  # fmt: skip


def _outputs(report: Report) -> None:
    """Everything that a report can be made into."""
    _printed(report)
    tidy(report)
    json.dumps(document(report), allow_nan=False)
    page(report)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(FILES, st.floats(0, 1), st.binary(max_size=12))
def test_any_damage_is_survived_and_any_cut_is_marked(small, name, share, instead):
    path = _collectl(small) if name == "collectl.osd0" else small / CELL / name
    whole = path.read_bytes()
    planned = open_archive(small).plan.cells[0]
    try:
        at = int(len(whole) * share)
        path.write_bytes(whole[:at])
        cut = read_run(Folder(small), planned)
        assert cut.failure or cut.problems or sum(r.iops for r in cut.records) == 2000
        path.write_bytes(whole[:at] + instead + whole[at + len(instead) :])
        read_run(Folder(small), planned)
    finally:
        path.write_bytes(whole)


#: Names that are not one line are refused.
NAMES = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=30)


@given(NAMES, st.text(max_size=30))
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_name_and_reason_can_be_shown(small, name, reason):
    path = small / "results/plan.json"
    before = path.read_text()
    plan = json.loads(before)
    plan["title"] = name
    plan["configurations"] = {"Unencrypted": {}, name: {"luks": {"note": reason}}}
    for cell in plan["cells"]:
        if cell["configuration"] == "LUKS":
            cell["configuration"] = name
    cell_before = (small / CELL / "cell.json").read_text()
    _change_cell(small, state="failed", reason=reason)
    try:
        path.write_text(json.dumps(plan))
        report = build(small)
        _outputs(report)
        assert "\x1b" not in _printed(report)
    finally:
        path.write_text(before)
        (small / CELL / "cell.json").write_text(cell_before)


def test_a_pipe_in_the_archive_is_not_waited_for(small):
    path = small / CELL / JSON
    path.unlink()
    os.mkfifo(path)
    assert _cell(build(small)).reason == f"{JSON} is not a regular file"

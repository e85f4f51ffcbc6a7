"""Archives beside one another: two labs, and the same campaign on many dates."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from cbt_crypto.cli import cbt_crypto
from cbt_crypto.errors import UsageError
from cbt_crypto.report import ReportOptions, build, show
from cbt_crypto.report.across import caveats_of, history, ratio, side_by_side
from cbt_crypto.report.comparison import compare
from cbt_crypto.report.markdown import markdown
from cbt_crypto.report.model import Report
from cbt_crypto.report.page import page
from cbt_crypto.report.terminal import show_grid

pytestmark = pytest.mark.unit


def _archive(
    synthetic: Any,
    root: Path,
    luks: float,
    seed: int,
    cpu: str = "A",
    started: float = 1.7e9,
    iops: float = 1000.0,
    *,
    control: float = 1.0,
    rounds: int = 4,
) -> Path:
    share = {"LUKS": luks, "control": control}
    campaign = synthetic.SyntheticCampaign(
        scenarios=[synthetic.SyntheticScenario("rbd", 1, 1, (4096,), ("randread", "randwrite"))],
        configurations=["Plain", "LUKS", "control"], rounds=True, iterations=rounds, seconds=12,
        load=lambda cell: synthetic.Load(
            iops * share.get(cell.configuration, 1.0)
            * (1 + 0.01 * ((cell.iteration * 7 + seed + len(cell.configuration)) % 3)), 2.0
        ),
    )  # fmt: skip
    synthetic.write_archive(campaign, root)
    place = root / "results/environment.json"
    environment = json.loads(place.read_text())
    environment["started"] = started
    for about in environment["hosts"].values():
        about |= {
            "cpu_model": cpu,
            "kernel": "6.1",
            "versions": {"ceph": "ceph version 18.2.7 (x)"},
        }
    place.write_text(json.dumps(environment))
    return root


def _printed(report: Report) -> str:
    output = io.StringIO()
    show(report, Console(file=output, width=100))
    return output.getvalue()


def test_labs_stand_side_by_side(synthetic: Any, tmp_path: Path) -> None:
    here = _archive(synthetic, tmp_path / "a", 0.8, 1)
    there = _archive(synthetic, tmp_path / "b", 0.6, 2, cpu="B")
    report = compare({"here": here, "there": there}, ReportOptions())
    # A workload of two archives was called two workloads.
    assert "of 4 workloads" not in " ".join(report.headline)
    assert " of 4 rows, " in report.headline[0]
    percents, hardware = side_by_side(report)
    assert percents.headings[:3] == ["", "here", "there"]
    lost = side_by_side(replace(report, options=ReportOptions(loss=True)))[0]
    assert lost.title.startswith("Side by side: percent lost")
    assert lost.headings[3] == "left in there, in percent of here", "it is no ratio of losses"
    label, rows = percents.sections[0]
    assert label == "4 KiB random reads"
    by_name = {row[0]: row for row in rows}
    assert by_name["LUKS"][1].startswith("80.") or by_name["LUKS"][1].startswith("79.")
    assert "*" in by_name["LUKS"][3] and "*" not in by_name["control"][3]
    assert "IOPS" in by_name["Plain"][1]
    ((_, unlike),) = hardware.sections
    assert [row[1:] for row in unlike] == [["A", "B"], ["A", "B"]]
    assert "kernel" in hardware.notes[0]
    said = " ".join(report.headline)
    assert "48 of 48 cells proved; 1 OSD host in each archive" in said, (
        "cells of both are at the same paths"
    )
    assert "there against here: 2 of 2 percentages of the baseline differ by more than" in said
    assert "The largest difference: LUKS, 4 KiB random " in said
    assert "Their hosts differ in" in said and "cpu model" in said
    for text in (_printed(report), markdown(report), page(report)):
        assert "Side by side" in text and "Hosts differ in" in text


def test_labs_that_agree_are_said_to(synthetic: Any, tmp_path: Path) -> None:
    paths = {n: _archive(synthetic, tmp_path / n, 0.8, k) for k, n in enumerate(("a", "b"))}
    report = compare(paths, ReportOptions())
    said = " ".join(report.headline)
    unseen = "differences below about 3 % of a's percentage could not be seen"
    none = "none of 2 percentages of the baseline is shown to differ"
    assert f"b against a: {none}; {unseen}." in said
    assert "Their hosts differ" not in said
    printed = _printed(report)
    assert "Hardware and versions are alike\n  Alike:" in printed
    below = markdown(report).partition("## Hardware and versions are alike\n\n")[2]
    assert below.startswith("Alike: "), "a table without rows"


def test_an_archive_keeps_its_verdicts_and_its_control_beside_a_noisy_one(
    synthetic: Any, tmp_path: Path
) -> None:
    """One noisy archive took the verdicts of the other, whose control nobody could tell."""
    quiet = _archive(synthetic, tmp_path / "a", 0.8, 1)
    campaign = synthetic.SyntheticCampaign(
        scenarios=[synthetic.SyntheticScenario("rbd", 1, 1, (4096,), ("randread", "randwrite"))],
        configurations=["Plain", "LUKS", "control"], rounds=True, iterations=4, seconds=12,
        load=lambda cell: synthetic.Load(
            300.0 * (1 + (cell.iteration * 7 + 2 * len(cell.configuration)) % 5), 2.0
        ),
    )  # fmt: skip
    noisy = synthetic.write_archive(campaign, tmp_path / "b")
    for only in ((), ("LUKS",)):
        report = compare({"quiet": quiet, "noisy": noisy}, ReportOptions(only=only))
        alone = {
            cell.dimensions["mode"]: cell for cell in build(quiet).cells if cell.name == "LUKS"
        }
        own = [
            cell
            for cell in report.cells
            if cell.name == "LUKS" and cell.dimensions["hardware"] == "quiet"
        ]
        assert own and all(cell.comparisons["iops"].differs for cell in own)
        for cell in own:
            of_its_own = alone[cell.dimensions["mode"]].comparisons["iops"]
            assert cell.comparisons["iops"] == of_its_own
        said = " ".join(report.headline)
        assert "Control of quiet: agrees within 3 %." in said
        assert "Control of noisy: too noisy: losses of up to " in said
        assert "At most 6 % of archives have a false *" in markdown(report)


def test_a_baseline_that_fell_is_said_and_so_are_slower_ciphers(
    synthetic: Any, tmp_path: Path
) -> None:
    """A baseline at a third of its IOPS was a bare 36.62 in a table."""
    paths = [
        _archive(synthetic, tmp_path / name, 0.8, 1, iops=iops)
        for name, iops in (("a", 900.0), ("b", 300.0))
    ]
    for path, speed in zip(paths, (900.0, 400.0)):
        place = path / "results/environment.json"
        environment = json.loads(place.read_text())
        row = {"cipher": "aes-xts", "key_bits": 512, "encrypt_mib_per_s": speed}
        for about in environment["hosts"].values():
            about["overlays"] = {"luks": {"benchmark": [row]}}
        place.write_text(json.dumps(environment))
    report = compare(dict(zip("ab", paths)), ReportOptions())
    said = " ".join(report.headline)
    assert "Plain itself, a to b: " in said and "; such changes are not judged." in said
    assert "Their hosts differ in measured speed of aes-xts 512 (MiB/s)." in said
    hardware = side_by_side(report)[1]
    assert ["measured speed of aes-xts 512 (MiB/s)", "900", "400"] in list(hardware.sections[0][1])


@pytest.mark.parametrize("control", [1.0, 0.9])
def test_what_an_archive_s_control_forbids_is_no_change(
    synthetic: Any, tmp_path: Path, control: float
) -> None:
    """A lab that was busy in one week had a star of its own beside every other week."""
    early = _archive(synthetic, tmp_path / "a", 0.8, 1)
    late = _archive(synthetic, tmp_path / "b", 0.6, 2, started=1.8e9, control=control)
    _, points = history({"early": build(early), "late": build(late)})
    changed = {one.changed for one in points if one.configuration == "LUKS"}
    assert changed == {None, True if control == 1.0 else None}
    said = " ".join(compare({"early": early, "late": late}, ReportOptions()).headline)
    forbids = "late against early: no verdict; the control forbids it, and differences below about"
    assert (forbids in said) is (control < 1)


def test_a_history_says_why_there_is_no_verdict(synthetic: Any, tmp_path: Path) -> None:
    """It said "no verdict" and left the reader to open each archive."""
    paths = {
        "early": _archive(synthetic, tmp_path / "a", 0.8, 1),
        "late": _archive(synthetic, tmp_path / "b", 0.6, 2, started=1.8e9, control=0.9),
        "short": _archive(synthetic, tmp_path / "c", 0.7, 3, started=1.9e9, rounds=3),
    }
    grids, _ = history({name: build(path) for name, path in paths.items()})
    _, why = grids[0].notes
    assert why.startswith("No verdict: ") and "the control of late forbids it" in why
    assert "short itself has none on LUKS" in why and "early" not in why
    alike = {n: _archive(synthetic, tmp_path / n, 0.8, k) for k, n in enumerate("de")}
    assert len(history({name: build(path) for name, path in alike.items()})[0][0].notes) == 1


def test_one_measurement_is_not_two(synthetic: Any, tmp_path: Path) -> None:
    """A copy, a pack, or one path twice was compared as if somebody had measured again."""
    here = _archive(synthetic, tmp_path / "a", 0.8, 1)
    copy = Path(shutil.copytree(here, tmp_path / "copy"))
    pack = tmp_path / "a.zip"
    run = CliRunner()
    run.invoke(cbt_crypto, ["pack", str(here), "-o", str(pack)])
    for other in (here, copy, pack):
        words = ["compare", f"A={here}", f"B={other}", "-o", str(tmp_path / "out")]
        result = run.invoke(cbt_crypto, words)
        assert result.exit_code == 2, result.output
        assert "A and B are the same runs (24 of 24 cells)" in result.output
    result = run.invoke(cbt_crypto, ["history", "--json", str(here), str(copy), str(pack)])
    assert f"note: {copy}: is the same campaign as {here}, so it is used once" in result.stderr
    assert {point["archive"] for point in json.loads(result.stdout)} == {str(here)}


def test_a_copy_made_midway_shows_no_change(synthetic: Any, tmp_path: Path) -> None:
    """It was one measurement, and the whole campaign another, of which nothing `changed`."""
    whole = _archive(synthetic, tmp_path / "whole", 0.8, 1)
    early = Path(shutil.copytree(whole, tmp_path / "early"))
    for cell in early.glob("results/00000003/*"):
        shutil.rmtree(cell)
    other = _archive(synthetic, tmp_path / "other", 0.8, 2, started=1.8e9)
    words = ["history", "--json", *map(str, (early, whole, other))]
    result = CliRunner().invoke(cbt_crypto, words)
    shared = "shares 18 of 24 cells with"
    assert f"note: {whole}: {shared} {early}; rows with them are not compared" in result.stderr
    points = [one for one in json.loads(result.stdout) if one["configuration"] == "LUKS"]
    changed = {(one["archive"], one["changed"], one["of_first_percent"] is None) for one in points}
    assert changed == {
        (str(early), None, True), (str(whole), None, True), (str(other), None, False)
    }  # fmt: skip
    assert result.stderr.count("note: ") == 1


def test_an_archive_without_its_environment_is_not_the_oldest(small: Path, tmp_path: Path) -> None:
    """All others were "against" it, though it was measured a hundred days after them."""
    later = Path(shutil.copytree(small, tmp_path / "later"))
    for place in later.glob("results/*/*/cell.json"):
        cell = json.loads(place.read_text())
        place.write_text(json.dumps({**cell, "started": cell["started"] + 8.64e6}))
    (later / "results" / "environment.json").unlink()
    _, points = history({"later": build(later), "small": build(small)})
    assert [point.archive for point in points][:2] == ["small", "later"]
    assert {point.date[:10] for point in points} == {"2023-11-14", "2024-02-22"}
    said = " ".join(compare({"now": later, "before": small}, ReportOptions()).headline)
    assert "Measured from (UTC): now 2024-02-22 22:13, before 2023-11-14 22:13 (older)." in said


def test_runs_of_two_archives_count_once(synthetic: Any, tmp_path: Path) -> None:
    """Hosts and cells of runs that are in both archives were counted twice."""
    here = _archive(synthetic, tmp_path / "a", 0.8, 1)
    more = Path(shutil.copytree(here, tmp_path / "more"))
    for cell in list(more.glob("results/00000003/*")):
        shutil.rmtree(cell)
    said = " ".join(compare({"A": here, "B": more}, ReportOptions()).headline)
    assert "A and B share runs (18 of 18 cells of B), which say nothing." in said
    assert "24 of 24 cells proved, 6 not measured; 1 OSD host in each archive" in said


def test_archives_are_called_archives_and_have_dates(synthetic: Any, tmp_path: Path) -> None:
    """A heading said "hardware Monday", and nothing said when either was measured."""
    paths = {n: _archive(synthetic, tmp_path / n, 0.8, k) for k, n in enumerate(("Mon", "Tue"))}
    report = compare(paths, ReportOptions())
    for text in (_printed(report), markdown(report), page(report)):
        assert "hardware Mon" not in text and "archive Mon" in text
        # `history` said another minute than `compare`: that of the campaign's first cell.
        assert "Measured from (UTC): Mon 2023-11-14 22:13, Tue 2023-11-14 22:13" in text


def test_a_missing_file_is_named(synthetic: Any, tmp_path: Path) -> None:
    here = _archive(synthetic, tmp_path / "a", 0.8, 1)
    there = _archive(synthetic, tmp_path / "b", 0.8, 2)
    (there / "results/environment.json").unlink()
    report = compare({"here": here, "there": there}, ReportOptions())
    assert any(f"there={there}: there is no results/environment" in note for note in report.notes)
    assert "here: osd0" in report.environment["hosts"], "the other's hosts are still known"
    (there / "results/plan.json").unlink()
    for path, said in ((there, "there is no results/plan.json"), (tmp_path / "c", "no such dir")):
        words = ["compare", f"here={here}", f"there={path}", "-o", str(tmp_path / "out")]
        result = CliRunner().invoke(cbt_crypto, words)
        assert result.exit_code == 2 and f"there={path}: there is no" in result.output
        assert said in result.output


def test_a_slow_change_shows_against_the_first(synthetic: Any, tmp_path: Path) -> None:
    weeks = {
        f"w{n}": _archive(synthetic, tmp_path / f"w{n}", 0.8 - 0.04 * n, n, started=1.7e9 + n * 6e5)
        for n in (2, 0, 1)
    }
    grids, points = history({name: build(path) for name, path in weeks.items()})
    titles = ["4 KiB random reads over time", "4 KiB random writes over time"]
    assert [grid.title for grid in grids] == titles
    assert list(grids[0].headings[-2:]) == ["% of baseline", "against the first"]
    rows = [row for label, rows in grids[0].sections if label == "LUKS" for row in rows]
    assert rows[0][-1] == "" and float(rows[2][-1].removesuffix(" %*")) == pytest.approx(-10, 1)
    luks = [p for p in points if p.configuration == "LUKS" and p.load.endswith("reads")]
    assert [p.archive for p in luks] == ["w0", "w1", "w2"], "in the order of dates"
    assert luks[0].changed is None and luks[2].changed is True
    assert luks[0].date == "2023-11-14 22:13" and luks[0].ceph == "18.2.7"
    assert all(
        p.changed is False for p in points if p.configuration == "control" and p.archive > "w0"
    )
    result = CliRunner().invoke(cbt_crypto, ["history", *map(str, weeks.values()), "--json"])
    assert len(json.loads(result.output)) == len(points)
    result = CliRunner().invoke(cbt_crypto, ["history", *map(str, weeks.values())])
    assert result.output.count("% of baseline: IOPS") == 1, "a note for all tables is said once"


@pytest.mark.parametrize("width", [80, 100, 140])
def test_a_history_is_never_cut(small: Path, width: int) -> None:
    """Paths and kernels ended in dots at 80 columns."""
    name = f"/srv/results/of-the-nightly-campaign/{small.name}-2026-11-24"
    grids, _ = history({name: build(small), f"{name}-again": build(small)})
    output = io.StringIO()
    show_grid(grids[0], Console(file=output, width=width))
    lines = output.getvalue().splitlines()
    assert "…" not in output.getvalue() and max(map(len, lines)) <= width


@pytest.mark.parametrize("width", [80, 100, 120])
def test_words_of_a_history_are_broken_where_people_would(small: Path, width: int) -> None:
    """A path broke as t/uesday and a kernel as amd6/4, while figures that say less kept room."""
    point = history({"a": build(small)})[1][0]
    kernel = "6.12.117+deb13-cloud-amd64"
    row = ["2026-11-26 13:13", "/srv/results/nightly/tuesday", "18.2.7", kernel]
    rows = [[*row, "19.0", "61.78 (51.6 to 74.0)", "+3.3 %"]]
    grid = replace(history({"a": build(small)})[0][0], sections=[(point.configuration, rows)])
    folded = io.StringIO()
    show_grid(grid, Console(file=folded, width=width))
    assert "amd64" in folded.getvalue() and "tuesday" in folded.getvalue()
    output = io.StringIO()
    show_grid(grid, Console(file=output, width=width), ("kernel", "Ceph"))
    shown = output.getvalue()
    assert "tuesday" in shown and "2026-11-26 13:13" in shown and "61.78 (51.6 to 74.0)" in shown
    assert kernel in shown or "Too narrow for: kernel" in shown
    assert max(map(len, shown.splitlines())) <= width


def test_no_change_is_not_minus_nothing(
    synthetic: Any, tmp_path: Path, measured_again: Any
) -> None:
    """A percentage that fell by 0.04 % was shown as -0.0 %."""
    archive = _archive(synthetic, tmp_path / "a", 0.8, 1)
    reports = {"a": build(archive), "b": build(measured_again(archive, tmp_path / "b"))}
    table = reports["b"].tables[0]
    lower = replace(table.sections[0], cells=tuple(map(_a_little_lower, table.sections[0].cells)))
    tables = (replace(table, sections=(lower,)), *reports["b"].tables[1:])
    grids, _ = history({**reports, "b": replace(reports["b"], tables=tables)})
    changes = [row[-1] for label, rows in grids[0].sections if label == "LUKS" for row in rows]
    assert changes == ["", "0.0 %"]


def _a_little_lower(cell: Any) -> Any:
    iops = cell.comparisons.get("iops")
    if iops is None:
        return cell
    lower = replace(iops, percent=0.9997 * iops.percent)
    return replace(cell, comparisons={**cell.comparisons, "iops": lower})


def test_what_a_history_says_is_wrapped(
    synthetic: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last sentence ran over the edge of the terminal, and dates had no time."""
    monkeypatch.setenv("COLUMNS", "120")
    result = CliRunner().invoke(
        cbt_crypto, ["history", str(_archive(synthetic, tmp_path / "a", 0.8, 1))]
    )
    assert max(map(len, result.output.splitlines())) <= 120
    assert "2023-11-14 22:13" in result.output


def test_what_was_measured_once_has_no_verdict(small: Path) -> None:
    luks = [cell.comparisons["iops"] for cell in build(small).cells if cell.name == "LUKS"]
    compared = ratio(luks[0], luks[0])
    assert compared is not None and compared.percent == 100 and compared.differs is None
    assert compared.low is None
    _, points = history({"once": build(small)})
    assert all(point.changed is None for point in points)


def _renamed(archive: Path, names: dict[str, str]) -> Path:
    """The archive with other names of configurations, in its plan and its cells."""
    for place in (archive / "results/plan.json", *archive.glob("results/*/*/[cp]*.json")):
        text = place.read_text()
        for old, new in names.items():
            text = text.replace(f'"{old}"', f'"{new}"')
        place.write_text(text)
    return archive


def test_each_archive_is_compared_with_its_own_baseline(synthetic: Any, tmp_path: Path) -> None:
    here = _archive(synthetic, tmp_path / "a", 0.8, 1)
    there = _renamed(_archive(synthetic, tmp_path / "b", 0.6, 2), {"Plain": "Unencrypted"})
    report = compare({"here": here, "there": there}, ReportOptions())
    assert report.baseline_name == "Plain in here, Unencrypted in there"
    percents, *_ = side_by_side(report)
    rows = {row[0]: row for row in percents.sections[0][1]}
    assert rows["LUKS"][2].startswith("60") or rows["LUKS"][2].startswith("59.")
    assert report.control_states["iops"].state != "differs", (
        "each control repeats the baseline of its archive"
    )
    assert not [note for note in report.notes if "other overlays" in note]
    for words, said in (
        (["there=LUKS"], "Plain in here, LUKS in there"),
        (["LUKS"], "LUKS"),
        (["LUKS", "here=Plain"], "Plain in here, LUKS in there"),
    ):
        changed = compare({"here": here, "there": there}, ReportOptions(), words)
        assert changed.baseline_name == said
        # The control tests the campaign, whatever is called 100 %.
        assert changed.control_states == report.control_states
        assert changed.controls == report.controls
        assert not [said for said in changed.headline if said.startswith("No control")]
    words = ["compare", f"here={here}", f"there={there}", "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(cbt_crypto, [*words, "--baseline", "there=Plain"])
    assert result.exit_code == 2
    assert f"there={there}: --baseline: no cell has configuration 'Plain'" in result.output
    result = CliRunner().invoke(cbt_crypto, [*words, "--baseline", "there=LUKS"])
    assert result.exit_code == 0, result.output


def test_a_configuration_that_is_not_the_same_is_told(synthetic: Any, tmp_path: Path) -> None:
    paths = {n: _archive(synthetic, tmp_path / n, 0.8, k) for k, n in enumerate(("a", "b"))}
    place = paths["b"] / "results/plan.json"
    plan = json.loads(place.read_text())
    plan["configurations"]["LUKS"] = {"luks": {"cipher": "aes-cbc"}}
    place.write_text(json.dumps(plan))
    notes = compare(paths, ReportOptions()).notes
    assert "LUKS has other overlays in b than in the first archive" in notes


def test_archives_that_share_nothing_are_refused(synthetic: Any, tmp_path: Path) -> None:
    here = _archive(synthetic, tmp_path / "a", 0.8, 1)
    there = _archive(synthetic, tmp_path / "b", 0.6, 2)
    names = {"Plain": "Off", "LUKS": "On", "control": "Twice"}
    out = ["-o", str(tmp_path / "out")]
    other = _renamed(_archive(synthetic, tmp_path / "c", 0.6, 3), names)
    result = CliRunner().invoke(cbt_crypto, ["compare", f"a={here}", f"c={other}", *out])
    assert result.exit_code == 2
    assert " ".join(result.output.split()).endswith(
        "the archives have no configuration in common, so none is compared: "
        "a has Plain, LUKS, control; c has Off, On, Twice"
    )
    third = {"c": other, "a": here, "b": there}
    with pytest.raises(UsageError, match=r"no configuration in common.*; b has Plain, LUKS"):
        compare(third, ReportOptions())
    compare({"a": here, "b": there, "c": other}, ReportOptions())
    _renamed(there, {"randread": "read", "randwrite": "write"})
    result = CliRunner().invoke(cbt_crypto, ["compare", f"a={here}", f"b={there}", *out])
    assert result.exit_code == 2
    assert " ".join(result.output.split()).endswith(
        "the archives have no workload in common, so none is compared: a has rbd 4 KiB random "
        "reads, rbd 4 KiB random writes; b has rbd 4 KiB sequential reads, rbd 4 KiB sequential "
        "writes"
    )


def test_single_archives_that_share_nothing_are_refused(synthetic: Any, tmp_path: Path) -> None:
    paths = {}
    for name, size in (("a", 4096), ("b", 1 << 20)):
        shape = synthetic.SyntheticScenario("rbd", 1, 1, (size,), ("randread",))
        campaign = synthetic.SyntheticCampaign(
            scenarios=[shape], configurations=["Plain"], seconds=10,
            load=lambda cell: synthetic.Load(1000.0, 2.0),
        )  # fmt: skip
        paths[name] = synthetic.write_archive(campaign, tmp_path / name)
    with pytest.raises(UsageError, match=r"no workload in common.*a has rbd 4 KiB random reads; b"):
        compare(paths, ReportOptions())
    shape = synthetic.SyntheticScenario("rbd", 1, 1, (4096,), ("randread",), 8)
    campaign = synthetic.SyntheticCampaign(
        scenarios=[shape], configurations=["Plain"], seconds=10,
        load=lambda cell: synthetic.Load(1000.0, 2.0),
    )  # fmt: skip
    paths["b"] = synthetic.write_archive(campaign, tmp_path / "deep")
    said = r"a has rbd 4 KiB random reads \(with iodepth \d+\); b has .* \(with iodepth 8\)"
    with pytest.raises(UsageError, match=said):
        compare(paths, ReportOptions())
    with pytest.raises(UsageError, match="give its name alone"):
        compare(paths, ReportOptions(), ["a=Plain"])


def test_archives_that_measured_for_other_times_are_sent_to_history(
    synthetic: Any, tmp_path: Path
) -> None:
    paths = {}
    for name, seconds in (("a", 6), ("b", 20)):
        shape = synthetic.SyntheticScenario(
            "rbd", 1, 1, (4096,), ("randread",), parameters={"time": seconds}
        )
        campaign = synthetic.SyntheticCampaign(
            scenarios=[shape], configurations=["Plain", "LUKS"], seconds=seconds,
            load=lambda cell: synthetic.Load(1000.0, 2.0),
        )  # fmt: skip
        paths[name] = synthetic.write_archive(campaign, tmp_path / name)
    with pytest.raises(UsageError, match=r"\(with time 20\); cbt-crypto history shows both"):
        compare(paths, ReportOptions())


def _edited(place: Path, edit: Callable[[Any], None]) -> None:
    document = json.loads(place.read_text())
    edit(document)
    place.write_text(json.dumps(document))


def test_a_copy_whose_cells_have_their_new_names_is_one(synthetic: Any, tmp_path: Path) -> None:
    """Version 0.1 named cells by 8 digits; gone on with, the copy counted as a measurement."""
    here = _archive(synthetic, tmp_path / "a", 0.8, 1)
    copy = Path(shutil.copytree(here, tmp_path / "copy"))

    def rename(plan: Any) -> None:
        for cell in plan["cells"]:
            longer = f"{cell['path']}00000000"
            (copy / cell["path"]).rename(copy / longer)
            cell["path"] = longer

    _edited(copy / "results/plan.json", rename)
    with pytest.raises(UsageError, match="A and B are the same runs"):
        compare({"A": here, "B": copy}, ReportOptions())


def test_percentages_of_other_baselines_are_not_compared(synthetic: Any, tmp_path: Path) -> None:
    """The file's baseline was edited between two nights, and history gave a verdict."""
    here = _archive(synthetic, tmp_path / "a", 0.8, 1)
    later = _archive(synthetic, tmp_path / "b", 0.8, 2, started=1.8e9)
    _edited(later / "results/plan.json", lambda plan: plan["baseline"].update(value="control"))
    _edited(
        later / "results/plan.json",
        lambda plan: plan["configurations"].update(LUKS={"luks": {"cipher": "x"}}),
    )
    reports = {"a": build(here), "b": build(later)}
    assert all(point.of_first_percent is None for point in history(reports)[1])
    said = list(caveats_of(reports))
    assert "b: its percentages are of control, and not compared" in said
    assert "b: LUKS has other overlays than in the first archive that has it" in said


def test_archives_that_share_the_control_alone_are_not_told_to_repeat(
    synthetic: Any, tmp_path: Path
) -> None:
    """Both had eight rounds, and `each archive needs four rounds` was the reason."""
    paths = {n: _archive(synthetic, tmp_path / n, 0.8, k) for k, n in enumerate(("a", "b"))}
    _renamed(paths["b"], {"LUKS": "Secure"})
    said = " ".join(compare(paths, ReportOptions()).headline)
    assert "b against a: only the baseline and the control are in both" in said
    assert "Not in every archive: LUKS (a), Secure (b)." in said


def test_what_the_files_say_otherwise_of_the_cluster_is_told(
    synthetic: Any, tmp_path: Path
) -> None:
    """Two replicas against three: "hosts, versions, dates or files" was all that was said."""
    paths = {n: _archive(synthetic, tmp_path / n, 0.8, k) for k, n in enumerate(("a", "b", "c"))}
    for name, copies in (("a", 2), ("b", 3)):
        cluster = {"osds": [name], "replication": copies, "settings": {"osd_memory_target": name}}
        document = {"cluster": cluster, "benchmarks": {}}
        _edited(paths[name] / "results/plan.json", lambda p, d=document: p.update(document=d))
    _edited(paths["c"] / "results/plan.json", lambda plan: plan.update(document={"cluster": ["x"]}))
    differ = "b: its file differs from a's in replication, settings"
    assert f"{differ}." in compare(paths, ReportOptions()).headline
    reports = {name: build(path) for name, path in paths.items()}
    assert differ in list(caveats_of(reports))
    assert not [s for s in caveats_of({"a": reports["a"], "c": reports["c"]}) if "differs" in s]


def test_cells_of_another_length_are_told(synthetic: Any, tmp_path: Path) -> None:
    """A history of runs of 12 s and of 600 s said nothing of it."""
    here = _archive(synthetic, tmp_path / "a", 0.8, 1)
    later = _archive(synthetic, tmp_path / "b", 0.8, 2, started=1.8e9)

    def lengthen(plan: Any) -> None:
        for cell in plan["cells"]:
            cell["parameters"] |= {"iodepth": 4, "time": 600}

    _edited(later / "results/plan.json", lengthen)
    said = [s for s in caveats_of({"a": build(here), "b": build(later)}) if "measured for" in s]
    assert len(said) == 1 and said[0].startswith("b: "), said
    assert "measured for 600 s" in said[0] and "; in a: measured for " in said[0]


def test_a_history_joins_the_same_workload_alone(synthetic: Any, tmp_path: Path) -> None:
    """Depth 128 in one archive and depth 64 in the next were both `4 KiB random reads`."""
    here = _archive(synthetic, tmp_path / "a", 0.8, 1)
    later = _archive(synthetic, tmp_path / "b", 0.8, 2, started=1.8e9)
    longer = _archive(synthetic, tmp_path / "c", 0.8, 2, started=1.9e9)

    def deeper(plan: Any) -> None:
        for cell in plan["cells"]:
            cell["parameters"].update(iodepth=64)

    def for_longer(plan: Any) -> None:
        for cell in plan["cells"]:
            cell["parameters"].update(time=600)

    _edited(later / "results/plan.json", deeper)
    _edited(longer / "results/plan.json", for_longer)
    points = history({name: build(tmp_path / name) for name in "abc"})[1]
    of_luks = {(p.load, p.archive) for p in points if p.configuration == "LUKS"}
    depth = build(here).cells[0].dimensions["iodepth"]
    assert {("4 KiB random reads (iodepth 64)", "b"),
            (f"4 KiB random reads (iodepth {depth})", "a"),
            (f"4 KiB random reads (iodepth {depth})", "c")} < of_luks  # fmt: skip


def test_hosts_that_no_cell_works_on_are_hidden_in_a_comparison(
    synthetic: Any, tmp_path: Path
) -> None:
    """`compare --anonymize` showed the names of heads, monitors and managers."""
    paths = {name: _archive(synthetic, tmp_path / name, 0.8, n) for n, name in enumerate("ab")}
    for place in tmp_path.glob("*/results/environment.json"):
        _edited(place, lambda about: about["hosts"].update(headnode7={"cpu_model": "X"}))
    report = compare(paths, ReportOptions(anonymize=True))
    assert "headnode7" not in repr(report)

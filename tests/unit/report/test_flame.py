"""Differential flame graphs: CPU time per IO by hand, colours, chance, and markup as text."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from cbt_crypto.report import build, write
from cbt_crypto.report.charts.flame import Flame, PerIO, flame_svg, flames, frames_of_each, per_io
from cbt_crypto.report.page import page

pytestmark = pytest.mark.unit

SVG = "{http://www.w3.org/2000/svg}"
#: Stack -> samples in each second, at 10 a second of a CPU.
BASE = {"ceph-osd;tp_osd_tp;do_op;crc": 4, "ceph-osd;tp_osd_tp;do_op;gone": 2}
OWN = {"ceph-osd;tp_osd_tp;do_op;crc": 2, "ceph-osd;msgr-worker;<b>&;aes": 6}


def sampled(archive: Path, of: Mapping[str, Mapping[str, int]], seconds: int = 40) -> Path:
    """The archive, in which each OSD host has these stacks of each configuration."""
    for place in archive.glob("results/*/*/cell.json"):
        cell = json.loads(place.read_text())
        header = {"format": 1, "hz": 10, "t": cell["started"] - 5, "seconds": seconds, "error": ""}
        text = json.dumps(header) + "\n"
        for stack, count in of[cell["configuration"]].items():
            counts = " ".join(f"{second}:{count}" for second in range(seconds))
            text += f"{stack}\t{counts}\n"
        for host in cell["osd_hosts"]:
            place.with_name(f"stacks.{host}").write_bytes(gzip.compress(text.encode()))
    return archive


@pytest.fixture
def archive(small: Path) -> Path:
    return sampled(small, {"Unencrypted": BASE, "LUKS": OWN})


def test_cpu_time_for_each_io(archive: Path) -> None:
    report = build(archive)
    (table,) = report.tables
    found = list(flames(table))
    assert [(flame.title, flame.name, flame.baseline) for flame in found] == [
        ("rbd_multi_client, 4 KiB, random reads", "LUKS", "Unencrypted"),
        ("rbd_multi_client, 4 KiB, random writes", "LUKS", "Unencrypted"),
    ]
    cell = json.loads(next(archive.glob("results/*/*/cell.json")).read_text())
    hosts = len(cell["osd_hosts"])
    for flame, base, own in zip(found, *[
        [c.figures["iops"] for c in report.cells if c.is_baseline is wanted]
        for wanted in (True, False)
    ]):  # fmt: skip
        # 4 samples of 0.1 s in a second, of all hosts
        assert flame.base.stacks == pytest.approx(
            {"ceph-osd;tp_osd_tp;do_op;crc": hosts * 0.4e9 / base,
             "ceph-osd;tp_osd_tp;do_op;gone": hosts * 0.2e9 / base}, rel=0.01
        )  # fmt: skip
        assert flame.own.stacks["ceph-osd;msgr-worker;<b>&;aes"] == pytest.approx(
            hosts * 0.6e9 / own, rel=0.01
        )


def test_runs_without_stacks_are_left_out(archive: Path) -> None:
    run = build(archive).cells[0].runs[0]
    assert per_io([replace(run, stacks=None)]) == PerIO({}, 0.0)
    assert per_io([replace(run, failure="it broke")]) == PerIO({}, 0.0)
    assert per_io([]) == PerIO({}, 0.0)
    # Twice the samples in twice the IOs.
    one, two = per_io([run]), per_io([run, run, replace(run, stacks=None)])
    assert two.stacks == pytest.approx(dict(one.stacks))
    assert two.sample == pytest.approx(one.sample / 2)


def flame_of(base: Mapping[str, float], own: Mapping[str, float], sample: float = 1.0) -> Flame:
    return Flame("4 KiB", "LUKS", "Plain", PerIO(base, sample), PerIO(own, sample))


def fills(text: str) -> dict[str, tuple[float, str, str]]:
    """Name of a frame -> width, fill, title."""
    found = {}
    for box in etree.fromstring(text.encode()).iter(f"{SVG}rect"):
        for title in box.iter(f"{SVG}title"):
            name, _, told = str(title.text).partition(": ")
            found[name] = (float(str(box.get("width"))), str(box.get("fill")), told)
    return found


def test_a_frame_is_as_wide_as_its_time_and_coloured_by_its_difference() -> None:
    base = {"osd;tp;read": 100_000.0, "osd;tp;crc": 40_000.0, "osd;tp;same": 50_000.0}
    own = {"osd;tp;read": 60_000.0, "osd;tp;aes": 90_000.0, "osd;tp;same": 50_000.0}
    found = fills(flame_svg(flame_of(base, own)))
    # 200 of 200 us are 1,200 pixels
    assert {name: width for name, (width, *_) in found.items()} == pytest.approx(
        {"all": 1200, "osd": 1200, "tp": 1200, "read": 360, "aes": 540, "same": 300}, abs=0.6
    )
    assert found["read"][1:] == ("#4393c3", "60 µs of CPU per IO, -40 µs against 100 µs")
    assert found["aes"][1:] == ("#b2182b", "90 µs of CPU per IO, +90 µs against 0 µs")
    assert found["same"][1] == "#dedad3"


def test_what_chance_makes_of_a_few_samples_has_no_colour() -> None:
    # 9 samples against 4: a difference of 5, whose standard deviation is the root of 13.
    by_chance = fills(flame_svg(flame_of({"osd;tp;a": 4.0}, {"osd;tp;a": 9.0})))
    assert by_chance["a"][1] == "#dedad3"
    # Of a hundredth for each sample they are 900 against 400.
    sure = fills(flame_svg(flame_of({"osd;tp;a": 4.0}, {"osd;tp;a": 9.0}, 0.01)))
    assert sure["a"][1] == "#b2182b"


def test_the_widest_frames_are_drawn_and_what_calls_them() -> None:
    own = {f"osd;tp;f{number};g{number}": 1000.0 - number for number in range(300)}
    found = fills(flame_svg(flame_of({"osd;tp;f1": 5.0}, own), most=60))
    assert len(found) == 60
    assert {"all", "osd", "tp", "f0", "g0"} <= set(found) and "f200" not in found
    assert len(fills(flame_svg(flame_of({"a": 1.0}, {"a;b": 5000.0, "a;c": 1.0})))) == 3


def test_markup_in_a_frame_stays_text() -> None:
    name = "</title><script>alert(1)</script>\"'&<"
    text = flame_svg(flame_of({name: 10.0}, {name: 90.0}))
    root = etree.fromstring(text.encode())
    assert {etree.QName(one).localname for one in root.iter()} == {"svg", "rect", "title", "text"}
    assert name in fills(text)


def test_the_page_and_the_files(archive: Path, tmp_path: Path) -> None:
    report = build(archive)
    text = page(report)
    assert text.count("<summary>Flame graph, rbd_multi_client, 4 KiB, ") == 2
    assert "&lt;b&gt;&amp;: " in text and "<b>&" not in text
    paths = {path.name: path for path in write(report, tmp_path / "out")}
    stem = "rbd_multi_client_4_KiB_random_reads_{}_stacks"
    diff = paths[stem.format("LUKS") + ".diff.folded"].read_text().splitlines()
    base = dict(
        line.rsplit(" ", 1)
        for line in paths[stem.format("Unencrypted") + ".folded"].read_text().splitlines()
    )
    own = dict(
        line.rsplit(" ", 1)
        for line in paths[stem.format("LUKS") + ".folded"].read_text().splitlines()
    )
    assert set(base) == set(BASE) and set(own) == set(OWN)
    assert all(re.fullmatch(r".+ \d+ \d+", line) for line in diff)
    assert {line.rsplit(" ", 2)[0]: line.rsplit(" ", 2)[1:] for line in diff} == {
        stack: [base.get(stack, "0"), own.get(stack, "0")] for stack in {**BASE, **OWN}
    }


def test_rows_of_names_that_make_one_file_s_name(archive: Path, tmp_path: Path) -> None:
    """The second row's stacks replaced the first one's, and its charts too."""
    report = build(archive)
    (table,) = report.tables
    (section, *_) = table.sections
    base, row = section.cells
    other = replace(row, name="für", runs=base.runs)
    cells = (base, replace(row, name="fär"), other)
    write(
        replace(report, tables=(replace(table, sections=(replace(section, cells=cells),)),)),
        tmp_path,
    )
    assert len(list((tmp_path / "charts").glob("*f_r*.diff.folded"))) == 2


def test_an_archive_without_stacks_has_no_graph(small: Path, tmp_path: Path) -> None:
    report = build(small)
    assert "Flame graph" not in page(report)
    assert not [path for path in write(report, tmp_path / "out") if "stacks" in path.name]


def test_many_graphs_have_few_frames_each(archive: Path) -> None:
    cells = build(archive).cells
    assert frames_of_each(cells) == 600
    assert frames_of_each([*cells] * 20) == 75
    assert frames_of_each([*cells] * 1000) == 40
    assert frames_of_each([]) == 600


def test_a_page_of_the_articles_size_stays_small(archive: Path) -> None:
    """Ten workloads of six configurations, each with more frames than fit."""
    many: dict[str, Any] = {
        f"ceph-osd;tp_osd_tp;{'Name::of_a_function' * 3};{number:03}{'x' * 60};leaf": 5
        for number in range(700)
    }
    report = build(sampled(archive, {"Unencrypted": many, "LUKS": many}))
    (table,) = report.tables
    rows = [
        replace(section, cells=(*section.cells[:1], *section.cells[1:] * 5))
        for section in table.sections * 5
    ]
    article = replace(report, tables=(replace(table, sections=tuple(rows)),))
    assert len(list(flames(article.tables[0]))) == 50
    assert page(article).count("<rect") > 2500
    assert len(page(article).encode()) < 3_000_000

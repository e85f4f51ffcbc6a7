"""Folded stacks of a host: what lies in the window counts, and nothing odd is believed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cbt_crypto.archive.documents import CellDocument
from cbt_crypto.archive.files import Malformed, Problem
from cbt_crypto.archive.folder import Folder
from cbt_crypto.results.cell.hardware_counters import read_stacks, stacks_of_osds
from cbt_crypto.results.cell.window import Window

pytestmark = pytest.mark.unit

HEADER = {"format": 1, "hz": 10, "event": "cpu-clock", "t": 1000.0, "seconds": 20, "error": ""}
#: On a host whose clock is 2 s ahead, these are its seconds 3.5 to 9.5.
WINDOW = Window(1001.5, 1007.5)
LINES = ("ceph-osd;tp_osd_tp;a\t0:5 3:4 4:2 9:10", "ceph-osd;tp_osd_tp;b\t0:7 19:1")


def written(path: Path, lines: Sequence[str] = LINES, **header: Any) -> Path:
    text = "".join(f"{line}\n" for line in (json.dumps({**HEADER, **header}), *lines))
    path.write_bytes(gzip.compress(text.encode("utf-8", "surrogateescape")))
    return path


def test_a_second_at_an_edge_counts_by_its_share(tmp_path: Path) -> None:
    read = read_stacks(written(tmp_path / "stacks"), WINDOW, 2.0)
    # 4 / 2 + 2 + 10 / 2; nothing of `b` is in the window
    assert (read.hz, read.samples) == (10, {"ceph-osd;tp_osd_tp;a": 9.0})


def test_a_file_that_is_not_packed_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "stacks").write_text(f"{json.dumps(HEADER)}\n{LINES[0]}\n")
    assert read_stacks(tmp_path / "stacks", WINDOW, 2.0).samples == {"ceph-osd;tp_osd_tp;a": 9.0}


@pytest.mark.parametrize(
    ("header", "lines", "said"),
    [
        ({"error": "No permission to\nopen it"}, (), "perf says: No permission to open it"),
        ({"hz": 0}, LINES, "cannot be"),
        ({"hz": float("nan")}, LINES, "cannot be"),
        ({"hz": [1]}, LINES, "does not begin"),
        ({"hz": 10**400}, LINES, "does not begin"),
        ({"t": float("inf")}, LINES, "cannot be"),
        ({"t": 1005.0}, LINES, "covers 4 of 6 s"),
        ({"seconds": 6}, LINES, "covers 2 of 6 s"),
        ({}, ["a\t4:99999999"], "more samples"),
        ({}, [";" * 200 + "\t4:1"], "more stacks or frames"),
        ({}, [f"a{number}\t4:1" for number in range(4001)], "more stacks or frames"),
        ({}, ["a" * (2 << 20)], "1 MiB"),
    ],
)
def test_nonsense_is_refused(
    tmp_path: Path, header: dict[str, Any], lines: Sequence[str], said: str
) -> None:
    with pytest.raises(Malformed, match=said):
        read_stacks(written(tmp_path / "stacks", lines, **header), WINDOW, 2.0)


def test_what_is_no_count_is_none_and_names_are_shown_safely(tmp_path: Path) -> None:
    lines = ["a\x1b[31m;b\udcff\t4:1 4:-1 4:1e9 x:1 4: :1 4:0x1 4:\u0661", "no tab", "\t4:2"]
    read = read_stacks(written(tmp_path / "stacks", lines), WINDOW, 2.0)
    assert read.samples == {"a\ufffd[31m;b\ufffd": 1.0, "": 2.0}


def test_a_long_name_is_cut(tmp_path: Path) -> None:
    read = read_stacks(written(tmp_path / "stacks", [f"a;{'b' * 500_000}\t4:1"]), WINDOW, 2.0)
    assert read.samples == {f"a;{'b' * 128}": 1.0}


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    bomb = gzip.compress(f"{json.dumps(HEADER)}\n".encode() + (b"a\t4:1\n" * (3 << 20)))
    (tmp_path / "stacks").write_bytes(bomb)
    assert len(bomb) < 1 << 20
    with pytest.raises(Malformed):
        read_stacks(tmp_path / "stacks", WINDOW, 2.0)


def cell_of(hosts: Sequence[str]) -> CellDocument:
    return CellDocument.model_validate(
        {"format": 1, "id": "0", "scenario": "s", "configuration": "c", "iteration": 0,
         "state": "finished", "osd_hosts": list(hosts), "clients": [], "clock_offset_s": {"a": 2.0}}
    )  # fmt: skip


def test_hosts_are_added_and_one_without_takes_all_away(tmp_path: Path) -> None:
    problems: list[Problem] = []
    written(tmp_path / "stacks.a")
    folder = Folder(tmp_path)
    assert stacks_of_osds(folder, cell_of(["a", "b"]), WINDOW, problems) is None
    written(tmp_path / "stacks.b", t=998.0)
    both = stacks_of_osds(Folder(tmp_path), cell_of(["a", "b"]), WINDOW, problems)
    assert both is not None and both.samples == {"ceph-osd;tp_osd_tp;a": 18.0}
    assert problems == []
    written(tmp_path / "stacks.b", t=998.0, hz=20)
    assert stacks_of_osds(Folder(tmp_path), cell_of(["a", "b"]), WINDOW, problems) is None
    written(tmp_path / "stacks.b", error="no perf")
    assert stacks_of_osds(Folder(tmp_path), cell_of(["a", "b"]), WINDOW, problems) is None
    assert [str(problem) for problem in problems] == [
        "stacks.b has no stacks, as perf says: no perf"
    ]

"""Whether reads took the drives: in every form of a report, from what OSDs counted."""

from __future__ import annotations

import csv
import html
import io
import json
from pathlib import Path
from typing import Any

import pytest

from cbt_crypto.report import build
from cbt_crypto.report.document import document, tidy
from cbt_crypto.report.markdown import markdown
from cbt_crypto.report.page import page

pytestmark = pytest.mark.unit

READS, WRITES = "results/00000000/id-00000000", "results/00000000/id-00000001"


def osd(host: str, hit: int, missed: int, layers: Any = (), read: int = 0) -> dict[str, Any]:
    counters = {
        "buffer_hit_bytes": hit, "buffer_miss_bytes": missed, "client_read_bytes": hit + missed,
        "client_written_bytes": 4096,
    }  # fmt: skip
    return {
        "host": host, "counters": counters, "devices": layers,
        "process": {"read_bytes": read, "written_bytes": 8192},
    }  # fmt: skip


def tell(root: Path, cell: str, **values: Any) -> None:
    path = root / cell / "cell.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


#: More than clients of the archive read, so that nothing is missing.
MANY = 1 << 30


def test_rows_say_how_much_came_from_memory_and_that_they_differ(small: Path) -> None:
    dm = {"device": "dm-0", "mapping": "cbt-crypto-x", "read_bytes": MANY, "written_bytes": 0}
    below = {"device": "sda", "read_bytes": MANY, "written_bytes": 0}
    tell(small, READS, storage={"osd.0": osd("osd0", 0, MANY, [[dm, below]])})
    tell(small, "results/00000000/id-00000002", storage={"osd.0": osd("osd0", 3 * MANY, MANY)})
    built = build(small)
    plain, luks = (cell for cell in built.cells if cell.direction == "read")
    assert plain.figures["reads_from_memory_percent"] == 0
    assert luks.figures["reads_from_memory_percent"] == 75
    assert plain.figures["osd_drive_read_bytes_per_byte"] == 1, "the mapping, not what is below"
    assert luks.figures["osd_drive_read_bytes_per_byte"] == 0, "a file: by the process"
    assert plain.warnings == ()
    (warning,) = luks.warnings
    assert warning.startswith("75 % of reads came from OSDs' memory (0 % in the baseline)")
    for text in (markdown(built), page(built)):
        assert "reads from memory %" in text
    rows = [r for r in csv.DictReader(io.StringIO(tidy(built))) if r["unit"] == "%"]
    assert [r["value"] for r in rows if r["figure"] == "reads_from_memory_percent"] == [
        "0.0",
        "75.0",
    ]
    assert "reads_from_memory_percent" in str(document(built)["tables"][0]["sections"][0])


def test_rows_that_all_read_from_memory_say_so_and_the_report_does(small: Path) -> None:
    for cell in (READS, LUKS_READS):
        tell(small, cell, storage={"osd.0": osd("osd0", 9 * MANY, MANY)})
    built = build(small)
    sentence = "90 % of reads came from OSDs' memory: this measures memory more than drives"
    assert [cell.warnings for cell in built.cells if cell.direction == "read"] == [(sentence,)] * 2
    (limit,) = [one for one in built.limits if "memory" in one]
    assert limit == "Most reads came from memory in 2 of 2 rows of reads.", "writes read nothing"
    (note,) = built.notes
    assert note.startswith("2 of 2 rows of reads took 90 % from OSDs' memory")
    for text in (markdown(built), page(built)):
        assert note in html.unescape(text).replace("\\_", "_")
    for cell in (READS, LUKS_READS):
        tell(small, cell, storage={"osd.0": osd("osd0", MANY, 9 * MANY)})
    assert not any(cell.warnings for cell in build(small).cells)
    assert build(small).notes == ()


def test_without_the_counters_of_every_osd_there_is_no_figure(small: Path) -> None:
    tell(small, READS, storage={"osd.0": {**osd("osd0", 1, 1), "counters": {}}})
    tell(small, "results/00000000/id-00000002", storage={"osd.7": osd("elsewhere", 1, 1)})
    built = build(small)
    assert not any("reads_from_memory_percent" in cell.figures for cell in built.cells)
    assert "reads from memory %" not in markdown(built)


def test_reads_of_what_was_never_written_are_said(small: Path) -> None:
    """24,000 reads of 4 KiB, of which OSDs found a tenth."""
    asked = 24_000 * 4096
    tell(small, READS, storage={"osd.0": osd("osd0", 0, asked // 10)})
    cell = next(cell for cell in build(small).cells if cell.is_baseline)
    assert cell.warnings[0].startswith("90 % of what clients read was never written")


def test_a_cache_that_was_not_emptied_is_said(small: Path) -> None:
    tell(small, READS, caches={"state": "drop", "faults": ["osd.3 did not empty its cache: x"]})
    cell = next(cell for cell in build(small).cells if cell.is_baseline)
    assert cell.warnings[0].endswith("osd.3 did not empty its cache: x")


LUKS_READS = "results/00000000/id-00000002"


def overwritten(*written: int) -> dict[str, Any]:
    return {f"h0 sd{n}": {"written_bytes": one, "size_bytes": 100} for n, one in enumerate(written)}


def test_rows_on_drives_of_different_age_say_so(small: Path) -> None:
    tell(small, READS, overwritten=overwritten(100, 200))
    tell(small, LUKS_READS, overwritten=overwritten(200, 200))
    built = build(small)
    plain, luks = (cell for cell in built.cells if cell.direction == "read")
    assert plain.figures["drives_overwritten_times"] == 1.5
    assert plain.warnings == ()
    (warning,) = luks.warnings
    assert warning.startswith("its drives had been written over 2.0 times since their deployment")
    for text in (markdown(built), page(built), str(document(built))):
        assert warning in text
        assert "1.5" in text
    tell(small, LUKS_READS, overwritten=overwritten(150, 190))
    assert not any(cell.warnings for cell in build(small).cells), "a fifth of a drive is alike"


def test_an_age_that_cannot_be_is_refused(small: Path) -> None:
    tell(small, READS, overwritten={"h0 sda": {"written_bytes": 5, "size_bytes": 0}})
    (failed,) = (cell for cell in build(small).cells if cell.state == "failed")
    assert "overwritten" in str(failed.reason)


def rounds(reached: bool, last: float) -> dict[str, Any]:
    iops = [100.0, 100.0, 100.0, 100.0, last]
    return {
        "reached": reached, "round_s": 60, "iops": iops, "range_percent": 41.2,
        "slope_percent": 12.0,
    }  # fmt: skip


def test_a_steady_state_that_was_not_reached_is_said(small: Path) -> None:
    tell(small, READS, steady_state=rounds(True, 100.0))
    tell(small, LUKS_READS, steady_state=rounds(False, 150.0))
    built = build(small)
    plain, luks = (cell for cell in built.cells if cell.direction == "read")
    assert plain.figures["steady_state_rounds"] == 5
    assert plain.warnings == ()
    (warning,) = luks.warnings
    assert warning == (
        "steady state not reached in 5 rounds of 60 s: the last five differ by 41 % of their "
        "mean, with a slope of 12 %"
    )
    for text in (markdown(built), page(built)):
        assert warning in text
        assert "rounds to steady state" in text


@pytest.mark.parametrize(
    ("ops", "recovered", "beside", "sentences"),
    [
        (0, 0, {}, []),
        (10_000_000, 0, {}, ["other clients did about 498,600 IOPS"]),
        (0, 7, {"scrubbing": 2}, ["2 placement groups were scrubbed", "7 operations"]),
    ],
)
def test_what_ran_beside_on_a_cluster_of_others(
    small: Path, ops: int, recovered: int, beside: Any, sentences: list[str]
) -> None:
    storage = osd("osd0", 0, MANY)
    storage["counters"] |= {"client_ops": ops, "recovery_ops": recovered}
    tell(small, READS, storage={"osd.0": storage}, beside={"seconds": 20.0, **beside})
    plain = next(cell for cell in build(small).cells if cell.direction == "read")
    assert "other_clients_iops" in plain.figures
    for sentence in sentences:
        assert any(sentence in warning for warning in plain.warnings), plain.warnings
    assert len(plain.warnings) == len(sentences)


def test_nothing_is_said_of_other_clients_on_a_cluster_of_the_campaign_s(small: Path) -> None:
    tell(small, READS, storage={"osd.0": osd("osd0", 0, MANY)})
    assert not any("other_clients_iops" in cell.figures for cell in build(small).cells)

"""Every figure of a run is of the same seconds: archives whose truth is known."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cbt_crypto.report import build
from cbt_crypto.report.charts.chart_values import Lines, charts
from cbt_crypto.report.document import document, tidy
from cbt_crypto.report.markdown import markdown
from cbt_crypto.report.page import page

pytestmark = pytest.mark.unit

CELL = Path("results/00000000/id-00000000")
#: What each process does a second, and how long an IO takes it, once it is warm.
IOPS, LATENCY_MS = 1000.0, 2.0


@pytest.fixture
def archive(tmp_path: Path, synthetic: Any) -> Any:
    """Makes a campaign of one configuration and one cell; two OSD nodes take 80 W each."""

    def make(seconds: int, clients: int, cpu: float) -> Path:
        shape = synthetic.SyntheticScenario("rbd_multi_client", clients, 1, (4096,), ("randread",))
        campaign = synthetic.SyntheticCampaign(
            [shape], ["Unencrypted"], lambda cell: synthetic.Load(IOPS, LATENCY_MS, 0.0),
            cpu=lambda cell: {"user": cpu}, watts=lambda cell: 80.0, seconds=seconds, osd_hosts=1,
        )  # fmt: skip
        return Path(synthetic.write_archive(campaign, tmp_path / "archive"))

    return make


def shaped(synthetic: Any, root: Path, host: str, rates: Any, late_s: float = 0.0) -> None:
    """Give a process these IOPS second by second; its latency is inverse to them, as at a depth."""
    folder = root / CELL
    rates = np.array(rates, np.float64)
    output = json.loads((folder / f"json_output.0.{host}").read_text())
    start = output["timestamp_ms"] / 1000 - 0.3 - len(rates) + late_s
    times = np.rint((start + 1 + np.arange(len(rates))) * 1000).astype(np.int64)
    latencies = LATENCY_MS * 1e6 * IOPS / rates
    hist, every = "", {}
    for at, rate, latency in zip(times, rates, latencies):
        bins = synthetic.latency_bins(latency / 1e6, round(rate))
        hist += synthetic.histogram_log(np.array([at]), bins, 0, 4096).decode()
        for ns, count in bins.items():
            every[ns] = every.get(ns, 0) + count
    text = synthetic.fio_json(
        "randread", 4096, float(rates.mean()), len(rates), int(start), every
    )  # fmt: skip
    (folder / f"json_output.0.{host}").write_text(text)
    (folder / f"output.0_clat_hist.1.log.{host}").write_text(hist)
    for kind, values in {"iops": rates, "clat": latencies, "lat": latencies}.items():
        lines = (f"{at}, {round(value)}, 0, 0, 0\n" for at, value in zip(times, values))
        (folder / f"output.0_{kind}.1.log.{host}").write_text("".join(lines))


def warm_up(root: Path, seconds: float) -> None:
    path = root / CELL / "cell.json"
    told = json.loads(path.read_text())
    path.write_text(json.dumps({**told, "block": {"warmup_s": seconds, "iops": {}}}))


def test_cpu_energy_and_io_are_of_the_same_seconds(archive: Any, synthetic: Any) -> None:
    """One core works all the time for 1,000 IOPS: 1,000 us an IO, whatever the warm-up was."""
    root = archive(12, 1, 12.5)  # of 8 threads
    shaped(synthetic, root, "client0", [1.0] * 3 + [IOPS] * 9)
    warm_up(root, 3.0)
    (cell,) = build(root).cells
    assert cell.figures["iops"] == pytest.approx(1000)
    assert cell.figures["osd_cpu_us_per_io"] == pytest.approx(1000, rel=0.01)
    assert cell.figures["osd_energy_j_per_io"] == pytest.approx(0.08, rel=0.01)
    assert cell.figures["bandwidth_bytes_per_s"] == pytest.approx(1000 * 4096)
    assert cell.figures["osd_cpu_s_per_gib"] == pytest.approx(1e-3 * (1 << 18), rel=0.01)
    assert cell.figures["clat_ns_mean"] == pytest.approx(2e6, rel=0.01)
    assert cell.figures["clat_ns_max"] < 20e6, "the warm-up had latencies of two seconds"
    assert cell.warnings == ()


def test_without_logs_the_warm_up_stays_in_every_figure(archive: Any, synthetic: Any) -> None:
    """CPU and IOs are of the same seconds then too, and a sentence says which."""
    root = archive(12, 1, 12.5)
    shaped(synthetic, root, "client0", [1.0] * 3 + [IOPS] * 9)
    warm_up(root, 3.0)
    for path in (root / CELL).glob("output.0_*.log.*"):
        path.unlink()
    (cell,) = build(root).cells
    assert cell.figures["iops"] == pytest.approx(750.25)
    assert cell.figures["osd_cpu_us_per_io"] == pytest.approx(1e6 / 750.25, rel=0.01)
    (warning,) = cell.warnings
    assert "so the 3 s of warm-up are in every figure" in warning


@pytest.mark.parametrize(("seconds", "late_s"), [(10, 1.9), (10, 0.4), (60, 1.9), (300, 1.9)])
def test_what_a_process_does_alone_is_not_counted_twice(
    archive: Any, synthetic: Any, seconds: int, late_s: float
) -> None:
    """Two processes share 2,000 IOPS; one that runs alone has all of them."""
    root = archive(seconds, 2, 25.0)
    whole, part = int(late_s), late_s % 1
    alone = [2 * IOPS] * whole + [IOPS * (1 + part)]
    rest = [IOPS] * (seconds - whole - 1)
    shaped(synthetic, root, "client0", [*alone, *rest])
    shaped(synthetic, root, "client1", [*rest, *reversed(alone)], late_s)
    (cell,) = build(root).cells
    assert cell.figures["iops"] == pytest.approx(2 * IOPS, rel=0.0075)
    assert cell.figures["osd_cpu_us_per_io"] == pytest.approx(1000, rel=0.0075)
    assert bool(cell.warnings) == (late_s > seconds / 10)


def test_a_small_skew_without_logs_is_said(archive: Any, synthetic: Any) -> None:
    root = archive(10, 2, 25.0)
    path = root / CELL / "json_output.0.client1"
    told = json.loads(path.read_text())
    path.write_text(json.dumps({**told, "timestamp_ms": told["timestamp_ms"] + 1000}))
    for log in (root / CELL).glob("output.0_*.log.*"):
        log.unlink()
    (cell,) = build(root).cells
    assert any("measured for 1.0 s without the others" in one for one in cell.warnings)


def test_latencies_of_other_seconds_are_said_to_be_so(archive: Any, synthetic: Any) -> None:
    root = archive(12, 1, 12.5)
    shaped(synthetic, root, "client0", [1.0] * 3 + [IOPS] * 9)
    warm_up(root, 3.0)
    for kind in ("clat", "lat", "clat_hist"):
        (root / CELL / f"output.0_{kind}.1.log.client0").unlink()
    (cell,) = build(root).cells
    assert cell.figures["iops"] == pytest.approx(1000)
    (warning,) = cell.warnings
    assert warning.startswith("mean latency and percentiles of reads cover all that fio measured")


def test_a_total_of_perf_over_other_seconds_is_said(archive: Any, synthetic: Any) -> None:
    root = archive(12, 1, 12.5)
    folder = root / CELL / "perf.osd0"
    folder.mkdir()
    (folder / "stat").write_text(
        " Performance counter stats for 'system wide':\n\n     8,000,000,000      cycles\n\n"
        "      16.0 seconds time elapsed\n"
    )
    (cell,) = build(root).cells
    assert cell.figures["osd_cycles_per_io"] == pytest.approx(5e8 / 1000)
    assert any("perf stat counted a total over 16 s" in one for one in cell.warnings)


def test_a_percentile_without_its_tail_is_an_empty_field_with_a_reason(
    archive: Any, synthetic: Any
) -> None:
    """12,000 IOs: 120 are beyond p99, 12 beyond p99.9, and one beyond p99.99."""
    root = archive(12, 1, 12.5)
    built = build(root)
    (cell,) = built.cells
    assert "clat_ns_p99" in cell.figures
    assert "clat_ns_p999" not in cell.figures
    why, one = (f"{ios} of 12,000 IOs were slower than it, 100 are needed" for ios in (12, 1))
    assert cell.withheld == {"clat_ns_p999": why, "clat_ns_p9999": one}
    rows = {row["figure"]: row for row in csv.DictReader(io.StringIO(tidy(built)))}
    assert (rows["clat_ns_p999"]["value"], rows["clat_ns_p999"]["withheld"]) == ("", why)
    assert rows["clat_ns_p99"]["withheld"] == ""
    (told,) = document(built)["tables"][0]["sections"][0]["cells"]
    assert told["withheld"] == cell.withheld
    foot = "Not shown, as fewer than 100 IOs were slower: p99.9 latency, p99.99 latency."
    assert foot in page(built)
    assert ">p99 ms<" in page(built)
    assert ">p99.9 ms<" not in page(built), "on 1280 points, such columns hid those of CPUs"
    assert foot not in markdown(built), "it has no column of p99.9"


def test_p99_too_needs_its_tail(archive: Any, synthetic: Any) -> None:
    root = archive(9, 1, 12.5)
    built = build(root)
    assert set(built.cells[0].withheld) == {"clat_ns_p99", "clat_ns_p999", "clat_ns_p9999"}
    foot = "Not shown, as fewer than 100 IOs were slower: p99 latency."
    assert foot in markdown(built) and "p99 ms" not in markdown(built)


@pytest.mark.parametrize(("seconds", "has_p99", "last"), [(9, False, 98.8), (12, True, 99.0)])
def test_charts_withhold_what_tables_do(
    archive: Any, seconds: int, has_p99: bool, last: float
) -> None:
    """Of a hundred IOs p90 was `-` in the table, and a chart had their p99 and a curve beyond."""
    (table,) = build(archive(seconds, 1, 12.5)).tables
    drawn = {chart.key.split("_randread")[0]: chart for chart in charts(table)}
    assert "clat_ns_mean" in drawn
    assert ("clat_ns_p99" in drawn) is has_p99
    distribution = drawn["distribution"]
    assert isinstance(distribution, Lines)
    assert 100 * (1 - 10 ** -distribution.lines[0].x[-1]) == pytest.approx(last, abs=0.05)


def test_a_stall_at_the_first_ios_is_part_of_every_figure(archive: Any, synthetic: Any) -> None:
    """One volume of two does nothing for 3 s of 20: logs begin when its first IO ends."""
    root = archive(20, 2, 12.5)
    shaped(synthetic, root, "client0", [IOPS] * 20)
    shaped(synthetic, root, "client1", [1.0] * 3 + [IOPS] * 17)
    for log in (root / CELL).glob("output.0_*.log.client1"):
        lines = log.read_text().splitlines(keepends=True)
        log.write_text("".join(lines[3:]))
    (cell,) = build(root).cells
    assert cell.figures["iops"] == pytest.approx(1000 + 850, rel=0.005)
    assert cell.figures["osd_cpu_us_per_io"] == pytest.approx(1e6 / 1850, rel=0.02)


def test_a_sampler_that_began_late_gives_no_cpu_per_io(archive: Any, synthetic: Any) -> None:
    """Two of ten seconds were idle and are not in the samples: CPU per IO would be 125 %."""
    root = archive(10, 1, 12.5)
    shaped(synthetic, root, "client0", [IOPS] * 10)
    output = json.loads((root / CELL / "json_output.0.client0").read_text())
    begun = output["timestamp_ms"] / 1000 - 10.3
    (raw,) = (root / CELL).glob("collectl.osd0/*.raw.gz")
    text = zlib.decompressobj(31).decompress(raw.read_bytes()).decode()  # torn, as a signal ends it
    header, *samples = text.split("\n>>> ")
    late = [text for text in samples if float(text.split()[0]) >= begun + 2]
    raw.write_bytes(gzip.compress("\n>>> ".join([header, *late]).encode()))
    report = build(root)
    (cell,) = report.cells
    assert "osd_cpu_us_per_io" not in cell.figures
    assert "osd0: what was sampled covers 8 of 10 s" in markdown(report)


def test_a_table_says_what_all_its_cells_have_in_common(archive: Any) -> None:
    root = archive(12, 1, 12.5)
    path = root / "results/plan.json"
    plan = json.loads(path.read_text())
    (cell,) = plan["cells"]
    cell["parameters"].update(time=12, ramp=4, iodepth=16, vol_size=256)
    path.write_text(json.dumps(plan))
    foot = "Measured for 12 s, after a ramp of 4 s, iodepth 16, volumes of 256 MiB."
    assert foot in markdown(build(root)) and foot in page(build(root))
    cell["parameters"].update(time={"precision": "2%"}, ramp=0)
    path.write_text(json.dumps(plan))
    assert "Iodepth 16, volumes of 256 MiB." in markdown(build(root))

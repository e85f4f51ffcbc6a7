"""What a report says of why: differences for each IO with intervals, limits, marks, stages."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import pytest

from cbt_crypto.archive.files import Malformed
from cbt_crypto.report import why
from cbt_crypto.report.build import build
from cbt_crypto.report.charts.chart_values import Line, Lines, charts
from cbt_crypto.report.charts.draw import chart_svg
from cbt_crypto.report.markdown import markdown
from cbt_crypto.report.model import ReportCell
from cbt_crypto.results.cell.cycles import Cycle
from cbt_crypto.results.readers.recording import read_recording

pytestmark = pytest.mark.unit

#: Ticks of 1/100 s in each second: user, sys, those of the busiest thread, its number and name.
QUIET = {
    "tp_osd_tp": [40, 20, 15, 7, "tp_osd_tp"],
    "msgr-worker": [20, 10, 12, 8, "msgr-worker-0"],
    "client": [30, 10, 20, 9, "fio"],
}
DMCRYPT = {**QUIET, "dmcrypt_write": [0, 97, 97, 5, "dmcrypt_write/25"]}
#: A compaction of 3 s.
COMPACTING = {6: {"rocksdb:low": [60, 20, 80, 4, "rocksdb:low0"]}}
FULL = {"top_cpu": [0, 100]}


def waiting(us: int) -> dict[str, Any]:
    """Threads of OSDs that waited so long for a CPU each second."""
    return {"tp_osd_tp": [40, 20, 15, 7, "tp_osd_tp", us]}


def record(
    cell: Path,
    threads: Mapping[str, Any],
    *,
    also: Mapping[int, Mapping[str, Any]] = {},
    header: Mapping[str, Any] = {},
    **line: Any,
) -> None:
    """Write the recording of every host of a cell; `also` has threads of single seconds."""
    document = json.loads((cell / "cell.json").read_text())
    began = int(document["started"])
    header = {"format": 1, "t": began - 2, "hz": 100, "cpus": 8, "link_mbit": {"eth0": 1000},
              **header}  # fmt: skip
    lines = [json.dumps(header)]
    for second in range(-1, 30):
        sample = {
            "t": began + second,
            # user, nice, sys, idle, iowait, irq, softirq, steal
            "cpu": [100, 0, 100, 600, 0, 0, 0, 0],
            "ctxt": 1000,
            "top_cpu": [0, 50],
            "net": {"eth0": [100, 1, 1000, 1]},
            "disk": {"vdb": [0, 500, 0, 900, 0, 8000, 400, 500]},
            "threads": {**threads, **also.get(second, {})},
            "every": 1,
            **line,
        }
        lines.append(json.dumps(sample))
    for host in {*document["osd_hosts"], *document["clients"]}:
        (cell / f"recording.{host}").write_text("\n".join(lines) + "\n")


@pytest.fixture
def recorded(repeated: Path) -> Callable[..., dict[str, ReportCell]]:
    """The rows of random reads, LUKS with other threads or lines than the others'."""

    def of(luks: Mapping[str, Any] = QUIET, **line: Any) -> dict[str, ReportCell]:
        for file in repeated.glob("results/*/id-*/cell.json"):
            document = json.loads(file.read_text())
            is_luks = document["configuration"] == "LUKS"
            record(file.parent, luks if is_luks else QUIET, **(line if is_luks else {}))
        report = build(repeated)
        (section, *_) = report.tables[0].sections
        return {cell.name: cell for cell in section.cells}

    return of


def test_what_moved_most_comes_first_with_its_interval(recorded: Any) -> None:
    luks = recorded(DMCRYPT)["LUKS"]
    first, *more = luks.why
    # 0.97 cores a host for half of the IOPS
    assert first.startswith("CPU of dmcrypt_write per IO +")
    assert " to +" in first
    assert "its busiest thread took 97 % of a core" in first
    assert len(more) <= 2
    assert luks.limit == "one thread of the OSDs"
    assert "limited by one thread (dmcrypt_write on " in luks.warnings[0]


def test_processor_time_is_said_where_throughput_has_no_verdict(
    repeated: Path, recorded: Any
) -> None:
    """A noisy machine said nothing at all of LUKS, whose workers took a third of each IO's time."""
    busy = {**QUIET, "kcryptd": [0, 97, 0, 5, "kworker/u4:1"]}
    recorded(DMCRYPT)
    for file in repeated.glob("results/*/id-*/cell.json"):
        if json.loads(file.read_text())["configuration"] == "control":
            record(file.parent, busy, ctxt=9000)
    (section, *_) = build(repeated).tables[0].sections
    control = next(cell for cell in section.cells if cell.name == "control")
    assert control.comparisons["iops"].differs is False
    (only,) = control.why
    assert only.startswith("CPU of kcryptd per IO +"), "of context switches nothing, sure or not"
    said = " ".join(build(repeated).headline)
    assert "A part of its CPU time is sure" not in said, "of rows beside a control that moves"
    # All of an IO's work is on all hosts.
    for place in repeated.glob("results/*/*/recording.*0"):
        place.unlink()
    (section, *_) = build(repeated).tables[0].sections
    assert next(cell for cell in section.cells if cell.name == "control").why == ()


def test_of_many_short_threads_none_is_the_busiest(recorded: Any) -> None:
    """ "Its busiest thread took 0 % of a core" beside 40 ms of each IO."""
    luks = recorded({**QUIET, "kcryptd": [0, 97, 0, 5, "kworker/u4:1"]})["LUKS"]
    assert luks.why[0].startswith("CPU of kcryptd per IO +")
    assert "busiest thread" not in luks.why[0]


def test_processor_time_that_is_not_sure_is_said_as_that(repeated: Path, recorded: Any) -> None:
    """Half more CPU time of each IO was in the table, and in no sentence on why."""
    half = {kind: [n // 2 for n in used[:3]] + used[3:] for kind, used in QUIET.items()}
    recorded(half, ctxt=9000)
    for file in repeated.glob("results/*/id-*/cell.json"):
        document = json.loads(file.read_text())
        if document["configuration"] == "LUKS":
            ticks = 36 if document["iteration"] == 0 else 15
            kcryptd = [0, ticks, ticks, 5, "kcryptd/253:0"]
            used = {**half, "kcryptd": kcryptd, "kworker": [0, ticks // 2, 1, 6, "kworker/0:1"]}
            record(file.parent, used, ctxt=9000)
    (section, *_) = build(repeated).tables[0].sections
    luks = next(cell for cell in section.cells if cell.name == "LUKS")
    assert len(luks.why) == 3 and luks.why[0].startswith("Context switches of OSD hosts")
    assert re.match(
        r"CPU of kcryptd .* \(\+.* to \+.*; not significant over all comparisons\)", luks.why[-1]
    )


def test_where_nothing_moved_it_is_not_explained(recorded: Any) -> None:
    half = {kind: [n // 2 for n in used[:3]] + used[3:] for kind, used in QUIET.items()}
    rows = recorded(half, ctxt=500, net={"eth0": [50, 1, 500, 1]},
                    disk={"vdb": [0, 250, 0, 450, 0, 4000, 200, 250]})  # fmt: skip
    assert rows["LUKS"].why == (why.NOT_EXPLAINED,)
    assert rows["Unencrypted"].why == rows["control"].why == ()


@pytest.mark.parametrize(
    ("threads", "line", "kind"),
    [
        (QUIET, {}, ""),
        ({**QUIET, "client": [90, 8, 98, 9, "fio"]}, {}, "a client's thread"),
        (
            {**QUIET, "other": [99, 0, 99, 3, "stress-ng"], **waiting(400_000)},
            {**FULL, "cpu": [250, 0, 100, 450, 0, 0, 0, 0]},
            "other processes",
        ),
        # As on a host with many cores: one is another's, and nobody knows whether Ceph waits.
        ({**QUIET, "other": [99, 0, 99, 3, "backup"]},
         {**FULL, "cpu": [250, 0, 100, 450, 0, 0, 0, 0]}, ""),
        (QUIET, FULL, ""),
        # As beside work of a lower priority, for which Ceph's threads hardly wait.
        ({**QUIET, "other": [99, 0, 99, 3, "nice"], **waiting(50_000)},
         {**FULL, "cpu": [250, 0, 100, 0, 0, 0, 0, 0]}, ""),
        (QUIET, {"net": {"eth0": [100, 1, 118_000_000, 9]}}, "a network link"),
        # As `tc qdisc add dev eth0 root tbf rate 100mbit` lets it: what it sends, and that alone.
        (QUIET, {"net": {"eth0": [100, 1, 12_000_000, 9]},
                 "header": {"shaped_bytes_per_s": {"eth0": 12_500_000}}}, "a network link"),
        (QUIET, {"net": {"eth0": [40_000_000, 9, 100, 1]},
                 "header": {"shaped_bytes_per_s": {"eth0": 12_500_000}}}, ""),
        (QUIET, {"net": {"lo": [12_000_000, 9, 12_000_000, 9]},
                 "header": {"shaped_bytes_per_s": {"lo": 12_500_000}}}, "a network link"),
        (QUIET, {"disk": {"vdb": [0, 500, 0, 9000, 0, 8000, 990, 0]}}, "a device"),
        (QUIET, {"disk": {"vdb": [0, 500, 0, 500, 0, 8000, 990, 0]}}, ""),
        ({**QUIET, "tp_osd_tp": [450, 250, 15, 7, "tp_osd_tp"]},
         {"cpu": [500, 0, 290, 10, 0, 0, 0, 0], "top_cpu": [0, 100]}, "all CPUs of a host"),
        ({**QUIET, "tp_osd_tp": [140, 40, 15, 7, "tp_osd_tp", 900_000]}, FULL, "one CPU"),
    ],
)  # fmt: skip
def test_only_what_was_full_is_the_limit(recorded: Any, threads: Any, line: Any, kind: str) -> None:
    rows = recorded(threads, **line)
    assert rows["LUKS"].limit == kind
    assert rows["control"].limit == rows["Unencrypted"].limit == ""


def test_other_processes_that_ended_unseen_are_not_named(recorded: Any) -> None:
    rows = recorded({**QUIET, **waiting(400_000)}, **FULL, cpu=[250, 0, 100, 450, 0, 0, 0, 0])
    (limit,) = [text for text in rows["LUKS"].warnings if "other processes" in text]
    assert limit.endswith(" cores)") and "(;" not in limit and ", most of all" not in limit


def test_nodes_of_a_lab_on_one_kernel_are_not_others_to_each_other(recorded: Any) -> None:
    """The kernel tells each of them what all of them use; what they do themselves is known."""
    ceph = {**QUIET, "tp_osd_tp": [100, 50, 60, 7, "tp_osd_tp", 900_000]}
    # Three hosts with 2.2 cores each, and 0.2 of others.
    used = {"cpu": [460, 0, 220, 120, 0, 0, 0, 0], **FULL}
    assert recorded(ceph, **used)["LUKS"].limit == "other processes"
    assert recorded(ceph, **used, header={"boot": "26c0"})["LUKS"].limit == "one CPU"


def test_a_limit_beside_the_storage_is_in_the_headline(repeated: Path, recorded: Any) -> None:
    recorded({**QUIET, "client": [90, 8, 98, 9, "fio"]})
    report = build(repeated)
    (limit,) = [one for one in report.limits if "a client's thread" in one]
    rows = len(report.cells)
    assert limit.startswith(f"Limited by a client's thread in {rows // 3} of {rows} rows")
    recorded(DMCRYPT)
    assert not [one for one in build(repeated).limits if "Limited" in one]


def test_a_compaction_is_a_mark_at_its_second(recorded: Any) -> None:
    more = {second: COMPACTING[6] for second in (6, 7, 8)}
    luks = recorded(QUIET, also=more)["LUKS"]
    for run in luks.runs:
        marks = run.recorded.marks
        assert {mark.what for mark in marks} == {"compaction"}
        assert {mark.end_s - mark.start_s for mark in marks} == {3.0}
        assert {mark.start_s - int(run.started or 0) for mark in marks} == {5.0}


def test_stages_add_up_to_the_mean_latency(repeated: Path) -> None:
    """Replicas were a part of commits, and longer; and the mean was not the one of the table."""
    for file in repeated.glob("results/*/id-*/cell.json"):
        document = json.loads(file.read_text())
        times = {"op_w_latency": 1.5, "op_w_process_latency": 1.2, "op_w_prepare_latency": 0.2}
        # A round of twice as many operations, each of half as long.
        count = 1000 * (1 + (document["iteration"] == 0))
        document["osd_perf"] = {"osd/op": count, "bluestore/kv_flush_lat/avgcount": 10,
                                "bluestore/kv_flush_lat/sum": 0.005,
                                "osd/subop_w_latency/avgcount": 10,
                                "osd/subop_w_latency/sum": 0.02}  # fmt: skip
        for name, s in times.items():
            document["osd_perf"] |= {f"osd/{name}/avgcount": count, f"osd/{name}/sum": s}
        file.write_text(json.dumps(document))
    report = build(repeated)
    written = [cell for cell in report.cells if cell.direction == "write"]
    assert written
    for cell in written:
        stages = dict(cell.stages)
        parts = ("client and network", "OSD queue", "OSD work", "commits and replicas")
        assert sum(stages[part] for part in parts) == pytest.approx(stages["mean latency"])
        assert stages["mean latency"] == pytest.approx(cell.figures["clat_ns_mean"] / 1000)
        rounds = len(cell.runs)
        assert stages["OSD queue"] == pytest.approx(300 * rounds / (rounds + 1)), "by operations"
        assert stages["meanwhile: flushes"] == pytest.approx(500)
        assert stages["meanwhile: replicas"] > stages["commits and replicas"]
        assert not any("of which" in name for name in stages)
    text = markdown(report)
    assert "Where a write's mean latency was spent" in text
    assert "Where a read's" not in text
    assert "one may exceed the part beside it" in text


@pytest.mark.parametrize(("prepare", "shards"), [(0.21, None), (0.05, 150.0)])
def test_reads_have_stages_too(repeated: Path, prepare: float, shards: Optional[float]) -> None:
    """A reply that waits for nobody is sent before the OSD's work is measured."""
    times = {"op_r_latency": 0.3, "op_r_process_latency": 0.2, "op_r_prepare_latency": prepare}
    for file in repeated.glob("results/*/id-*/cell.json"):
        document = json.loads(file.read_text())
        perf = {"osd/op": 1000, "bluestore/read_lat/avgcount": 10, "bluestore/read_lat/sum": 0.001}
        for name, s in times.items():
            perf |= {f"osd/{name}/avgcount": 1000, f"osd/{name}/sum": s}
        file.write_text(json.dumps({**document, "osd_perf": perf}))
    report = build(repeated)
    reads = [cell for cell in report.cells if cell.direction == "read"]
    assert reads
    for cell in reads:
        stages = dict(cell.stages)
        assert stages["mean latency"] == pytest.approx(cell.figures["clat_ns_mean"] / 1000)
        assert stages["meanwhile: BlueStore"] == pytest.approx(100)
        parts = {name: us for name, us in stages.items() if name not in (
            "mean latency", "meanwhile: BlueStore")}  # fmt: skip
        assert sum(parts.values()) == pytest.approx(stages["mean latency"])
        assert parts.get("other OSDs' shards") == (shards and pytest.approx(shards))
        assert parts["OSD queue"] == pytest.approx(100)
    text = markdown(report)
    assert "Where a read's mean latency was spent" in text and "a write's" not in text


def test_an_archive_of_before_has_none_of_it(repeated: Path) -> None:
    report = build(repeated)
    assert not any(cell.why or cell.limit or cell.stages for cell in report.cells)
    assert "Where a write's mean" not in markdown(report)


def test_a_torn_recording_is_read_and_a_damaged_one_is_named(repeated: Path, recorded: Any) -> None:
    recorded(DMCRYPT)
    files = sorted(repeated.glob("results/*/id-*/recording.*"))
    whole = len(read_recording(files[0]).epoch_s)
    files[0].write_bytes(files[0].read_bytes()[:-20])
    assert len(read_recording(files[0]).epoch_s) == whole - 1
    files[1].write_text('{"format": 1}\n{}\n')
    with pytest.raises(Malformed):
        read_recording(files[1])
    assert any("recording" in text for cell in build(repeated).cells for text in cell.warnings)


def test_a_compaction_has_its_seconds_below_the_latency(repeated: Path, recorded: Any) -> None:
    recorded(QUIET, also={second: COMPACTING[6] for second in (6, 7, 8)})
    (chart, *_) = [c for c in charts(build(repeated).tables[0]) if c.key.startswith("clat_ns_mean")]
    assert isinstance(chart, Lines)
    (luks,) = [line for line in chart.lines if line.name.startswith("LUKS")]
    assert luks.events
    assert all(what.startswith("compaction on ") for *_, what in luks.events)
    drawn = chart_svg(chart, {})
    assert drawn.count("LUKS: compaction on ") >= len(luks.events)
    assert "Seconds of compaction:" in drawn


def test_compactions_and_flushes_have_lanes_of_their_own() -> None:
    """They shared one, under the heading `Seconds of compaction or flush`."""
    events = ((1.0, 4.0, "flush on a"), (2.0, 3.0, "compaction on a"))
    lines = tuple(Line(name, (1, 2, 3, 4), (1.0,) * 4, events=events) for name in ("A", "B"))
    drawn = chart_svg(Lines("key", "title", "seconds", "ms", lines), {})
    at = re.findall(r'y="([\d.]+)"[^>]*><title>(\w: \w+) on a', drawn)
    assert len(at) >= 4 and len({y for y, _ in at}) == 4, "a lane for each line and kind"
    order = [what for y, what in sorted(at, key=lambda one: float(one[0]))]
    assert list(dict.fromkeys(order)) == ["A: compaction", "B: compaction", "A: flush", "B: flush"]
    assert drawn.index("Seconds of compaction:") < drawn.index("Seconds of flush:")


def test_a_cycle_is_said_where_most_runs_have_it(recorded: Any) -> None:
    runs = recorded(QUIET)["LUKS"].runs
    shared = Cycle("read", 12.2, ("rocksdb:low",))

    def said(*cycles: Optional[Cycle]) -> list[str]:
        found = zip(runs, cycles)
        beside = [
            replace(run, recorded=replace(run.recorded, cycles=(one,) if one else ()))
            for run, one in found
        ]
        return list(why.cycles_of_row(beside, "read"))

    assert said(*[None] * len(runs)) == []
    assert said(shared, *[None] * (len(runs) - 1)) == []
    (sentence,) = said(*[shared] * len(runs))
    assert sentence == (
        f"latency rises and falls every 12.2 s (in {len(runs)} of {len(runs)} cells), and so does "
        "the work of RocksDB's compaction"
    )
    assert list(why.cycles_of_row(runs, "write")) == []


def test_idle_states_and_frequency_have_a_table(repeated: Path, recorded: Any) -> None:
    recorded(QUIET, header={"idle_states": ["POLL", "C6"]}, idle=[80_000, 4_000_000], mhz=2400)
    (grid,) = list(why.grids(build(repeated).tables[0]))
    assert grid.title.startswith("Idle states of OSD hosts")
    ((_, rows),) = grid.sections
    # 31 samples of 32 s, 8 CPUs
    read = next(row for row in rows if "LUKS" in row[0])
    shown = (list(grid.headings[1:]), list(read[1:]))
    assert shown == (["POLL", "C6", "GHz"], ["1.00", "50.0", "2.40"]), "as all tables write numbers"
    assert "Idle states of OSD hosts" in markdown(build(repeated))


def test_slow_operations_are_marks_and_in_the_row(repeated: Path, recorded: Any) -> None:
    for file in repeated.glob("results/*/id-*/cell.json"):
        cell = json.loads(file.read_text())
        if cell["configuration"] == "LUKS":
            (host, *_) = cell["osd_hosts"]
            cell["slow_ops"] = [
                {"osd": "osd.1", "host": host, "what": "osd_op", "began": cell["started"] + after,
                 "seconds": seconds} for after, seconds in ((4.0, 1.25), (5.0, 2.5), (-90.0, 30.0))
            ]  # fmt: skip
        file.write_text(json.dumps(cell))
    rows = recorded()
    (said,) = [text for text in rows["LUKS"].warnings if "slow operation" in text]
    assert said == (
        "8 slow operations of a second or longer in 4 of 4 cells; "
        "the longest took 2.5 s on osd.1 (osd_op)"
    )
    assert not any("slow" in text for text in rows["Unencrypted"].warnings)
    (chart, *_) = [c for c in charts(build(repeated).tables[0]) if c.key.startswith("clat_ns_mean")]
    assert "LUKS: slow operation on osd.1 (osd_op)" in chart_svg(chart, {})


def test_full_processors_are_said_once(tmp_path: Path, synthetic: Any) -> None:
    """One note had a host 97 % busy, and the next one had it over 95 % busy, in fewer rows."""
    campaign = synthetic.SyntheticCampaign(
        [synthetic.SyntheticScenario("rbd", 1, 1, (4096,), ("randread",))], ["Unencrypted"],
        lambda cell: synthetic.Load(1000.0, 2.0), cpu=lambda cell: {"user": 60.0, "sys": 38.0},
        seconds=12,
    )  # fmt: skip
    archive = Path(synthetic.write_archive(campaign, tmp_path / "archive"))
    for samples in archive.glob("results/*/*/collectl.client*"):
        shutil.rmtree(samples)
    for is_recorded in (False, True):
        for file in archive.glob("results/*/id-*/cell.json") if is_recorded else ():
            ceph = {**QUIET, "tp_osd_tp": [450, 250, 15, 7, "tp_osd_tp"]}
            record(file.parent, ceph, cpu=[500, 0, 290, 10, 0, 0, 0, 0], top_cpu=[0, 100])
        (cell,) = build(archive).cells
        said = [text for text in cell.warnings if "busy" in text]
        if is_recorded:
            assert said == ["limited by all CPUs of osd0 (99 % busy in the median second)"]
        else:
            assert said == ["processors saturated (over 95 % busy on average): osd0"]

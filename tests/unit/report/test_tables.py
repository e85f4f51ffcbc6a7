from __future__ import annotations

import csv
import io
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from lxml import html
from rich.console import Console

from cbt_crypto.archive.documents import PlannedCell
from cbt_crypto.archive.folder import label_of
from cbt_crypto.errors import UsageError
from cbt_crypto.plan.file import read_campaign
from cbt_crypto.plan.order import cells_of
from cbt_crypto.report import ReportOptions, build, show, write
from cbt_crypto.report.comparison import compare as compare_archives
from cbt_crypto.report.document import document, reopened, tidy, wide
from cbt_crypto.report.figures.doubts import notes_of
from cbt_crypto.report.headline import versions
from cbt_crypto.report.markdown import escape, markdown
from cbt_crypto.report.model import Comparison
from cbt_crypto.report.page import page
from cbt_crypto.report_commands import compare, report

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[3]
EMULATED = "emulated CPU: these figures say nothing about real hardware"


def _printed(built, width: int = 100) -> str:
    text = io.StringIO()
    show(built, Console(file=text, width=width))
    return text.getvalue()


def _edit(path, change) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


@pytest.mark.parametrize("width", [100, 120])
def test_the_terminal_table(small, width):
    lines = _printed(build(small), width).splitlines()
    assert all(len(line) <= width for line in lines)
    assert "rbd_multi_client, 4 KiB" in lines
    (luks, _) = [line for line in lines if line.startswith("  LUKS ")]
    (full, _) = [line for line in lines if line.startswith("  Unencrypted ")]
    assert full.count("█") == (10 if width == 120 else 0), "a short name leaves bars as they are"
    words = luks.split()
    assert "50.00" in words and "1,000" in words and "20.0" in words
    assert re.search(r"50\.00 +within run ±\d\.\d ", luks)
    assert any(line.startswith("random reads") for line in lines)


@pytest.mark.parametrize("width", [120, 160])
def test_a_long_name_keeps_its_notes_on_its_line(tmp_path, synthetic, width):
    names = ["Unencrypted", "LUKS + secure messenger"]
    shape = synthetic.SyntheticScenario("rbd", 1, 1, (4096,), ("randread",), 128)
    campaign = synthetic.SyntheticCampaign(
        [shape], names, lambda cell: synthetic.Load(1000.0, 2.0), seconds=8
    )
    built = build(synthetic.write_archive(campaign, tmp_path / "archive"))
    (table,) = built.tables
    (section,) = table.sections
    cells = [replace(cell, warnings=tuple("abcdefghijklm")) for cell in section.cells]
    section = replace(section, cells=(cells[0], replace(cells[1], warnings=tuple("abcehjl"))))
    lines = _printed(replace(built, tables=(replace(table, sections=(section,)),)), width)
    lines = lines.splitlines()
    assert all(len(line) <= width for line in lines)
    (row,) = [line for line in lines if " messenger [1-3,5,8,10,...] " in line]
    assert any(line.startswith("  Unencrypted [1-13] ") for line in lines)
    assert "100.00" in row.split() and "1,000" in row.split()


def test_loss_instead_of_percent(small):
    built = build(small, ReportOptions(loss=True, baseline="LUKS"))
    unencrypted = next(line for line in _printed(built).splitlines() if "  Unencrypted" in line)
    assert "-100.00" in unencrypted.split()
    assert "Percent lost against **LUKS**" in markdown(built)


def test_emulated_hosts_are_said_to_be_in_every_table(repeated):
    small = repeated
    _edit(small / "results/environment.json", lambda e: e["hosts"]["osd0"].update(emulated=True))
    built = build(small)
    assert built.emulated_hosts == ("osd0",)
    # It was the fifth sentence: the losses before it were read as one's own hardware's.
    assert built.headline[0] == f"{EMULATED[:1].upper()}{EMULATED[1:]}."
    assert _printed(built).count(EMULATED) == 2  # the workload's table and the effects
    assert markdown(built).count(EMULATED) == 3
    assert {row["emulated"] for row in csv.DictReader(io.StringIO(tidy(built)))} == {"True"}
    assert document(built)["emulated_note"] == EMULATED


def _cells(archive) -> list[dict]:
    return json.loads((archive / "results/plan.json").read_text())["cells"]


@pytest.mark.parametrize("several", [True, False])
def test_of_archives_only_the_emulated_ones_are_said_to_be(
    repeated, tmp_path, several, measured_again
):
    """Two places' campaigns, and two archives of one configuration each."""
    here = repeated
    if not several:
        of_luks = [c for c in _cells(here) if c["configuration"] == "LUKS"]
        _edit(here / "results/plan.json", lambda plan: plan.update(cells=of_luks))
    there = measured_again(here, tmp_path / "there")
    _edit(there / "results/environment.json", lambda e: e["hosts"]["osd0"].update(emulated=True))
    built = compare_archives({"metal": here, "vm": there}, ReportOptions())
    printed, named = _printed(built, 120), "emulated CPU in vm: its figures say nothing"
    lines = printed.splitlines()
    after = dict(zip(lines, lines[1:]))
    if several:
        assert after["Effect on throughput"].startswith(named), "the effects are of both"
        assert not after["rbd_multi_client, 4 KiB, archive metal"].startswith("emulated")
        assert after["rbd_multi_client, 4 KiB, archive vm"] == EMULATED
    else:
        assert after["rbd_multi_client, 4 KiB"].startswith(named)
    text, rows = page(built), list(csv.DictReader(io.StringIO(tidy(built))))
    told = {row["hardware" if several else "configuration"]: row["emulated"] for row in rows}
    assert told == {"metal": "False", "vm": "True"}
    assert named in text and named in markdown(built)
    assert markdown(reopened(json.dumps(document(built)).encode())) == markdown(built)
    again = measured_again(there, tmp_path / "again")
    both = compare_archives({"a": there, "b": again}, ReportOptions())
    assert " in a" not in markdown(both) and EMULATED in markdown(both)


def test_only_keeps_matching_cells_and_their_baseline(small):
    built = build(small, ReportOptions(only=("luks / randread 4K",)))
    assert [(cell.name, cell.direction) for cell in built.cells] == [
        ("Unencrypted", "read"),
        ("LUKS", "read"),
    ]
    globbed = build(small, ReportOptions(only=("*randwrite*",)))
    assert {cell.direction for cell in globbed.cells} == {"write"}
    with pytest.raises(
        UsageError,
        match=r'--only "raid" matches no cell of the plan, e\.g\. "rbd_multi_client / Unenc',
    ):
        build(small, ReportOptions(only=("raid",)))


def test_labels_are_those_of_the_plan():
    cells = cells_of(read_campaign(Path(__file__).parents[3] / "configs/localhost.yaml"))
    for cell in cells:
        planned = PlannedCell(
            id=cell.id,
            path=cell.path,
            iteration=cell.iteration,
            scenario=cell.scenario.name,
            configuration=cell.configuration,
            parameters=cell.parameters,
        )
        assert label_of(planned) == cell.label


def test_another_baseline(small):
    built = build(small, ReportOptions(baseline="LUKS"))
    percents = {cell.name: cell.comparisons["iops"].percent for cell in built.cells}
    assert percents == pytest.approx({"Unencrypted": 200, "LUKS": 100})
    with pytest.raises(UsageError, match="no cell has configuration 'LUCKS'; did you mean 'LUKS'"):
        build(small, ReportOptions(baseline="LUCKS"))


def test_another_dimension_can_be_compared(tmp_path, synthetic):
    deep = synthetic.SyntheticScenario("rbd", 1, 1, (4096,), ("randread",), 128)
    campaign = synthetic.SyntheticCampaign(
        [deep], ["Default", "Tuned"], lambda cell: synthetic.Load(1000.0, 2.0), seconds=8
    )
    root = synthetic.write_archive(campaign, tmp_path / "archive")

    def shallow(plan):
        for cell in plan["cells"]:
            cell["scenario"] = "rbd"
        plan["cells"][1]["parameters"]["iodepth"] = 1
        plan["cells"][1]["configuration"] = "Default"

    _edit(root / "results/plan.json", shallow)
    for path in root.glob("results/*/*/[cp]*.json"):
        path.write_text(path.read_text().replace('"Tuned"', '"Default"'))
    built = build(root, ReportOptions(baseline="iodepth=128"))
    assert built.baseline_name == "iodepth 128"
    (table,) = built.tables
    (section,) = table.sections
    assert [cell.name for cell in section.cells] == ["128", "1"]
    assert section.cells[1].comparisons["iops"].percent == pytest.approx(100)


def test_parameters_that_vary_get_a_table_each(small):
    def vary(plan):
        for cell in plan["cells"]:
            if cell["parameters"]["mode"] == "randwrite":
                cell["parameters"]["iodepth"] = 1

    _edit(small / "results/plan.json", vary)
    titles = [table.title for table in build(small).tables]
    assert titles == [
        "rbd_multi_client, 4 KiB, iodepth 128",
        "rbd_multi_client, 4 KiB, iodepth 1",
    ]


def test_iterations_are_merged_and_the_drift_of_the_baseline_is_reported(tmp_path, synthetic):
    shape = synthetic.SyntheticScenario("rbd", 1, 1, (4096,), ("randread",))
    campaign = synthetic.SyntheticCampaign(
        [shape], ["Unencrypted", "LUKS"],
        lambda cell: synthetic.Load(1000.0 * (1 + cell.iteration / 10), 2.0),
        seconds=8, iterations=2,
    )  # fmt: skip
    root = synthetic.write_archive(campaign, tmp_path / "archive")
    for path, started in (("00000000/id-00000002", 50.0), ("00000001/id-00000001", 100.0)):
        _edit(root / "results" / path / "cell.json", lambda c, s=started: c.update(started=s))
    _edit(root / "results/00000000/id-00000000/cell.json", lambda c: c.update(started=0.0))
    _edit(root / "results/00000001/id-00000003/cell.json", lambda c: c.update(started=150.0))
    built = build(root)
    ((section,),) = [table.sections for table in built.tables]
    assert section.drift_percent == pytest.approx(10)
    assert [cell.figures["iops"] for cell in section.cells] == pytest.approx([1050, 1050])
    assert "the baseline drifted by +10.0 %" in _printed(built)
    assert len(built.records) == 4


def _four_seconds_later(output):
    output["timestamp_ms"] += 4000


def test_processes_that_begin_far_apart_are_compared_by_their_common_seconds(small):
    cell = small / "results/00000000/id-00000000"
    for kind in ("iops", "clat", "lat", "bw", "clat_hist"):
        path = cell / f"output.0_{kind}.1.log.client0"
        lines = [line.split(",", 1) for line in path.read_text().splitlines()]
        path.write_text("".join(f"{int(time) + 4000},{rest}\n" for time, rest in lines))
    # It prints its output that much later; else it would have stalled for so long.
    _edit(cell / "json_output.0.client0", _four_seconds_later)
    late = next(cell for cell in build(small).cells if cell.is_baseline)
    assert late.runs[0].window is not None
    assert late.runs[0].window.seconds == pytest.approx(8)
    assert late.warnings[0].startswith("a client process measured for 4.0 s while others did not")
    assert late.figures["iops"] == pytest.approx(2000, rel=0.03)
    assert late.figures["iops"] != 2000


def test_clients_that_differ_are_warned_of(small):
    path = small / "results/00000000/id-00000000/json_output.0.client1"
    text = re.sub(r'"iops": 1000\.0', '"iops": 500.0', path.read_text())
    path.write_text(re.sub(r'"(total_ios|N)": 12000', r'"\1": 6000', text))
    cell = next(cell for cell in build(small).cells if cell.is_baseline)
    assert "client client0 did 33 % more than the mean of 2 clients" in cell.warnings


def test_a_warning_stands_beside_its_cells_and_once_below_the_table(small):
    for volume in ("client0", "client1"):
        path = small / f"results/00000000/id-00000000/json_output.0.{volume}"
        path.write_text(f"fio: something happened\n{path.read_text()}")
    (table, *_) = build(small).tables
    notes = notes_of(table)
    assert [note.number for note in notes] == [1, 2]
    assert {note.where for note in notes} == {"Unencrypted, random reads"}
    tree = html.fromstring(page(build(small)))
    (row,) = [tr for tr in tree.xpath("//table[@class='sortable']/tbody/tr") if tr.xpath(".//sup")]
    assert row.xpath(".//th/a/text()") == ["Unencrypted"]
    targets = [link.get("href")[1:] for link in row.xpath(".//sup/a")]
    shown = [tree.get_element_by_id(target).text_content() for target in targets]
    assert [text.split(": ", 1)[1] for text in shown] == [note.text for note in notes]


def test_names_with_commas_are_told_apart(tmp_path, synthetic):
    campaign = synthetic.SyntheticCampaign(
        scenarios=[synthetic.SyntheticScenario("rbd", 1, 1, (4096,), ("randread",))],
        configurations=["No-O, No-C", "O, No-C"],
        load=lambda cell: synthetic.Load(1000, 1.0),
        cpu=lambda cell: {"user": 97.0},
    )
    (table,) = build(synthetic.write_archive(campaign, tmp_path / "archive")).tables
    (note,) = notes_of(table)
    assert note.where == '"No-O, No-C", "O, No-C", random reads'


def test_seconds_without_io_are_counted(small):
    path = small / "results/00000000/id-00000000"
    for host in ("client0", "client1"):
        log = path / f"output.0_iops.1.log.{host}"
        lines = log.read_text().splitlines(keepends=True)
        log.write_text("".join([*lines[:5], *lines[6:]]))
    cell = next(cell for cell in build(small).cells if cell.is_baseline)
    assert "1 of 12 seconds had no IO" in cell.warnings


def test_saturated_nodes_are_warned_of(tmp_path, synthetic):
    shape = synthetic.SyntheticScenario("rbd", 1, 1, (4096,), ("randread",))
    campaign = synthetic.SyntheticCampaign(
        [shape], ["Unencrypted"], lambda cell: synthetic.Load(1000.0, 2.0),
        cpu=lambda cell: {"user": 60.0, "sys": 32.0, "steal": 8.0}, seconds=8,
    )  # fmt: skip
    report = build(synthetic.write_archive(campaign, tmp_path / "a"))
    (cell,) = report.cells
    assert report.limits[-1] == "A hypervisor throttled processors in 1 of 1 rows."
    assert (
        "processors throttled by their hypervisor (over 5 % of the time): osd0, client0"
        in cell.warnings
    )
    campaign = synthetic.SyntheticCampaign(
        [shape], ["Unencrypted"], lambda cell: synthetic.Load(1000.0, 2.0),
        cpu=lambda cell: {"user": 60.0, "sys": 38.0}, seconds=8,
    )  # fmt: skip
    twice = replace(
        campaign, rounds=True, iterations=2,
        cpu=lambda cell: {"user": 60.0, "sys": 38.0 if cell.iteration else 10.0},
    )  # fmt: skip
    (cell,) = build(synthetic.write_archive(twice, tmp_path / "c")).cells
    said = "processors saturated (over 95 % busy on average): osd0, client0, in 1 of 2 cells"
    assert said in cell.warnings
    report = build(synthetic.write_archive(campaign, tmp_path / "b"))
    (cell,) = report.cells
    assert report.limits[-1] == "Processors or network were saturated in 1 of 1 rows."
    assert "processors saturated (over 95 % busy on average): osd0, client0" in cell.warnings


def test_cells_of_before_and_after_an_upgrade(small):
    """A campaign that went on after an upgrade: its report knew the versions of one start."""
    ceph = "ceph version {} (0123abc) reef (stable)"
    then = {"ceph": ceph.format("18.2.7"), "kernel": "6.1.0", "until": 1.7e9}
    now = {"kernel": "6.1.0", "versions": {"ceph": ceph.format("19.2.0")}, "before": [then]}
    _edit(
        small / "results/environment.json", lambda e: [h.update(now) for h in e["hosts"].values()]
    )
    report = build(small)
    assert report.limits[0].startswith("Measured with Ceph 18.2.7 and 19.2.0: the campaign went on")
    assert list(versions(report.environment)) == ["Ceph 18.2.7 and 19.2.0", "kernel 6.1.0"]
    for odd in (7, [7], [{"kernel": [1]}], {"kernel": "x"}):
        now["before"] = odd
        environment = {**report.environment, "hosts": {"a": {**now, "roles": ["osds"]}}}
        assert list(versions(environment)) == ["Ceph 19.2.0", "kernel 6.1.0"]


def test_cells_of_before_and_after_a_change_of_hosts(small):
    """SMT off, another CPU, another version of this program: rounds of both were one row."""
    then = {"smt": "on", "networks": {"eth0": 1}, "cbt-crypto": "0.1.0", "until": 1.7e9}
    now = {"smt": "off", "versions": {"cbt-crypto": "0.2.0"}, "before": [then]}
    _edit(
        small / "results/environment.json", lambda e: [h.update(now) for h in e["hosts"].values()]
    )
    program, hosts = build(small).limits[:2]
    assert program.startswith("Measured with cbt-crypto 0.1.0 and 0.2.0: the campaign went on")
    assert hosts == (
        "The hosts were changed (SMT, network cards) before the campaign went on; cells of before "
        "and after are compared. Measure the older ones again with --again."
    )
    for odd in (7, [7], {"smt": 1}):
        now["before"] = odd
        _edit(
            small / "results/environment.json",
            lambda e: [h.update(now) for h in e["hosts"].values()],
        )
        assert not any("were changed" in limit for limit in build(small).limits)


def test_rounds_of_several_builds_of_one_version(repeated):
    """A developer builds anew below the same prefix, and goes on with the unfinished archive."""

    def ran(number: int, build_id: str) -> None:
        path = sorted(repeated.glob("results/*/id-*/proof.json"))[number]
        daemons = {"osd.0": {"version": "20.3.1", "builds": {"ceph-osd": build_id}}}
        evidence = {"daemons": {**daemons, "osd.1": 7, "mon.a": {"builds": [1]}}}
        overlay = {"overlay": "ceph_build", "options": {}, "present": True, "proved": True,
                   "reason": "", "evidence": evidence}  # fmt: skip
        _edit(path, lambda proof: proof.update(overlays=[overlay]))

    for number, _ in enumerate(repeated.glob("results/*/id-*/proof.json")):
        ran(number, "fb66b3ce")
    assert not any("built anew" in limit for limit in build(repeated).limits)
    ran(0, "0001cafe")
    (said,) = [limit for limit in build(repeated).limits if "built anew" in limit]
    rows = len(build(repeated).cells)
    assert said == (
        f"Ceph was built anew between the rounds of 1 of {rows} rows: cells of before and after "
        "are compared. Measure the older ones again with --again."
    )


def test_an_anonymous_report_names_no_host_and_no_address(small, tmp_path):
    _edit(
        small / "results/environment.json",
        lambda e: e.update(
            ceph_conf={
                "Unencrypted": "mon host = [v2:192.168.10.1:3300] osd0.example fe80::1:2 12:34:56"
            }
        ),
    )
    (small / "results/00000000/id-00000000/collectl.osd0").rename(small / "gone")
    write(build(small, ReportOptions(anonymize=True)), tmp_path / "out")
    for name in ("report.md", "report.csv", "report-wide.csv", "report.json", "report.html"):
        text = (tmp_path / "out" / name).read_text()
        for secret in ("client0", "client1", "osd0", "192.168.10.1", "fe80::1:2", ".example"):
            assert secret not in text, (name, secret)
    conf = json.loads((tmp_path / "out/report.json").read_text())["environment"]["ceph_conf"]
    assert conf == {"Unencrypted": "mon host = [v2:address1:3300] host3 address2 12:34:56"}


def test_one_row_a_figure(small):
    rows = list(csv.DictReader(io.StringIO(tidy(build(small)))))
    luks = [r for r in rows if r["configuration"] == "LUKS" and r["mode"] == "randread"]
    by_figure = {row["figure"]: row for row in luks}
    assert len(by_figure) == len(luks)
    assert by_figure["iops"]["value"] == "1000.0"
    assert float(by_figure["iops"]["percent_of_baseline"]) == pytest.approx(50)
    assert by_figure["iops"]["level"] == "run" and by_figure["iops"]["differs"] == ""
    assert by_figure["clat_ns_p99"]["unit"] == "ns"
    assert by_figure["iops"]["iodepth"] == "128"


def test_one_row_a_cell(small):
    rows = list(csv.DictReader(io.StringIO(wide(build(small)))))
    keys = [(row["configuration"], row["op_size"], row["mode"], row["direction"]) for row in rows]
    assert len(rows) == len(set(keys)) == len(build(small).cells)
    for row, cell in zip(rows, build(small).cells):
        assert float(row["iops"]) == cell.figures["iops"]
        assert float(row["iops_percent"]) == cell.comparisons["iops"].percent


def test_the_notebook_of_the_docs_runs_on_such_files(small, tmp_path):
    """All but pandas itself: the columns that it names are there, in ten lines."""
    write(build(small), tmp_path)
    notebook = json.loads((ROOT / "docs/report.ipynb").read_text())
    cells = [c["source"] for c in notebook["cells"] if c["cell_type"] == "code"]
    lines = [line for cell in cells for line in "".join(cell).splitlines() if line.strip()]
    assert len(lines) <= 10
    named = set(re.findall(r'"([a-z_]+)"', "\n".join(lines)))
    known: set[str] = set()
    for name in ("report.csv", "report-wide.csv"):
        known |= set((tmp_path / name).read_text().splitlines()[0].split(","))
    assert named - {"iops", "workload"} <= known


def test_everything_is_in_the_json(small):
    whole = json.loads(json.dumps(document(build(small)), allow_nan=False))
    section = whole["tables"][0]["sections"][0]
    assert section["mode"] == "randread"
    run = section["cells"][1]["runs"][0]
    assert len(run["series"]["iops"]) == 12
    assert sum(run["clat_histogram"]["count"]) == 2 * 500 * 12
    assert run["proof"]["proved"] is True
    assert len(whole["records"]) == 8
    assert whole["records"][0]["bandwidth_bytes_per_s"] == 1000 * 4096


def test_the_same_archive_gives_the_same_files(small, tmp_path):
    for name in ("one", "other"):
        write(build(small), tmp_path / name)
    names = sorted(p.relative_to(tmp_path / "one") for p in (tmp_path / "one").rglob("*.*"))
    assert len(names) == 5 + 12
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_markdown_leaves_names_as_they_are():
    assert escape("a|b <i> *c*\nd") == r"a\|b &lt;i\> \*c\* d"
    assert escape("@ops HTTPS://x.example www.x ok: wwwx") == (
        "@&#8203;ops HTTPS&#8203;://x.example www&#8203;.x ok: wwwx"
    )


def test_the_command_prints_and_writes(small, tmp_path):
    result = CliRunner().invoke(report, [str(small), "-o", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "rbd_multi_client, 4 KiB" in result.output
    assert (tmp_path / "out/report.html").exists()
    assert list((tmp_path / "out/charts").glob("*.svg"))


def test_a_directory_that_cannot_be_written_is_named(small, tmp_path):
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(report, [str(small), "-o", str(tmp_path / "file")])
    assert "the report cannot be written" in str(result.exception)


def _upstream(small, root):
    """The first cell of an archive as upstream CBT would have left it."""
    cell = small / "results/00000000/id-00000000"
    target = root / "results/00000000/id-aaaaaaaa"
    shutil.copytree(cell, target)
    (target / "cell.json").unlink()
    (target / "proof.json").unlink()
    (target / "benchmark_config.yaml").write_text("cluster: {time: 12, volumes_per_client: 1}\n")
    (root / "results/cbt_config.yaml").write_text("cluster: {osds: [osd0]}\n")
    return root


def test_archives_of_upstream_are_compared_by_name(small, tmp_path):
    ours = _upstream(small, tmp_path / "a")
    slower = _upstream(small, tmp_path / "b")
    for path in (slower / "results").rglob("json_output.*"):
        text = re.sub(r'"iops": 1000\.0', '"iops": 800.0', path.read_text())
        path.write_text(re.sub(r'"(total_ios|N)": 12000', r'"\1": 9600', text))
    result = CliRunner().invoke(
        compare, [f"crc={ours}", f"secure={slower}", "--baseline", "crc", "-o", str(tmp_path / "o")]
    )
    assert result.exit_code == 0, result.exception
    assert "librbdfio, 4 KiB" in result.output
    row = next(line for line in result.output.splitlines() if line.startswith("  secure"))
    assert "80.00" in row.split()
    assert "not proved" in result.output
    whole = json.loads((tmp_path / "o/report.json").read_text())
    figures = whole["tables"][0]["sections"][0]["cells"][0]["figures"]
    assert figures["osd_cpu_user_percent"] == pytest.approx(20, abs=0.1)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["=/x"], "write NAME=DIR"),
        (["/x/crc"], "crc=/x/crc: there is no such directory"),
        (["/x/a", "/y/a/"], "'a' names two archives"),
        (["crc=/nowhere"], "there is no such directory"),
        (["a=/x", "a=/y"], "names two archives"),
    ],
)
def test_compare_says_what_is_wrong(tmp_path, words, reason):
    result = CliRunner().invoke(compare, [*words, "-o", str(tmp_path / "out")])
    assert isinstance(result.exception, UsageError)
    assert reason in str(result.exception)


def test_compare_refuses_an_archive_of_several_configurations(small, tmp_path):
    result = CliRunner().invoke(compare, [f"a={small}", "-o", str(tmp_path / "out")])
    assert "holds 2 configurations" in str(result.exception)


def test_on_a_phone_the_mode_is_below_the_name(small: Path) -> None:
    """Beside it, it left no room on 390 points for the percentage."""
    text = page(build(small))
    assert ".mode { display: none; }" in text.partition("@media screen and (max-width: 40rem)")[2]
    (head, *_) = html.fromstring(text).xpath("//tr[td[contains(@class, 'mode')]]")
    (below,) = head.xpath("th/span[contains(@class, 'mode-below')]/text()")
    assert head.xpath("td[contains(@class, 'mode')]/text()") == [below]


def test_what_intervals_rest_on_names_the_rows_where_it_differs(small: Path) -> None:
    """It said "4 deployments of each" and, below, "both rows on the same 4": of which rows?"""
    table = build(small).tables[0]
    section = table.sections[0]
    base, row = section.cells[:2]
    basis = {"LUKS": "4 of each", "Messenger": "the same 4", "control": "4 of each"}
    cells = [replace(row, name=name, comparisons={"iops": Comparison(90.0, basis=said)})
             for name, said in basis.items()]  # fmt: skip
    several = replace(table, sections=(replace(section, cells=(base, *cells)),))
    assert several.bases == ["4 of each: LUKS, control", "the same 4: Messenger"]
    one = replace(table, sections=(replace(section, cells=(base, cells[0], cells[2])),))
    assert one.bases == ["4 of each"]

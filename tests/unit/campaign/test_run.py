"""A whole campaign on a host of fakes: what is kept, what is torn down, and how it ends."""

from __future__ import annotations

import json
import shutil
import signal
import time
from pathlib import Path
from typing import Any, Callable

import pytest

from cbt_crypto.cluster_overlays import OVERLAYS
from cbt_crypto.cluster_overlays.base import Overlay, Transition, Verdict
from cbt_crypto.cluster_overlays.ceph_options import CephOptions
from cbt_crypto.engine.embedded.ceph import Ceph
from cbt_crypto.hosts.requirement import Requirement
from cbt_crypto.run import campaign
from cbt_crypto.run.cell import measure
from cbt_crypto.run.cell.measure import ScenarioBenchmark
from cbt_crypto.run.locks import Hold, LostHold
from cbt_crypto.run.targets import existing

pytestmark = pytest.mark.unit

TWO = {"rbd_single_client": {"time": 1, "op_size": [4096, 65536]}}
FSID = "bfdf63f4-6581-45a5-a043-ccb5810db781"
FAILING = 'case "$*" in *PATTERN*) echo "fio: pool is full" >&2; exit 5 ;; esac\n'


def cells(host: Any) -> list[dict[str, Any]]:
    """Every cell.json, in the plan's order; an empty one where there is none."""
    plan = json.loads((host.archive / "results" / "plan.json").read_text())
    found = []
    for cell in plan["cells"]:
        path = host.archive / cell["path"] / "cell.json"
        found.append(json.loads(path.read_text()) if path.exists() else {})
    return found


def states(host: Any) -> list[Any]:
    return [cell.get("state") for cell in cells(host)]


def fio_that_fails(host: Any, pattern: str) -> None:
    path = host.directory / "bin" / "fio"
    text = path.read_text()
    host.programs("fio", text.replace("#!/bin/sh\n", "", 1) + FAILING.replace("PATTERN", pattern))


def test_everything_is_kept_and_taken_down(host: Any, no_overlays: None) -> None:
    result = host.cbt(host.write(benchmarks=TWO))
    assert (result.exit_code, states(host)) == (0, ["finished", "finished"])
    assert not host.tmp_dir.exists()
    for cell in cells(host):
        assert cell["reason"] is None
        assert cell["clients"] == cell["osd_hosts"] == ["localhost"]
        assert 0 <= cell["ended"] - cell["started"] < 60
        assert cell["processes"] == [
            {
                "host": "localhost",
                "volume": "0",
                "exit_status": 0,
                "json": "json_output.0.localhost",
                "logs": "output.0",
            }
        ]
        directory = host.archive / "results" / "00000000" / cell["id"]
        assert (directory / "json_output.0.localhost").stat().st_size > 0
        assert json.loads((directory / "proof.json").read_text())["proved"] is True
        assert (directory / "benchmark_config.yaml").exists()
        assert (directory / "collectl.localhost").is_dir()


def test_what_the_archive_says_of_the_run(host: Any, no_overlays: None) -> None:
    path = host.write(cluster={"configurations": {"B": {}, "A": {}}, "baseline": "A"})
    assert host.cbt(path).exit_code == 0
    results = host.archive / "results"
    plan = json.loads((results / "plan.json").read_text())
    assert plan["baseline"] == {"dimension": "configuration", "value": "A"}
    assert list(plan["configurations"]) == ["B", "A"]
    environment = json.loads((results / "environment.json").read_text())
    assert environment["engine"]["name"] == "embedded"
    assert environment["hosts"]["localhost"]["roles"] == ["head", "clients", "osds", "mons", "mgrs"]
    assert set(environment["ceph_conf"]) == {"A", "B"}
    assert "fsid = " in environment["ceph_conf"]["A"]
    assert (results / "cbt_config.yaml").exists()


def test_no_key_is_in_the_archive(
    host: Any, no_overlays: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "cbt_crypto.engine.embedded.daemons.KeyForm.new_key", lambda form: "S3CRETKEY=="
    )
    assert host.cbt(host.write()).exit_code == 0
    for path in host.archive.rglob("*"):
        assert path.is_dir() or b"S3CRETKEY" not in path.read_bytes()


def test_no_password_of_the_file_is_in_anything_that_is_written(
    host: Any, no_overlays: None
) -> None:
    """Those in options of overlays were in plan.json, proof.json, commands.log and the report."""
    if not shutil.which("rados"):
        pytest.skip("needs ceph-common, which knows what options there are")
    OVERLAYS["ceph_options"] = CephOptions
    conf = host.directory / "ceph.conf"
    conf.write_text("[client.rgw]\nrgw keystone admin token = hunter2-of-conf\n")
    secret = {"rgw_keystone_admin_password": "hunter2", "rgw_crypt_kmip_password": 12345678901}
    options = {"ceph_options": {"osd": secret, "client": {"rgw_ldap_secret": "hunter2 long/"}}}
    levels = {"no": {}, "yes": options}
    others = {"2": {}, "4": {"ceph_options": {"osd": {"osd_op_num_shards": 4}}}}
    # What a daemon that reads the file says of it, and what is kept of that.
    host.programs("ceph-osd", "echo \"parse error: 'hunter2 long/', hunter2-of-conf\" >&2; exit 1")
    said = ""
    for of_file in (
        {"configurations": {"Default": {}, "RGW": options}},
        {"matrix": {"rgw": levels, "shards": others}},
    ):
        shutil.rmtree(host.archive, ignore_errors=True)
        cluster = {"conf_file": str(conf), **of_file}
        if "matrix" in of_file:
            cluster["configurations"] = ...
        result = host.cbt(host.write(cluster=cluster), report=True)
        said += result.output
        assert "rgw_ldap_secret" in result.output, "what a configuration is"
        for path in filter(Path.is_file, host.archive.rglob("*")):
            said += f"{path}: {path.read_text(errors='replace')}\n"
    assert "parse error: '***', ***" in said and "rgw_keystone_admin_password" in said
    leaks = [line for line in said.splitlines() if "hunter2" in line or "12345678901" in line]
    assert leaks == []


def test_a_machine_is_warmed_up_once_and_that_is_not_counted(host: Any, no_overlays: None) -> None:
    path = host.write(cluster={"warm_up": 7}, benchmarks=TWO)
    assert host.cbt(path).exit_code == 0
    commands = (host.archive / "results" / "commands.log").read_text().splitlines()
    steps = [line.split("\t")[4] for line in commands]
    assert steps.count("warm up") == 1 and steps.index("warm up") < steps.index("run fio")
    warmed = commands[steps.index("warm up")]
    assert "--runtime=7" in warmed and "--ramp_time=0" in warmed
    assert states(host) == ["finished", "finished"]
    assert not [path for path in host.archive.rglob("*") if "warm" in path.name]


def test_the_same_command_again_measures_nothing(host: Any, no_overlays: None) -> None:
    path = host.write()
    host.cbt(path)
    before = host.snapshot()
    result = host.cbt(path)
    assert result.exit_code == 0
    assert "every cell is in the archive already" in result.output
    assert host.snapshot() == before


def test_a_cell_that_failed_is_measured_again_and_nothing_else(
    host: Any, no_overlays: None
) -> None:
    path = host.write(benchmarks=TWO)
    fio_that_fails(host, "bs=65536")
    result = host.cbt(path)
    assert (result.exit_code, states(host)) == (1, ["finished", "failed"])
    first = cells(host)[0]
    assert cells(host)[1]["reason"] == ("localhost: fio 0 exited with 5: fio: pool is full")
    assert "failed: rbd_single_client / Default / randread 64K" in result.output
    host.programs("fio", (host.directory / "bin" / "fio").read_text().partition('case "$*"')[0])
    result = host.cbt(path)
    assert (result.exit_code, states(host)) == (0, ["finished", "finished"])
    assert cells(host)[0] == first
    assert "cell 1/1" in result.output


def test_after_a_failed_cell_the_cluster_is_built_anew_with_its_volumes(
    host: Any, no_overlays: None
) -> None:
    fio_that_fails(host, "bs=4096")
    result = host.cbt(host.write(benchmarks=TWO))
    assert states(host) == ["failed", "finished"]
    phases = [line.split("] ", 1)[1] for line in result.output.splitlines() if "] " in line]
    assert [phase.split()[0] for phase in phases] == [
        *("deploy", "prefill", "cell"),
        *("deploy", "prefill", "cell"),
        "tear",
    ]
    assert "the cell before it failed" in result.output


class Restart(Overlay):
    name = "again"

    @classmethod
    def absent(cls) -> Overlay:
        return cls.make_absent()

    def transition_to(self, new: Overlay) -> Transition:
        return Transition.RESTART


def test_daemons_are_not_ended_while_a_cell_s_files_come(
    host: Any, no_overlays: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Daemons are ended by our mark, which what brings the files and removes them carries too."""
    order: list[str] = []
    real = ScenarioBenchmark.collect

    def slow(benchmark: ScenarioBenchmark) -> None:
        time.sleep(1)
        real(benchmark)
        order.append("files of a cell are here")

    monkeypatch.setattr(ScenarioBenchmark, "collect", slow)
    monkeypatch.setattr(Ceph, "restart", lambda _: order.append("restart"))
    monkeypatch.setitem(OVERLAYS, "again", Restart)
    cluster = {"configurations": {"A": {}, "B": {"again": {}}}, "rebuild": "needed"}
    host.cbt(host.write(cluster=cluster))
    assert order[:2] == ["files of a cell are here", "restart"]


def test_a_failure_before_a_restart_builds_once_with_the_volumes(
    host: Any, no_overlays: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OVERLAYS, "again", Restart)
    cluster = {"configurations": {"A": {}, "B": {"again": {}}}, "rebuild": "needed"}
    fail_first_attempt(monkeypatch)
    result = host.cbt(host.write(cluster=cluster))
    assert states(host) == ["failed", "finished"]
    assert result.output.count("deploy ") == 2
    assert result.output.count("prefill ") == 2


def fail_first_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first cell fails, whatever its fio says."""
    attempts: list[int] = []
    real = measure.failed_processes

    def judged(outcome: Any, directory: Path) -> None:
        attempts.append(1)
        if len(attempts) == 1:
            outcome["processes"][0]["exit_status"] = 1
        real(outcome, directory)

    monkeypatch.setattr(measure, "failed_processes", judged)


def test_three_failures_in_a_row_are_enough(host: Any, no_overlays: None) -> None:
    fio_that_fails(host, "output-format")
    sizes = {"rbd_single_client": {"time": 1, "op_size": [4096, 8192, 16384, 32768]}}
    result = host.cbt(host.write(benchmarks=sizes))
    assert result.exit_code == 1
    assert states(host) == ["failed", "failed", "failed", None]
    assert "3 cells failed one after another, so the rest was not run; fix" in result.output
    assert not host.tmp_dir.exists()


def test_a_proof_that_fails_is_a_failed_cell(
    host: Any, no_overlays: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unproved(Overlay):
        name = "unproved"

        def judge(self, *_: Any) -> Verdict:
            return Verdict(False, "1 of 1 OSDs is not encrypted", {"osd.0": "plain"})

    monkeypatch.setitem(OVERLAYS, "unproved", Unproved)
    result = host.cbt(host.write(cluster={"configurations": {"A": {"unproved": {}}}}))
    assert result.exit_code == 1
    (cell,) = cells(host)
    assert cell["state"] == "failed"
    assert cell["reason"] == (
        "the configuration is not proved: unproved: 1 of 1 OSDs is not encrypted"
    )
    proof = host.archive / "results" / "00000000" / cell["id"] / "proof.json"
    assert json.loads(proof.read_text())["overlays"][0]["evidence"] == {"osd.0": "plain"}


@pytest.mark.parametrize(
    ("program", "step"),
    [
        ("monmaptool", "make the monitors"),
        ("ceph-osd", "make the OSDs"),
        ("fake-python", "wait for the cluster"),
        ("rbd", "make the volumes"),
        ("fio", "prefill the volumes"),
    ],
)
def test_a_deployment_that_fails_ends_the_campaign(
    host: Any, no_overlays: None, program: str, step: str
) -> None:
    broken = "case $* in *rados*|--enghelp) exec true ;; esac; echo it is broken >&2; exit 9"
    if program == "fio":
        broken = f'[ "$1" != --enghelp ] || {{ echo rbd; exit 0; }}\n{broken}'
    host.programs(program, broken)
    if program == "ceph-osd":
        host.programs(program, f"echo it is broken; {broken}")
    result = host.cbt(host.write())
    assert result.exit_code == 1
    assert f"localhost: {step}: exit status " in result.output
    assert "it is broken" in result.output
    assert states(host) == [None]
    assert not host.tmp_dir.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_campaign_is_taken_down_and_goes_on_where_it_was(
    host: Any, no_overlays: None, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    real: Callable[[Any], None] = ScenarioBenchmark.run
    runs: list[int] = []

    def run(self: Any) -> None:
        runs.append(1)
        if len(runs) == 2:
            signal.raise_signal(number)
        real(self)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(ScenarioBenchmark, "run", run)
    path = host.write(benchmarks=TWO)
    try:
        result = host.cbt(path)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert result.exit_code == 1
    assert "interrupted; run the same command again to go on" in result.output
    assert states(host) == ["finished", None]
    assert not host.tmp_dir.exists()
    result = host.cbt(path)
    assert (result.exit_code, states(host)) == (0, ["finished", "finished"])
    assert "cell 1/1" in result.output


def test_a_fio_that_left_no_exit_status(host: Any, no_overlays: None) -> None:
    grep = shutil.which("grep")
    host.programs("grep", f'case "$*" in *exit_status*) ;; *) exec {grep} "$@" ;; esac')
    assert host.cbt(host.write()).exit_code == 1
    assert cells(host)[0]["reason"] == "localhost: fio 0 left no exit status"


def cluster_is(host: Any, fsid: str) -> None:
    room = '{"name":"rbd","max_avail":1125899906842624}'
    dump = f"echo fsid {fsid}; echo \"pool 2 'rbd' replicated size 2\""
    host.programs("ceph", f'case "$*" in *" df "*) echo \'{room}\'; exit ;; esac; {dump}')


@pytest.fixture
def on_existing(host: Any, no_overlays: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A campaign file, on a cluster that somebody else deployed."""
    absent = dict.fromkeys(("osds", "mons", "mgrs", "osd_file_size"), ...)
    path: Path = host.write(cluster={"use_existing": True, **absent}, benchmarks=TWO)
    for program in ("ceph-osd", "ceph-mon", "ceph-mgr", "monmaptool"):
        host.programs(program, "echo this must not be called; exit 1")
    host.programs("rbd", 'case "$*" in *" info "*) exit 2 ;; esac')
    cluster_is(host, FSID)
    # Who is let in and what it would find are matters of tests of their own.
    monkeypatch.setattr(
        "cbt_crypto.run.targets.existing.of_clients",
        lambda site, cells: Requirement("client", site.clients, "echo ok"),
    )
    monkeypatch.setattr(
        "cbt_crypto.run.targets.existing.discover",
        lambda remote, site, section: existing.Found(site, {}),
    )
    return path


def test_an_existing_cluster_twice(host: Any, on_existing: Path) -> None:
    assert (host.cbt(on_existing).exit_code, states(host)) == (0, ["finished"] * 2)
    assert not host.tmp_dir.exists()
    again = host.cbt(on_existing, "-a", host.directory / "second")
    assert again.exit_code == 0


@pytest.mark.parametrize("is_old", [False, True], ids=["of this version", "of an older one"])
def test_another_existing_cluster_adds_no_cell(host: Any, on_existing: Path, is_old: bool) -> None:
    """Its ceph.conf was led elsewhere, and rounds of both clusters became one row."""
    assert host.cbt(on_existing, "--only", "64K").exit_code == 0
    environment = json.loads((host.archive / "results" / "environment.json").read_text())
    assert environment["fsid"] == FSID
    if is_old:
        journal = host.archive / "results" / "journal.jsonl"
        journal.write_text(journal.read_text().replace(f'"fsid": "{FSID}"', '"old": 1'))
    other = FSID.replace("b", "c")
    cluster_is(host, other)
    done = host.cbt(on_existing)
    if is_old:
        assert (done.exit_code, states(host)) == (0, ["finished"] * 2)
    else:
        assert (done.exit_code, states(host)) == (2, [None, "finished"])
        assert f"leads to the cluster {other} now, and this archive is of {FSID}" in done.output
        cluster_is(host, FSID)
        assert host.cbt(on_existing).exit_code == 0


def test_what_a_killed_campaign_left_is_no_obstacle(host: Any, no_overlays: None) -> None:
    (host.tmp_dir / "ceph").mkdir(parents=True)
    (host.tmp_dir / ".cbt-crypto").touch()
    (host.tmp_dir / "ceph" / "osd.7.block").write_text("old")
    assert host.cbt(host.write()).exit_code == 0
    assert not host.tmp_dir.exists()


def test_only_runs_what_it_selects(host: Any, no_overlays: None) -> None:
    result = host.cbt(host.write(benchmarks=TWO), "--only", "64K")
    assert (result.exit_code, states(host)) == (0, [None, "finished"])


def test_a_plan_touches_nothing(host: Any) -> None:
    before = host.snapshot()
    result = host.cbt(host.write(), "--plan")
    assert result.exit_code == 0
    assert "1 cell to measure; 1 rebuild;" in " ".join(result.output.split())
    assert host.snapshot() == before == {}


def test_hosts_that_are_held_no_more_are_noticed_between_cells(
    host: Any, no_overlays: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One deployment serves all cells: nothing else would look for hours."""

    def check(_: Any) -> None:
        if any(host.archive.glob("results/0*/id-*")):
            raise LostHold("localhost: tmp_dir is in use by another")

    monkeypatch.setattr(Hold, "check", check)
    monkeypatch.setattr(campaign, "HOLD_S", 0.0)
    done = host.cbt(host.write(benchmarks=TWO))
    assert (done.exit_code, states(host)) == (1, ["finished", None])
    assert "is in use by another" in done.output
    assert host.tmp_dir.exists(), "what is another's by now is not taken down"

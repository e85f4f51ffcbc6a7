"""Running again: what is kept, what is run anew, and where the old results go."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Optional

import pytest

from cbt_crypto.engine.embedded.ceph import Ceph
from cbt_crypto.run.journal import left_over

pytestmark = pytest.mark.unit

ONE = {"rbd_single_client": {"time": 1, "op_size": 4096}}
TWO = {"rbd_single_client": {"time": 1, "op_size": [4096, 65536]}}
THREE = {"rbd_single_client": {"time": 1, "op_size": [4096, 65536, 8192]}}


def starts(host: Any) -> dict[int, float]:
    """Op size -> when its cell was measured."""
    found = {}
    for path in host.archive.glob("results/0*/id-*/cell.json"):
        cell = json.loads(path.read_text())
        assert cell["state"] == "finished"
        found[cell["parameters"]["op_size"]] = cell["started"]
    return found


def superseded(host: Any) -> list[Path]:
    return sorted((host.archive / "results" / "superseded").glob("*"))


def test_a_changed_file_keeps_the_cells_that_did_not_change(host: Any, no_overlays: None) -> None:
    host.cbt(host.write(benchmarks=TWO))
    before = starts(host)
    result = host.cbt(host.write(benchmarks=THREE))
    assert result.exit_code == 0
    assert "the campaign has changed: 2 cells are kept, 1 is to be run" in result.output
    assert "  rbd_single_client / Default / randread 8K iodepth 128\n" in result.output
    after = starts(host)
    assert {size: after[size] for size in before} == before
    assert set(after) == {4096, 8192, 65536}
    assert superseded(host) == []


def test_a_cell_that_left_the_file_is_set_aside(host: Any, no_overlays: None) -> None:
    """In silence: somebody who left a configuration out for a night measured it anew."""
    host.cbt(host.write(benchmarks=TWO))
    result = host.cbt(host.write(benchmarks={"rbd_single_client": {"time": 1, "op_size": 4096}}))
    assert "1 cell is kept, 0 are to be run" in result.output
    gone = "1 cell that it has no more goes to results/superseded, and into no report; --only keeps"
    assert gone in result.output
    host.cbt(host.write(benchmarks={"rbd_single_client": {"time": 1, "op_size": [4096, 512]}}))
    assert set(starts(host)) == {4096, 512}
    (old,) = superseded(host)
    assert json.loads((old / "cell.json").read_text())["parameters"]["op_size"] == 65536


def test_another_definition_of_the_same_cell_does_not_destroy_the_old(
    host: Any, no_overlays: None
) -> None:
    configurations = {"A": {}, "B": {}}
    host.cbt(host.write(cluster={"configurations": configurations}))
    settings = {"osd_memory_target": "2G"}
    result = host.cbt(
        host.write(cluster={"configurations": configurations, "settings": settings}), "--only", "A"
    )
    assert result.exit_code == 2
    assert "has no cell in common" in result.output


@pytest.mark.parametrize("other", [None, "b.conf", "a.conf"])
def test_another_ceph_conf_replaces_nothing(
    host: Any, no_overlays: None, other: Optional[str]
) -> None:
    """With -c forgotten, with another, or after an edit, all cells were set aside in silence."""
    path, named = host.write(benchmarks=TWO), host.directory / "a.conf"
    named.write_text("[osd]\nosd_max_backfills = 1\n")
    assert host.cbt(path, "-c", named).exit_code == 0
    before = starts(host)
    words = []
    if other:
        (host.directory / other).write_text("[osd]\nosd_max_backfills = 9\n")
        words = ["-c", host.directory / other]
    result = host.cbt(path, *words)
    assert result.exit_code == 2
    assert "was written for another ceph.conf (-c, conf_file), with" in result.output
    assert (starts(host), superseded(host)) == (before, [])
    named.write_text("[osd]\nosd_max_backfills = 1\n")
    assert "every cell is in the archive already" in host.cbt(path, "-c", named).output


def test_a_ceph_conf_that_is_edited_while_the_campaign_runs(host: Any, no_overlays: None) -> None:
    """The next deployment had what it said then, and the archive said that it had the first."""
    conf, deployed = host.directory / "a.conf", host.directory / "deployed"
    conf.write_text("[osd]\nosd_max_backfills = 1\n")
    there = f"{host.tmp_dir}/ceph/ceph.conf"
    host.programs("ceph-mon", f"grep backfills {there} >> {deployed}; sed -i s/1/9/ {conf}")
    result = host.cbt(host.write(benchmarks=ONE, cluster={"iterations": 2}), "-c", conf)
    assert result.exit_code == 1 and "torn down: nothing is left" in result.output
    assert f"{conf}: was changed since this run read it, so the rest was not run" in result.output
    assert set(deployed.read_text().splitlines()) == {"osd_max_backfills = 1"}
    assert set(starts(host)) == {4096}
    conf.write_text("[osd]\nosd_max_backfills = 1\n")
    host.programs("ceph-mon", "exit 0")
    result = host.cbt(host.write(benchmarks=ONE, cluster={"iterations": 2}), "-c", conf)
    assert result.exit_code == 0 and "cell 1/1" in result.output


def test_a_file_that_is_edited_while_its_hosts_are_checked(host: Any, no_overlays: None) -> None:
    """The cluster was of the new one, and the archive's cells of the old."""
    path = host.write(cluster={"settings": {"osd_memory_target": "2G"}})
    fio = (host.directory / "bin" / "fio").read_text()
    host.programs("fio", f"sed -i s/2G/4G/ {path}\n{fio}")
    result = host.cbt(path)
    assert result.exit_code == 2 and not (host.archive / "results" / "plan.json").exists()
    assert f"{path}: was changed while this run checked the hosts; run the" in result.output
    result = host.cbt(path)
    assert result.exit_code == 0, result.output


def test_an_archive_that_is_whole_says_which_ceph_it_has(host: Any, no_overlays: None) -> None:
    """After an upgrade, it printed the table of the earlier release as if it were of the new."""
    path, environment = host.write(benchmarks=TWO), host.archive / "results" / "environment.json"
    host.cbt(path)
    version = "ceph version 18.2.7 (0a) reef (stable)"
    environment.write_text(json.dumps({"hosts": {"localhost": {"versions": {"ceph": version}}}}))
    assert "already; its hosts had Ceph 18.2.7; --again measures anew" in host.cbt(path).output


def test_what_was_upgraded_is_said_when_it_is_seen(host: Any, no_overlays: None) -> None:
    path, environment = host.write(benchmarks=TWO), host.archive / "results" / "environment.json"
    host.cbt(path, "--only", "64K")
    noted = json.loads(environment.read_text())
    noted["hosts"]["localhost"]["kernel"] = "2.6"
    environment.write_text(json.dumps(noted))
    said = "changed since earlier cells were measured: localhost: kernel\n"
    assert said in host.cbt(path).output


def test_what_is_set_aside_is_said(host: Any, no_overlays: None) -> None:
    """As of a version that defines some of the cells in another way: the file is the same."""
    path = host.write(benchmarks=TWO)
    host.cbt(path)
    cell = min(host.archive.glob("results/0*/id-*/cell.json"))
    cell.write_text(json.dumps({**json.loads(cell.read_text()), "definition": "another"}))
    result = host.cbt(path)
    assert "the campaign has changed: 1 cell is kept, 1 is to be run\n  rbd_" in result.output
    assert len(superseded(host)) == 1


def test_a_cell_whose_state_cannot_be_read_is_kept(host: Any, no_overlays: None) -> None:
    """Its raw results were removed without a word, and it was measured anew."""
    path = host.write(benchmarks=TWO)
    host.cbt(path)
    cell = min(host.archive.glob("results/0*/id-*/cell.json"))
    cell.write_text("{")
    host.cbt(path)
    (old,) = superseded(host)
    assert (old / "cell.json").read_text() == "{" and len(starts(host)) == 2


def test_a_cell_is_repeated_and_the_old_one_kept(host: Any, no_overlays: None) -> None:
    path = host.write(benchmarks=TWO)
    host.cbt(path)
    before = starts(host)
    for number in (1, 2):
        result = host.cbt(path, "--again", "64K")
        assert (result.exit_code, "cell 1/1" in result.output) == (0, True)
        assert len(superseded(host)) == number
    after = starts(host)
    assert after[4096] == before[4096]
    assert after[65536] > before[65536]
    old = json.loads((superseded(host)[0] / "cell.json").read_text())
    assert old["started"] == before[65536]
    assert not list(host.archive.glob("results/superseded/id-*"))


@pytest.mark.parametrize("copied", [0, 19])
@pytest.mark.parametrize("what", ["json_output.*", "proof.json"])
def test_a_cell_whose_results_were_not_copied_is_measured_again(
    host: Any, no_overlays: None, what: str, copied: int
) -> None:
    """What was cut short, as on a full disk, and a lost proof counted as finished for ever."""
    path = host.write(benchmarks=TWO)
    host.cbt(path)
    output = next(host.archive.glob(f"results/0*/id-*/{what}"))
    if copied:
        os.truncate(output, copied)
    else:
        output.unlink()
    result = host.cbt(path)
    assert (result.exit_code, "cell 1/1" in result.output) == (0, True)


def test_the_journal_of_a_run_that_ended_says_so(host: Any, no_overlays: None) -> None:
    host.cbt(host.write())
    text = (host.archive / "results" / "journal.jsonl").read_text()
    events = [json.loads(line)["event"] for line in text.splitlines()]
    assert events == ["begin", "deploy", "end"]
    assert left_over(host.archive) == []


def test_what_a_killed_run_left_is_taken_down_first(
    host: Any, no_overlays: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def kill(*_: Any) -> None:
        raise Killed

    path = host.write()
    with monkeypatch.context() as patched:
        patched.setattr(Ceph, "shutdown", kill)
        with pytest.raises(Killed):
            host.cbt(path)
    assert len(left_over(host.archive)) == 1
    alive = host.cbt(path)
    assert alive.exit_code == 2
    assert "which is running; wait for it or end it" in alive.output
    monkeypatch.setattr("cbt_crypto.run.locks.is_dead", lambda one: None)
    unknown = host.cbt(path)
    assert unknown.exit_code == 2
    assert f"if it is dead: cbt-crypto cleanup {host.archive}" in unknown.output
    monkeypatch.setattr("cbt_crypto.run.locks.is_dead", lambda one: True)
    dead = host.cbt(path)
    assert dead.exit_code == 0
    assert "tearing down what a run that ended early, " in dead.output
    assert left_over(host.archive) == []


def test_cells_with_the_short_names_of_before_are_known(host: Any, no_overlays: None) -> None:
    """An archive of a version that named cells by 8 digits is gone on with, and read."""
    file = host.write()
    assert host.cbt(file).exit_code == 0
    (cell,) = host.archive.glob("results/0*/id-*")
    short = cell.with_name(cell.name[:11])
    cell.rename(short)
    plan = host.archive / "results" / "plan.json"
    plan.write_text(plan.read_text().replace(cell.name, short.name))
    again = host.cbt(file)
    assert again.exit_code == 0 and "every cell is in the archive already" in again.output
    assert cell.is_dir() and not short.exists()

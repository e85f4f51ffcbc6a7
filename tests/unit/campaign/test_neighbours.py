"""The neighbours' load: where it runs, that it is measured, and that too little fails the cell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

import pytest
from fake_hosts import FakeHosts, in_a_shell

from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.errors import RunError, UsageError
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.site import Site
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.file.cluster import Neighbours
from cbt_crypto.plan.layout import site_of
from cbt_crypto.plan.order import cells_of
from cbt_crypto.run.cell import conditions as subject

pytestmark = pytest.mark.unit

LOAD = Neighbours(hosts=["o0"], cpu=2, cpu_load=50, args="--vm 1 --vm-bytes 64M")


@pytest.fixture
def here(tmp_path: Path) -> Site:
    return Site(str(tmp_path), "/c", "o0", (), ())


def test_they_run_on_named_hosts_or_on_those_of_roles(campaign_of: Callable[..., Campaign]) -> None:
    site = site_of(campaign_of().cluster)
    assert subject.hosts_of(LOAD, site) == ("o0",)
    assert subject.hosts_of(Neighbours(roles=["osds", "head"]), site) == ("o0", "o1", "head")


def test_on_a_client_host_they_are_confined_like_clients(
    campaign_of: Callable[..., Campaign], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stack, "wrap_client", lambda self, host, command: f"in-cpuset {command}")
    site, stack = site_of(campaign_of().cluster), Stack([])
    script = subject.start_script(LOAD, stack, site, "c0", "/t/pid")
    assert "'in-cpuset stress-ng --cpu 2 --cpu-load 50 --vm 1 --vm-bytes 64M" in script
    assert "in-cpuset" not in subject.start_script(LOAD, stack, site, "o0", "/t/pid")


def is_there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_no_name_of_a_process_is_one_of_the_neighbours(tmp_path: Path) -> None:
    """Its line breaks made a line of three numbers, so that a stress-ng that ended was there."""
    name = "import ctypes, time; ctypes.CDLL(None).prctl(15, b'\\nS 1 2 4194303\\n', 0, 0, 0); "
    command = [sys.executable, "-c", f"{name}print('up', flush=True); time.sleep(60)"]
    (tmp_path / "pid").write_text("4194303\n")
    look = shell.call(subject.__file__, "neighbours_time", str(tmp_path / "pid"))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        said = subprocess.check_output(["sh", "-euc", f"SUDO=\n{look}"])
        process.kill()
    found = json.loads(said)
    assert (found["cpu_s"], found["processes"]) == (0, 0)


def test_real_processes_are_measured_and_ended(here: Site, programs: Any, wait_for: Any) -> None:
    programs("stress-ng", "while :; do :; done & while :; do :; done")
    hosts = FakeHosts(in_a_shell)
    load = LOAD.model_copy(update={"least_percent": 1})
    with subject.running(load, hosts.remote(here.tmp_dir), Stack([]), here) as seen:
        pid = int((Path(here.tmp_dir) / "neighbours.pid").read_text())
        subprocess.run(["sleep", "0.5"], check=True)
    assert seen["o0"]["cores"] > 0.1 and seen["o0"]["asked"] == 1.0
    assert seen["o0"]["processes"] >= 2
    # Whoever is their parent now has to ask how they ended.
    wait_for(lambda: not is_there(pid))
    assert not (Path(here.tmp_dir) / "neighbours.pid").exists()


def test_one_that_cannot_start_is_an_error_and_nothing_stays(here: Site, programs: Any) -> None:
    programs("stress-ng", "echo unknown stressor >&2; exit 1")
    hosts = FakeHosts(in_a_shell)
    load = subject.running(LOAD, hosts.remote(here.tmp_dir), Stack([]), here)
    with pytest.raises(RunError, match="unknown stressor"), load:
        raise AssertionError("the cell must not run")
    assert "the neighbours' stress-ng does not end" in hosts.calls[-1]["o0"], "it is ended at last"


@pytest.mark.parametrize(
    ("cpu_s", "processes", "sentence"),
    [(1.0, 3, "got 0.1 of the 1 cores"), (10.0, 0, "ended before the cell did")],
)
def test_too_little_fails_the_cell(cpu_s: float, processes: int, sentence: str) -> None:
    after = {"cpu_s": cpu_s, "processes": processes, "time": 10.0}
    found = subject.got(LOAD, {"cpu_s": 0.0, "processes": 3, "time": 0.0}, after)
    with pytest.raises(RunError, match=sentence):
        subject.check_load(LOAD, "o0", found)
    with pytest.raises(RunError, match="got nan of the"):
        subject.check_load(LOAD, "o0", {**found, "processes": 1.0, "cores": float("nan")})
    assert json.loads(json.dumps(found)) == found


def test_a_host_that_is_not_the_campaign_s(campaign_of: Callable[..., Campaign]) -> None:
    with pytest.raises(UsageError, match='"x9" is no host of the campaign'):
        campaign_of(cluster={"neighbours": {"hosts": ["x9"]}})


def test_they_are_part_of_what_a_cell_measures(campaign_of: Callable[..., Campaign]) -> None:
    plain, loaded = campaign_of(), campaign_of(cluster={"neighbours": {"cpu": 3}})
    assert cells_of(plain)[0].definition != cells_of(loaded)[0].definition

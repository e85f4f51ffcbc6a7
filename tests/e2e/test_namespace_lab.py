"""Labs of namespaces: what stands while they are up, and that nothing does afterwards."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from loops import loop_device
from real_labs import namespaces, start_lab

from cbt_crypto.errors import UsageError
from cbt_crypto.lab import access, lifecycle, namespace
from cbt_crypto.lab.shape import Lab, lab_dir

pytestmark = pytest.mark.e2e

NAME = f"namespace-test-{os.getpid()}"
_COMMAND = [sys.executable, "-c", "from cbt_crypto.cli import cbt_crypto; cbt_crypto()", "lab"]
_CAMPAIGN = {
    "cluster": {
        "head": "node0",
        "clients": ["node0"],
        "osds": ["node1"],
        "mons": {"node0": {"a": "node0"}},
        "mgrs": {"node0": {"x": None}},
        "osds_per_node": 2,
        "osd_file_size": "4G",
        "pool_profiles": {"rbd": {"pg_size": 8, "pgp_size": 8, "replication": 1}},
        "settings": {"osd_memory_target": "900M"},
    },
    "benchmarks": {
        "rbd_single_client": {
            "vol_size": 32, "iodepth": 4, "time": 4, "ramp": 0, "op_size": 4096,
            "mode": ["randread", "randwrite"],
        }
    },
}  # fmt: skip

Up = Callable[..., Lab]


@pytest.fixture(scope="module", autouse=True)
def _as_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("namespace nodes need root")


@pytest.fixture
def up() -> Iterator[Up]:
    """Starts this module's lab; afterwards it is down, whatever happened."""

    def start(nodes: int = 2, disks: int = 0) -> Lab:
        return start_lab(NAME, namespaces(nodes, disks=disks))

    yield start
    lifecycle.down(NAME)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(_CAMPAIGN))
    return path


def on(lab: Lab, index: int, script: str) -> str:
    return access.run(lab, lab.nodes[index], script)


def links() -> set[str]:
    own = namespace.bridge_name(lab_dir(NAME))
    return {name for name in os.listdir("/sys/class/net") if name.startswith(own)}


def traces() -> list[str]:
    """Processes, mounts and files of the lab that are there now."""
    place = str(lab_dir(NAME))
    mounts = Path("/proc/mounts").read_text().splitlines()
    found = [f"mount {line}" for line in mounts if place in line]
    found += [f"process {pid}" for pid in processes_with(place)]
    found += [f"loop {file}" for file in files_of_loops() if place in file]
    return [*found, "files"] if lab_dir(NAME).exists() else found


def processes_with(text: str) -> list[int]:
    """Processes that have `text` in their command line or environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            seen = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        except OSError:
            continue
        if text.encode() in seen:
            found.append(int(process.name))
    return found


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_nodes_are_machines_of_their_own_that_reach_each_other(up: Up) -> None:
    lab = up(nodes=3, disks=2)
    names = on(lab, 0, "pdsh -S -w node0,node1,node2 hostname")
    assert sorted(names.splitlines()) == ["node0: node0", "node1: node1", "node2: node2"]
    assert "18.2" in on(lab, 1, "ceph --version")
    sizes = on(lab, 2, "lsblk -ndbo SIZE /dev/disk/by-partlabel/osd-device-*-data")
    assert sizes.split() == [str(2**30)] * 2
    programs = set(on(lab, 1, "ps -e -o comm=").split())
    assert programs <= {"sshd", "sshd-session", "sshd-auth", "bash", "sh", "ps"}


def test_a_node_s_files_are_its_own_and_gone_with_the_lab(up: Up) -> None:
    lab = up()
    on(lab, 0, "touch /etc/mine; rm /usr/bin/fio")
    on(lab, 1, "test ! -e /etc/mine; fio --version")
    lifecycle.down(NAME)
    on(up(), 0, "test ! -e /etc/mine; fio --version")


def test_a_lab_that_is_up_stays_as_it_is(up: Up) -> None:
    on(up(), 0, "touch /tmp/still-here")
    on(up(), 0, "test -e /tmp/still-here")
    with pytest.raises(
        UsageError, match=r"is up with --kind namespace --ceph reef --nodes 2 .*lab down first"
    ):
        up(nodes=1)


def test_down_leaves_nothing_and_can_be_repeated(up: Up) -> None:
    before = links()
    lab = up()
    assert {trace.split()[0] for trace in traces()} == {"files", "process"}
    assert len(links() - before) == 3
    on(lab, 1, "nohup sleep 1000 > /dev/null 2>&1 &")
    assert lifecycle.down(NAME) is True
    assert (traces(), links()) == ([], before)
    assert lifecycle.down(NAME) is False


def test_labs_that_start_at_once_have_networks_of_their_own(tmp_path: Path) -> None:
    directories = [tmp_path / f"lab{number}" for number in range(6)]
    try:
        with ThreadPoolExecutor(len(directories)) as pool:
            assert len(set(pool.map(namespace.make, directories))) == len(directories)
    finally:
        for directory in directories:
            namespace.remove(directory)


def test_data_disks_go_with_the_lab_and_nobody_else_s(up: Up, tmp_path: Path) -> None:
    with loop_device(tmp_path / "theirs", 1 << 20) as theirs:
        lab = up(nodes=1, disks=2)
        shown = on(lab, 0, "lsblk -ndbo TYPE,SIZE /dev/disk/by-partlabel/osd-device-*-data")
        assert shown.split() == ["loop", str(2**30)] * 2
        assert sum(file.startswith(f"{lab.directory}/") for file in files_of_loops()) == 2
        assert lifecycle.down(NAME)
        assert not [file for file in files_of_loops() if str(lab.directory) in file]
        assert str(tmp_path / "theirs") in files_of_loops()
        subprocess.run(["wipefs", theirs], check=True)


def files_of_loops() -> set[str]:
    found = set()
    for file in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            found.add(file.read_text().rstrip("\n"))
    return found


def test_what_a_killed_start_leaves_is_cleared(up: Up) -> None:
    before = links()
    starting = subprocess.Popen(
        [*_COMMAND, "up", "--name", NAME, "--kind", "namespace", "--nodes", "3"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    wait_until(lambda: any("process" in trace for trace in traces()))
    starting.kill()
    starting.wait()
    assert lifecycle.find(NAME) is None
    on(up(), 0, "true")
    lifecycle.down(NAME)
    assert (traces(), links()) == ([], before)


def test_a_node_that_died_is_noticed_and_started_again(up: Up) -> None:
    lab = up()
    for pid in processes_with(str(lab.node_dir(lab.nodes[1]))):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: lifecycle.dead_nodes(lab) == ["node1"])
    with pytest.raises(UsageError, match=f"node1 of lab {NAME} is not running; run lab up again"):
        lifecycle.running(NAME)
    assert lifecycle.dead_nodes(up()) == []


def test_a_command_s_exit_status_comes_through(up: Up) -> None:
    up(nodes=1)
    command = [*_COMMAND, "ssh", "--name", NAME, "node0", "echo", "hi;", "exit", "7"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (7, "hi\n")


def test_a_campaign_runs_and_its_archive_comes_back(up: Up, config: Path, tmp_path: Path) -> None:
    up()
    archive = tmp_path / "archive"
    run_campaign(config, archive, "--only", "randread")
    assert states(archive) == ["finished"]
    said = run_campaign(config, archive)
    assert "cell 1/1" in said and "randwrite" in said and "percent of" in said
    assert states(archive) == ["finished", "finished"]
    assert {"report.html", "report.md", "results"} <= {path.name for path in archive.iterdir()}


def test_a_campaign_runs_over_ssh_where_there_is_no_pdsh(
    up: Up, config: Path, tmp_path: Path
) -> None:
    lab = up()
    for node in (0, 1):
        on(lab, node, "rm /usr/bin/pdsh /usr/bin/pdcp /usr/bin/rpdcp")
    archive = tmp_path / "archive"
    run_campaign(config, archive, "--only", "randread")
    assert states(archive) == ["finished"]
    noted = json.loads((archive / "results" / "environment.json").read_text())
    assert noted["fan_out"] == "ssh"


def test_an_interrupted_campaign_is_taken_down_and_brought_back(
    up: Up, config: Path, tmp_path: Path
) -> None:
    lab = up()
    archive = tmp_path / "archive"
    running = start_campaign(config, archive)
    wait_for_line(running, "cell 2/2")
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=300)
    assert running.returncode == 1
    assert states(archive) == ["finished"]
    assert "ceph-osd" not in on(lab, 1, "ps -e -o comm=")


def test_what_a_killed_run_left_on_the_node_is_brought_back_first(
    up: Up, config: Path, tmp_path: Path
) -> None:
    document = copy.deepcopy(_CAMPAIGN)
    section = document["benchmarks"]["rbd_single_client"]
    # It goes on there, and would end by itself before a busy machine begins the next run.
    section["workloads"] = {
        "short": {"mode": "randread"},
        "long": {"mode": "randwrite", "time": 60},
    }
    del section["mode"]
    config.write_text(yaml.safe_dump(document, sort_keys=False))
    up()
    archive = tmp_path / "archive"
    running = start_campaign(config, archive)
    wait_for_line(running, "cell 2/2")
    running.kill()
    running.wait()
    assert not (archive / "results").exists()
    said = run_campaign(config, archive, "--no-report")
    assert "cell 1/1" in said and "randwrite" in said
    assert states(archive) == ["finished", "finished"]


def run_campaign(config: Path, archive: Path, *options: str) -> str:
    """What a campaign that ended well printed."""
    command = [*_COMMAND, "run", "--name", NAME, str(config), "-a", str(archive), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def start_campaign(config: Path, archive: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*_COMMAND, "run", "--name", NAME, str(config), "-a", str(archive), "--no-report"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip


def wait_for_line(running: subprocess.Popen[str], text: str) -> None:
    assert running.stdout is not None
    said = []
    for line in running.stdout:
        said.append(line)
        if text in line:
            return
    raise AssertionError("".join(said))


def states(archive: Path) -> list[str]:
    cells = archive.glob("results/*/id-*/cell.json")
    return [json.loads(path.read_text())["state"] for path in cells]

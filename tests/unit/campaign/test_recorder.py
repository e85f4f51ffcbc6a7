"""The recorder, run by a real shell: what it writes against the kernel's own account of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbt_crypto.errors import HostError
from cbt_crypto.hosts import samplers
from cbt_crypto.hosts.recorder_on_host import class_of, shaped
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.results.cell.client import read_client_cpu
from cbt_crypto.results.cell.hardware_counters import read_energy
from cbt_crypto.results.readers.recording import read_recording
from cbt_crypto.run import environment

pytestmark = pytest.mark.unit

LET_GO = str(Path(__file__).parents[2] / "programs" / "let_go.sh")
ZONES = {
    "intel-rapl:0": "package-0",
    "intel-rapl:0:0": "core",
    "intel-rapl:0:1": "dram",
    "intel-rapl:1": "psys",
    "intel-rapl-mmio:0": "package-0",
}
RANGE = 1_000_000
#: Works in two threads and in system calls, as a client does, and prints what it took by its end.
WORK = """
import os, resource, threading, time
ends = time.monotonic() + 2.5
done, over = threading.Barrier(3), threading.Event()
def work():
    while time.monotonic() < ends:
        for _ in range(200): os.stat('/')
        sum(range(3000))
    done.wait()
    over.wait()  # a thread that ends takes what it did since the last look with it
threads = [threading.Thread(target=work) for _ in range(2)]
[one.start() for one in threads]; done.wait()
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime, used.ru_stime)
time.sleep(1.5)
over.set()
"""


class Powercap:
    """Files like those of powercap, whose counters a test sets."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for zone, name in ZONES.items():
            (folder / zone).mkdir(parents=True)
            (folder / zone / "name").write_text(f"{name}\n")
            (folder / zone / "max_energy_range_uj").write_text(f"{RANGE}\n")
        self.count(0)

    def count(self, microjoules: int) -> None:
        for zone in ZONES:
            (self.folder / zone / "energy_uj").write_text(f"{microjoules}\n")


@pytest.fixture
def powercap(tmp_path: Path) -> Powercap:
    return Powercap(tmp_path / "powercap")


def _start(run_dir: Path, **options: Any) -> dict[str, str]:
    asked = {"has_clients": True, "powercap": str(run_dir / "none"), **options}
    return {"localhost": samplers.start_recorder(str(run_dir), str(run_dir.parent), **asked)}


def _samples(run_dir: Path) -> list[str]:
    file = run_dir / "energy"
    lines = file.read_text().splitlines() if file.exists() else []
    return [line for line in lines if not line.startswith("#")]


def test_energy_is_written_down_until_the_end(
    powercap: Powercap, run_dir: Path, remote: Remote, wait_for: Any
) -> None:
    scripts = _start(run_dir, powercap=str(powercap.folder), has_clients=False)
    with samplers.recorded(remote, scripts, str(run_dir)):
        wait_for(lambda: _samples(run_dir))
        powercap.count(400_000)
    # the last sample is taken when it is ended, however short ago the one before was
    assert _samples(run_dir)[-1].split()[1:] == ["400000"] * 4
    assert (run_dir / "energy").read_text().splitlines()[:4] == [
        f"# zone {zone} {RANGE} {name}" for zone, name in list(ZONES.items())[:4]
    ]
    assert sorted(path.name for path in run_dir.iterdir()) == ["energy", "recording"]
    # package and memory; neither the core in the package, nor what counts the package again
    assert read_energy(run_dir / "energy").joules[-1] == pytest.approx(0.8)


def test_it_samples_every_second_and_two_names_of_a_host_share_one(
    run_dir: Path, remote: Remote, wait_for: Any
) -> None:
    scripts = _start(run_dir)
    remote.run(scripts, "start")
    pid = (run_dir / ".recording.pid").read_text()
    remote.run(scripts, "start")
    assert (run_dir / ".recording.pid").read_text() == pid
    wait_for(lambda: len((run_dir / "recording").read_text().splitlines()) > 4)
    stop = {"localhost": samplers.stop_recorder(str(run_dir))}
    remote.run(stop, "stop")
    times = read_recording(run_dir / "recording").epoch_s
    assert 0.9 < times[3] - times[2] < 5
    remote.run(stop, "stop again")


def test_it_ends_when_what_is_measured_fails(run_dir: Path, remote: Remote) -> None:
    with (
        pytest.raises(HostError),
        samplers.recorded(remote, _start(run_dir), str(run_dir)),
    ):
        pid = (run_dir / ".recording.pid").read_text().strip()
        remote.run({"localhost": "exit 3"}, "run fio")
    assert not Path(f"/proc/{pid}/exe").exists()
    assert not (run_dir / ".recording.pid").exists()


def test_many_processes_do_not_keep_it_from_starting(run_dir: Path) -> None:
    """Where files were limited, there was no recording, and no word of why."""
    others = "ulimit -n 60\nfor i in $(seq 80); do sleep 30 & done"
    alone = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", LET_GO]
    script = f"SUDO=\n{others}\n{_start(run_dir)['localhost']}\nsleep 3"
    subprocess.run([*alone, "sh", "-c", script], check=True)
    assert len((run_dir / "recording").read_text().splitlines()) > 2


def test_the_cleanup_finds_it_by_our_mark(
    run_dir: Path, remote: Remote, tmp_path: Path, wait_for: Any
) -> None:
    remote.run(_start(run_dir), "start")
    pid = (run_dir / ".recording.pid").read_text().strip()
    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    assert f"CBT_CRYPTO_MARK={tmp_path}@localhost".encode() in variables
    (run_dir / "recording").unlink()
    wait_for(lambda: not Path(f"/proc/{pid}/exe").exists())  # it does not outlive its file


def test_what_is_measured_is_measured_without_it_too(tmp_path: Path) -> None:
    """As where a host's Python cannot start."""
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "python3").chmod(0o755)
    done = _shell(f"PATH={tmp_path}:$PATH\n{_start(tmp_path)['localhost']}\necho after")
    assert (done.returncode, done.stdout) == (0, "after\n")


def test_a_host_without_counters_or_clients_has_one_file(
    run_dir: Path, remote: Remote, wait_for: Any
) -> None:
    with samplers.recorded(remote, _start(run_dir, has_clients=False), str(run_dir)):
        wait_for((run_dir / "recording").exists)
    assert [path.name for path in run_dir.iterdir()] == ["recording"]


def _shell(text: str, mark: str = "") -> subprocess.CompletedProcess[str]:
    script = f"set -eu\nSUDO=\nexport CBT_CRYPTO_MARK={mark}\n{text}"
    return subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)


@pytest.fixture
def worked(tmp_path: Path, run_dir: Path) -> Iterator[tuple[float, float]]:
    """User and system seconds of a client of ours, recorded beside one of somebody else."""
    (tmp_path / "work.py").write_text(WORK)
    # The recorder itself may be called as our interpreter is.
    (tmp_path / "worker").symlink_to(sys.executable)
    start = _start(run_dir, programs=["worker"])["localhost"]
    stop = samplers.stop_recorder(str(run_dir))
    ours = f"{tmp_path}/worker {tmp_path}/work.py"
    strangers = f"env -u CBT_CRYPTO_MARK {ours} > /dev/null &"
    done = _shell(f"{start}\n{strangers}\n{ours}\n{stop}", f"{tmp_path}@host")
    assert done.returncode == 0, done.stderr
    user, system = map(float, done.stdout.split())
    yield user, system


@pytest.mark.alone
def test_it_counts_all_threads_of_clients_and_nobody_elses(
    run_dir: Path, worked: tuple[float, float]
) -> None:
    series = read_client_cpu(run_dir / "clients_cpu")
    assert series.cpu_s[0].tolist() == [0.0, 0.0]
    # what starting and ending takes is in the one and not in the other
    assert series.cpu_s[-1].sum() == pytest.approx(sum(worked), rel=0.1, abs=0.15)
    assert series.cpu_s[-1][0] == pytest.approx(worked[0], rel=0.2, abs=0.2)
    recording = read_recording(run_dir / samplers.RECORDING_FILE)
    client = recording.threads["client"]
    assert client.cpu_s.sum() == pytest.approx(sum(worked), rel=0.15, abs=0.2)
    assert recording.threads["other"].cpu_s.sum() > 0.3 * sum(worked)
    assert client.busiest_s.max() <= 1.2
    assert client.names
    # Three threads of a core each do not wait for longer than they are there, in seconds.
    assert client.waits_s is not None and 0 <= client.waits_s.sum() < 3 * 6
    assert recording.threads["other"].waits_s is None
    assert recording.boot == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_a_thread_has_the_class_of_its_work() -> None:
    said = {
        "kworker/u8:3+kcryptd/252:0": "kcryptd",
        "kworker/0:1-events": "kworker",
        "dmcrypt_write/2": "dmcrypt_write",
        "bstore_kv_final": "bstore_kv_final",
        "msgr-worker-2": "msgr-worker",
        "rocksdb:low0": "rocksdb:low",
        "ms_dispatch": "ceph-rest",
    }
    assert {name: class_of(name, "ceph-rest") for name in said} == said


#: Of iproute2 6.1: lo is limited by tbf, eth1 by netem, eth2 and eth3 are not.
QDISCS = """[{"kind":"tbf","handle":"8004:","dev":"lo","root":true,"refcnt":2,"options":
{"rate":12500000,"burst":262137,"lat":817889}},{"kind":"netem","handle":"8005:","dev":"eth1",
"root":true,"options":{"limit":1000,"rate":{"rate":125000000,"packetoverhead":0}}},{"kind":"htb",
"handle":"8006:","dev":"eth2","root":true,"options":{"r2q":10,"default":"0x1","direct_qlen":1000}},
{"kind":"noqueue","handle":"0:","dev":"eth3","root":true,"options":{}}]"""


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (QDISCS, {"lo": 12_500_000, "eth1": 125_000_000}),
        ("[]", {}),
        ("no JSON, as of an old tc", {}),
        ('[{"dev": "lo"}]', {}),
    ],
)
def test_what_slows_a_link_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, found: dict[str, int]
) -> None:
    (tmp_path / "tc").write_text(f"#!/bin/sh\ncat <<'SAID'\n{said}\nSAID\n")
    (tmp_path / "tc").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert dict(shaped()) == found
    (tmp_path / "tc").unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert dict(shaped()) == {}


def test_what_a_host_says_that_it_has(powercap: Powercap, tmp_path: Path) -> None:
    said = _shell(samplers.names_script(str(powercap.folder)))
    assert said.stdout.split() == ["package-0", "core", "dram", "psys"]
    said = _shell(samplers.names_script(str(tmp_path / "none")))
    assert (said.returncode, said.stdout, said.stderr) == (0, "", "")


def test_a_campaign_brings_it_with_every_cell(
    host: Any, no_overlays: None, powercap: Powercap, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(powercap.folder)
    script = environment.SCRIPT.replace(samplers.POWERCAP, folder)
    monkeypatch.setattr(environment, "SCRIPT", script)
    start = samplers.start_recorder

    def with_zones(*words: Any, **options: Any) -> str:
        return start(*words, **{**options, "powercap": folder})

    monkeypatch.setattr(samplers, "start_recorder", with_zones)
    result = host.cbt(host.write())
    assert result.exit_code == 0, result.output
    noted = json.loads((host.archive / "results/environment.json").read_text())
    assert noted["hosts"]["localhost"]["energy"] == ["package-0", "core", "dram", "psys"]
    (file,) = host.archive.glob("results/00000000/id-*/energy.localhost")
    assert len(read_energy(file).joules) >= 2
    assert len(read_recording(file.with_name("recording.localhost")).epoch_s) >= 2
    assert [path.name for path in file.parent.glob(".[er]*")] == []

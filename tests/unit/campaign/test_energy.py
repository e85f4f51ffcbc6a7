"""The sampler of RAPL's counters, run by a real shell on a directory like the kernel's."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cbt_crypto.engine.embedded import common
from cbt_crypto.errors import HostError
from cbt_crypto.hosts import samplers
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.results.cell.hardware_counters import read_energy
from cbt_crypto.run import environment
from cbt_crypto.run.environment import energy_hosts

pytestmark = pytest.mark.unit

ZONES = {
    "intel-rapl:0": "package-0",
    "intel-rapl:0:0": "core",
    "intel-rapl:0:1": "dram",
    "intel-rapl:1": "psys",
    "intel-rapl-mmio:0": "package-0",
}
RANGE = 1_000_000


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


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    path = tmp_path / "run dir"
    path.mkdir()
    return path


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    return Remote(common, str(tmp_path))


def _samples(run_dir: Path) -> list[str]:
    file = run_dir / "energy"
    lines = file.read_text().splitlines() if file.exists() else []
    return [line for line in lines if not line.startswith("#")]


def test_counters_are_written_down_until_the_end(
    powercap: Powercap,
    run_dir: Path,
    remote: Remote,
    monkeypatch: pytest.MonkeyPatch,
    wait_for: Any,
) -> None:
    monkeypatch.setattr(samplers, "start_energy", _with(samplers.start_energy, powercap))
    with samplers.recorded(remote, ["localhost"], str(run_dir)):
        wait_for(lambda: _samples(run_dir))
        powercap.count(400_000)
    # the last sample is taken when it is ended, however short ago the one before was
    assert _samples(run_dir)[-1].split()[1:] == ["400000"] * 4
    assert (run_dir / "energy").read_text().splitlines()[:4] == [
        f"# zone {zone} {RANGE} {name}" for zone, name in list(ZONES.items())[:4]
    ]
    assert sorted(path.name for path in run_dir.iterdir()) == ["energy"]
    # package and memory; neither the core in the package, nor what counts the package again
    assert read_energy(run_dir / "energy").joules[-1] == pytest.approx(0.8)


def _with(script: Callable[..., str], powercap: Powercap) -> Callable[[str], str]:
    return lambda run_dir: script(run_dir, str(powercap.folder))


def test_it_samples_every_second(
    powercap: Powercap, run_dir: Path, remote: Remote, wait_for: Any
) -> None:
    start = samplers.start_energy(str(run_dir), str(powercap.folder))
    remote.run({"localhost": start}, "start")
    wait_for(lambda: len(_samples(run_dir)) > 2)
    remote.run({"localhost": samplers.stop_energy(str(run_dir))}, "stop")
    times = [float(line.split()[0]) for line in _samples(run_dir)]
    assert 0.9 < times[1] - times[0] < 5
    remote.run({"localhost": samplers.stop_energy(str(run_dir))}, "stop again")


def test_it_ends_when_what_is_measured_fails(
    powercap: Powercap,
    run_dir: Path,
    remote: Remote,
    monkeypatch: pytest.MonkeyPatch,
    wait_for: Any,
) -> None:
    monkeypatch.setattr(samplers, "start_energy", _with(samplers.start_energy, powercap))
    with pytest.raises(HostError), samplers.recorded(remote, ["localhost"], str(run_dir)):
        wait_for(lambda: _samples(run_dir))
        pid = (run_dir / ".energy.pid").read_text().strip()
        remote.run({"localhost": "exit 3"}, "run fio")
    assert not Path(f"/proc/{pid}/exe").exists()
    assert not (run_dir / ".energy.pid").exists()


def test_the_cleanup_finds_it_by_our_mark(
    powercap: Powercap, run_dir: Path, remote: Remote, tmp_path: Path, wait_for: Any
) -> None:
    start = samplers.start_energy(str(run_dir), str(powercap.folder))
    remote.run({"localhost": start}, "start")
    wait_for(lambda: _samples(run_dir))
    pid = (run_dir / ".energy.pid").read_text().strip()
    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    assert f"CBT_CRYPTO_MARK={tmp_path}@localhost".encode() in variables
    (run_dir / "energy").unlink()
    wait_for(lambda: not Path(f"/proc/{pid}/exe").exists())  # it does not outlive its file


def test_a_host_without_counters_has_no_file(
    run_dir: Path, remote: Remote, tmp_path: Path, wait_for: Any
) -> None:
    start = samplers.start_energy(str(run_dir), str(tmp_path / "none"))
    remote.run({"localhost": start}, "start")
    pid = (run_dir / ".energy.pid").read_text().strip()
    wait_for(lambda: not Path(f"/proc/{pid}/exe").exists())
    remote.run({"localhost": samplers.stop_energy(str(run_dir))}, "stop")
    assert list(run_dir.iterdir()) == []


def test_hosts_that_are_not_named_are_not_asked(run_dir: Path) -> None:
    refuses: Any = None
    with samplers.recorded(Remote(refuses, "/t"), [], str(run_dir)):
        pass


def test_what_a_host_says_that_it_has(powercap: Powercap, tmp_path: Path) -> None:
    script = f"set -eu; SUDO=\n{samplers.names_script(str(powercap.folder))}"
    said = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["package-0", "core", "dram", "psys"]
    none = f"set -eu; SUDO=\n{samplers.names_script(str(tmp_path / 'none'))}"
    said = subprocess.run(["sh", "-c", none], capture_output=True, text=True, check=True)
    assert (said.stdout, said.stderr) == ("", "")


def test_only_hosts_with_counters_are_sampled() -> None:
    noted = {"hosts": {"a": {"energy": ["package-0"]}, "b": {"energy": []}, "c": {}, "d": 1}}
    assert energy_hosts(noted) == ["a"]
    assert energy_hosts({}) == energy_hosts({"hosts": 3}) == []


def test_a_campaign_brings_it_with_every_cell(
    host: Any, no_overlays: None, powercap: Powercap, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(powercap.folder)
    script = environment.SCRIPT.replace(samplers.POWERCAP, folder)
    monkeypatch.setattr(environment, "SCRIPT", script)
    monkeypatch.setattr(samplers, "start_energy", _with(samplers.start_energy, powercap))
    result = host.cbt(host.write())
    assert result.exit_code == 0, result.output
    noted = json.loads((host.archive / "results/environment.json").read_text())
    assert noted["hosts"]["localhost"]["energy"] == ["package-0", "core", "dram", "psys"]
    (file,) = host.archive.glob("results/00000000/id-*/energy.localhost")
    assert len(read_energy(file).joules) >= 2
    assert [path.name for path in file.parent.glob(".energy*")] == []

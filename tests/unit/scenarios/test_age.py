"""Preconditioning and steady state: what fio is asked for, and when rounds are alike."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest
from pydantic import ValidationError

from cbt_crypto.benchmarks.base import ClusterCommands
from cbt_crypto.benchmarks.drive import RawDevice
from cbt_crypto.benchmarks.rbd import RbdSingleClient
from cbt_crypto.errors import RunError
from cbt_crypto.hosts.site import Drive, Site
from cbt_crypto.plan.cells import Cell
from cbt_crypto.run.age import reach, window_of

pytestmark = pytest.mark.unit


def single(**options: Any) -> RbdSingleClient:
    return RbdSingleClient(configuration="A", **options)


def options_of(call: list[str]) -> dict[str, str]:
    pairs = (word.removeprefix("--").partition("=") for word in call[2:])
    return {key: value for key, _, value in pairs}


def test_volumes_are_filled_then_written_over_in_sequence_then_at_random(
    site: Site, fakes: Callable[..., Any], commands: ClusterCommands
) -> None:
    scenario = single(vol_size=64, precondition=2, precondition_random=1)
    (volume,) = scenario.volumes(site)
    noted = fakes()
    noted.run(scenario.prefill_scripts([volume], str(noted.directory), commands)["c0"])
    assert noted.status == 0, noted.stderr
    jobs = [options_of(call) for call in noted.calls]
    keys = ("rw", "bs", "loops", "size")
    assert [tuple(job.get(key) for key in keys) for job in jobs] == [
        ("write", str(4 << 20), None, "64M"),
        ("write", str(128 << 10), "2", "64M"),
        ("randwrite", "4096", "1", "64M"),
    ]
    assert volume.written_mb == 4 * 64


def test_a_pass_that_fails_ends_the_preconditioning(
    site: Site, fakes: Callable[..., Any], commands: ClusterCommands
) -> None:
    scenario = single(vol_size=64, precondition_random=1)
    noted = fakes(["*--rw=randwrite*"])
    noted.run(
        scenario.prefill_scripts(scenario.volumes(site), str(noted.directory), commands)["c0"]
    )
    assert noted.status == 1


def test_volumes_of_another_age_are_others(site: Site) -> None:
    kinds = [
        single(), single(precondition=1), single(precondition=2), single(precondition_random=1),
        single(precondition=1, precondition_random=1),
        single(precondition=1, precondition_random=1, precondition_op_size=8192),
    ]  # fmt: skip
    names = [volume.name for kind in kinds for volume in kind.volumes(site)]
    assert len(set(names)) == len(kinds)


def test_a_drive_is_written_over_behind_the_proof() -> None:
    drive = Drive("fast", "c0", ("/dev/x",), "/t/f", path="/dev/x")
    site = Site("/t", "/c", "c0", ("c0",), (), drives=(drive,))
    scenario = RawDevice(configuration="A", drive="fast", precondition=2, prefill=False)
    (volume,) = scenario.volumes(site)
    commands = ClusterCommands("ceph", "rbd", "env")
    (text,) = scenario.prefill_scripts([volume], "/run", commands).values()
    assert text.index("prove ready /dev/x") < text.index("--loops=2")
    assert "--offset=1M" in text, "the mark of ours stays"
    assert not RawDevice(configuration="A", drive="fast", prefill=False).volumes(site)


def test_a_cell_that_asks_for_none_is_that_of_older_archives() -> None:
    old, new = Cell(single(), 0, ""), Cell(single(precondition=1), 0, "")
    assert not any("precondition" in key or "steady" in key for key in old.config)
    assert old.path != new.path
    assert new.parameters["precondition"] == 1
    assert Cell(single(steady_state=10), 0, "").path != old.path
    assert Cell(single(steady_state=10, time=30, ramp=5), 0, "").seconds == 85


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"steady_state_rounds": 9}, "says nothing without steady_state"),
        ({"precondition_op_size": 4096}, "says nothing without precondition_random"),
        ({"steady_state": 5, "time": {"precision": "1%"}}, "does not go with a precision"),
        ({"steady_state": 5, "steady_state_rounds": 4}, "greater than or equal to 5"),
    ],
)
def test_what_does_not_go_together(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        single(**options)


@pytest.mark.parametrize("seed", range(20))
def test_the_window_is_the_specification_s(seed: int) -> None:
    """Range and best linear fit of five values, by numpy's own fit."""
    values = np.random.default_rng(seed).normal(1000, 100, 9)
    window = window_of(list(values))
    last = values[-5:]
    line = np.polynomial.Polynomial.fit(np.arange(5), last, 1)(np.arange(5))
    assert window is not None
    assert window.range_percent == pytest.approx(100 * np.ptp(last) / last.mean())
    assert window.slope_percent == pytest.approx(100 * np.ptp(line) / last.mean())
    assert window.is_steady == (
        np.ptp(last) <= 0.2 * last.mean() and np.ptp(line) <= 0.1 * last.mean()
    )


def test_four_rounds_or_none_with_io_are_never_steady() -> None:
    assert window_of([1.0] * 4) is None
    assert window_of([0.0] * 5) is None


class Rounds:
    """A remote whose client does these IOPS, round by round."""

    def __init__(self, iops: list[float]) -> None:
        self.iops = iops
        self.limits: list[float] = []

    def run(self, scripts: Any, what: str, limit: float) -> dict[str, str]:
        self.limits.append(limit)
        return {"c0": f"{self.iops[len(self.limits) - 1]}\n"}


def reached(iops: list[float], **options: Any) -> tuple[Any, Rounds]:
    remote: Any = Rounds(iops)
    site = Site("/t", "/c", "c0", ("c0",), ())
    commands = ClusterCommands("ceph", "rbd", "env")
    scenario = single(**options)
    return reach(remote, site, scenario, "/t/run", commands, lambda host, text: text), remote


def test_rounds_end_when_five_are_alike() -> None:
    found, remote = reached([2000, 1500, 1200, 1000, 990, 1000, 1010, 1005, 1], steady_state=60)
    assert found["reached"]
    assert found["iops"] == [2000, 1500, 1200, 1000, 990, 1000, 1010, 1005][: len(found["iops"])]
    assert len(found["iops"]) == 8
    assert remote.limits == [180] * 8


def test_a_load_that_never_settles_is_measured_all_the_same() -> None:
    falling = [1000 * 0.8**n for n in range(30)]
    found, _ = reached(falling, steady_state=60)
    assert not found["reached"]
    assert len(found["iops"]) == 25
    found, _ = reached(falling, steady_state=60, steady_state_rounds=7)
    assert len(found["iops"]) == 7


def test_nothing_is_run_where_none_is_asked_for() -> None:
    found, remote = reached([])
    assert found is None
    assert remote.limits == []


def test_what_a_client_prints_is_what_fio_counted(
    site: Site, fakes: Callable[..., Any], commands: ClusterCommands, tmp_path: Path
) -> None:
    """With the real fio, on memory: its JSON by awk, and by Python."""
    fio = shutil.which("fio")
    if fio is None:
        pytest.skip("needs fio")
    load = "--ioengine=null --size=1M --time_based --runtime=1 --numjobs=2 --rw=randrw --name=x"
    scenario = single(steady_state=1)
    folder, kept = tmp_path / "rounds", tmp_path / "kept.json"
    (text,) = scenario.round_scripts(site, str(folder), commands, lambda host, text: text).values()
    before, _, after = text.partition("(s=0;")
    measured = f"{fio} {load} --output-format=json+ --output=json_output.0; echo 0 > exit_status.0"
    printing = after.partition("wait\n")[2]
    script = f"{before}\n{measured}\ncp json_output.0 {kept}\n{printing}"
    done = subprocess.run(["sh", "-euc", script], capture_output=True, text=True, check=True)
    jobs = json.loads(kept.read_text())["jobs"]
    iops = sum(job[side]["iops"] for job in jobs for side in ("read", "write"))
    assert float(done.stdout.split()[-1]) == pytest.approx(iops, rel=1e-5)
    assert not list(folder.iterdir())


def test_a_client_whose_load_fails_says_why(
    site: Site, fakes: Callable[..., Any], commands: ClusterCommands
) -> None:
    noted = fakes(["*"])
    scenario = single(steady_state=1)
    scripts = scenario.round_scripts(site, str(noted.directory), commands, lambda host, text: text)
    noted.run(scripts["c0"])
    assert noted.status == 1
    assert "it is broken" in noted.stderr


@pytest.mark.parametrize("printed", ["none", "nan", "inf", "-1"])
def test_a_client_that_prints_no_number_is_named(printed: Any) -> None:
    """NaN went into cell.json, which nothing read afterwards."""
    with pytest.raises(RunError, match="c0: a round before the steady state left no IOPS"):
        reached([printed], steady_state=1)

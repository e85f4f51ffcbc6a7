"""An OSD goes out under a workload and comes back: what is started, and what its lines mean."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cbt_crypto.errors import RunError
from cbt_crypto.hosts import shell
from cbt_crypto.run import recovery, recovery_on_host

pytestmark = pytest.mark.unit

LINES = [{"out_at": 100.5}, {"clean_after_out_s": 4.5}, {"in_at": 105.0}, {"clean_after_in_s": 3.0}]


def _printed(count: int) -> str:
    return "\n".join(json.dumps(line) for line in LINES[:count])


def test_all_of_it_is_no_fault() -> None:
    known = recovery.parsed(_printed(4))
    assert known == {key: value for line in LINES for key, value in line.items()}
    assert recovery.fault(known, 10) is None


@pytest.mark.parametrize(
    ("count", "sentence"),
    [
        (0, "the workload ended before an OSD went out, after 10 s; make time longer"),
        (1, "were clean with the OSD out; make time longer, or volumes smaller"),
        (3, "were clean with the OSD in again; make time longer"),
    ],
)
def test_a_load_that_ends_before_says_how_far_it_came(count: int, sentence: str) -> None:
    assert sentence in str(recovery.fault(recovery.parsed(_printed(count)), 10))


def test_what_the_program_says_in_its_need_is_the_reason() -> None:
    known = recovery.parsed("Traceback (most recent call last):\nrados.TimedOut: no monitor")
    assert recovery.fault(known, 10) == (
        "the recovery could not be followed: rados.TimedOut: no monitor"
    )


def test_an_osd_that_goes_out_before_the_load_is_no_recovery_under_it() -> None:
    """Seen by a reviewer: the hosts' samplers start behind it, and an emulated host is slow."""
    known = recovery.parsed(_printed(4))
    recovery.check_under_load(known, load_from=100.0)
    with pytest.raises(RunError, match=r"went out 2\.5 s before the workload was past its ramp"):
        recovery.check_under_load(known, load_from=103.0)


def test_an_osd_that_stays_out_is_named_with_what_to_do(tmp_path: Path) -> None:
    ceph = tmp_path / "ceph"
    ceph.write_text("#!/bin/sh\necho 'Error ETIMEDOUT: no monitor' >&2; exit 110\n")
    ceph.chmod(0o755)
    site: Any = SimpleNamespace(
        ceph_command=str(ceph), tmp_dir=str(tmp_path / "own"), osds=[SimpleNamespace(id=3)]
    )
    script = f"set -eu\nSUDO=\nCBT_CRYPTO_MARK=x\n{recovery.stop_script(site)}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "osd.3 is still out; take it in with 'ceph osd in 3': Error ETIMEDOUT" in done.stderr


class Cluster:
    """Placement groups that are clean when they know the map, and then twice asked."""

    def __init__(self, known: list[tuple[str, int]]) -> None:
        self.known = known

    def mon_command(self, command: str, _: bytes) -> tuple[int, bytes, str]:
        assert json.loads(command)["prefix"] == "osd dump"
        return 0, json.dumps({"pools": [{"pool": 3, "pg_num": 1}], "epoch": 7}).encode(), ""

    def pg_command(self, pgid: str, command: str, _: bytes) -> tuple[int, bytes, str]:
        assert (pgid, json.loads(command)["prefix"]) == ("3.0", "query")
        state, epoch = self.known.pop(0)
        return 0, json.dumps({"state": state, "epoch": epoch}).encode(), ""


def test_clean_is_not_believed_of_a_group_that_knows_an_older_map(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recovery_on_host, "EVERY_S", 0)
    said = [("active+clean", 6), ("active+remapped+backfilling", 7), ("active+clean", 7)]
    cluster = Cluster(said)
    recovery_on_host.wait_until_clean(cluster, 7)
    assert not cluster.known


class Scrubbed:
    """Placement groups of one pool, each of which is scrubbed when it was asked twice."""

    def __init__(self, status: int = 0) -> None:
        self.status, self.told, self.asked = status, [], {}

    def mon_command(self, command: str, _: bytes) -> tuple[int, bytes, str]:
        assert json.loads(command)["prefix"] == "osd dump"
        return 0, b'{"pools": [{"pool": 3, "pg_num": 2}]}', ""

    def mgr_command(self, command: str, _: bytes) -> tuple[int, bytes, str]:
        self.told.append(json.loads(command))
        return self.status, b"", "no such group"

    def pg_command(self, pgid: str, command: str, _: bytes) -> tuple[int, bytes, str]:
        self.asked[pgid] = self.asked.get(pgid, 0) + 1
        stamp = "new" if self.asked[pgid] > 2 else "old"
        stats = {"last_deep_scrub_stamp": stamp, "last_scrub_stamp": "old"}
        return 0, json.dumps({"info": {"stats": stats}}).encode(), ""


def test_a_scrub_ends_when_every_group_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(recovery_on_host, "EVERY_S", 0)
    cluster = Scrubbed()
    recovery_on_host.scrub(cluster, "deep_scrub")
    assert cluster.told == [{"prefix": "pg deep-scrub", "pgid": f"3.{n}"} for n in (0, 1)]
    assert cluster.asked == {"3.0": 3, "3.1": 3}
    known = recovery.parsed(capsys.readouterr().out)
    assert known["groups"] == 2 and known["scrubbed_after_s"] >= 0
    assert recovery.fault(known, 5, recovery.SCRUB_STEPS) is None
    recovery.check_under_load(known, known["scrub_at"] - 1)
    with pytest.raises(RunError, match=r"scrubbing began 2\.0 s before .*; make scrub longer"):
        recovery.check_under_load(known, known["scrub_at"] + 2)
    with pytest.raises(SystemExit, match=r"ceph pg scrub 3\.0: no such group"):
        recovery_on_host.scrub(Scrubbed(status=-2), "scrub")


@pytest.mark.parametrize("status", [0, -2])
def test_flags_that_keep_scrubs_from_starting_are_set_again(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    cluster: Any = Scrubbed(status)
    told: list[str] = []

    def mon_command(command: str, _: bytes) -> tuple[int, bytes, str]:
        asked = json.loads(command)
        told.append(" ".join((asked["prefix"], asked.get("key", ""))).strip())
        dump = {"flags": "noscrub,nodeep-scrub", "pools": [{"pool": 3, "pg_num": 1}]}
        return 0, json.dumps(dump).encode(), ""

    cluster.mon_command, cluster.connect = mon_command, lambda timeout: None
    monkeypatch.setitem(sys.modules, "rados", SimpleNamespace(Rados=lambda **_: cluster))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(recovery_on_host, "EVERY_S", 0)
    asked = {"conf": "x", "osd": 2, "after_s": 0, "kind": "deep_scrub"}
    if status:
        with pytest.raises(SystemExit):
            recovery_on_host.main(asked)
    else:
        recovery_on_host.main(asked)
    flags = ("noscrub", "nodeep-scrub")
    assert [one for one in told if "set" in one] == [
        *(f"osd unset {flag}" for flag in flags), *(f"osd set {flag}" for flag in flags),
    ]  # fmt: skip


def test_a_scrub_that_did_not_begin_or_end() -> None:
    said = [recovery.fault(known, 5, recovery.SCRUB_STEPS)
            for known in ({}, {"groups": 8, "scrub_at": 1.0}, {"error": "x"})]  # fmt: skip
    assert said == [
        "the workload ended before scrubbing began, after 5 s; make time longer",
        "the workload ended before all placement groups were scrubbed; make time longer, or "
        "volumes smaller",
        "the scrub could not be followed: x",
    ]


def test_nothing_is_taken_in_again_after_a_scrub(tmp_path: Path) -> None:
    site: Any = SimpleNamespace(ceph_command="ceph", tmp_dir=str(tmp_path), osds=[])
    assert "osd in" not in recovery.stop_script(site, "deep_scrub")


@pytest.mark.parametrize("flags", ["", "noscrub nodeep-scrub"])
def test_flags_that_a_killed_scrub_left_unset_are_set_again(tmp_path: Path, flags: str) -> None:
    ceph = tmp_path / "ceph"
    ceph.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/log\n[ ! -e {tmp_path}/deaf ]\n')
    ceph.chmod(0o755)
    (tmp_path / "recovery.out").write_text(json.dumps({"unset": flags}) + "\n")
    site: Any = SimpleNamespace(ceph_command=str(ceph), tmp_dir=str(tmp_path), osds=[])
    script = f"set -eu\nSUDO=\nCBT_CRYPTO_MARK=x\n{recovery.stop_script(site, 'deep_scrub')}"
    subprocess.run(["sh", "-c", script], check=True)
    log = (tmp_path / "log").read_text() if flags else ""
    assert log.splitlines() == [f"osd set {flag}" for flag in flags.split()]
    (tmp_path / "deaf").touch()
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert bool(done.returncode) == ("the flag noscrub is unset" in done.stderr) == bool(flags)


@pytest.mark.parametrize("ending", [signal.SIGTERM, None])
def test_the_osd_is_in_again_however_it_ends(tmp_path: Path, ending: Any) -> None:
    """With a module in place of librados that notes commands, and never gets clean."""
    state = "active+clean" if ending is None else "active+remapped"
    (tmp_path / "rados.py").write_text(
        "import json\n"
        "class Rados:\n"
        "    def __init__(self, **_): pass\n"
        "    def connect(self, timeout): pass\n"
        "    def mon_command(self, command, _):\n"
        "        asked = json.loads(command)\n"
        f"        open({str(tmp_path / 'log')!r}, 'a').write(asked['prefix'] + '\\n')\n"
        "        dump = {'pools': [{'pool': 1, 'pg_num': 1}], 'epoch': 5}\n"
        "        return 0, json.dumps(dump).encode(), ''\n"
        "    def pg_command(self, pgid, command, _):\n"
        f"        return 0, json.dumps({{'state': {state!r}, 'epoch': 5}}).encode(), ''\n"
    )
    program = tmp_path / "recovery.py"
    program.write_text(shell.program(recovery_on_host))
    asked = json.dumps({"conf": "x", "osd": 2, "after_s": 0})
    process = subprocess.Popen(
        [sys.executable, str(program), asked], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    if ending is not None:
        log = tmp_path / "log"
        deadline = time.monotonic() + 60
        while not (log.exists() and "osd dump" in log.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(ending)
    said = process.communicate(timeout=60)[0]
    commands = (tmp_path / "log").read_text().split("\n")
    assert commands.index("osd in") > commands.index("osd out")
    assert (recovery.fault(recovery.parsed(said), 0) is None) is (ending is None)

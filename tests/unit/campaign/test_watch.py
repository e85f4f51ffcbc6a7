"""What is watched while a cell is measured: the watcher itself runs here, on processes of ours."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cbt_crypto.cluster_overlays.base import Overlay, Seen, Watch
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.devices.storage_on_host import Changes
from cbt_crypto.hosts.site import Osd, Site
from cbt_crypto.run.cell import daemons_on_host, proof, watch

pytestmark = pytest.mark.unit

OSD = Osd(3, "node2", "/dev/x", "/d", "/d/asok", "/d/osd.3.pid")
SITE = Site("/d", "/d/conf", "node0", ("node0",), (OSD,))
#: What a module must have: it reads a file.
_READS = "def see(path):\n    return open(path).read()\ndef count(path):\n    return len(path)\n"


def _sh(text: str) -> str:
    script = f"set -eu\nSUDO=\nexport CBT_CRYPTO_MARK=/watch@here\n{text}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., watch.WatchRecord]:
    """What is written of a watch on this machine while a function runs."""
    monkeypatch.setattr(watch, "EVERY_S", 0.1)

    def run(one: Watch, meanwhile: Callable[[], Any]) -> watch.WatchRecord:
        directory = str(tmp_path)
        _sh(watch.start({"it": {"here": one}}, directory)["here"])
        _sh(watch.ready(directory))
        meanwhile()
        time.sleep(0.4)
        record = watch.parse(_sh(watch.stop(directory)))
        assert sorted(tmp_path.glob("watched*")) == []
        return record

    return run


def test_each_value_that_differs_is_kept_and_none_twice(
    watched: Callable[..., watch.WatchRecord], tmp_path: Path
) -> None:
    file = tmp_path / "value"
    file.write_text("one")

    def there_and_back() -> None:
        for value in ("two", "one"):
            time.sleep(0.5)
            # Whole at once: a look between truncating and writing would see a third value.
            (tmp_path / "next").write_text(value)
            (tmp_path / "next").replace(file)

    record = watched(Watch(_READS, str(file)), there_and_back)
    assert [seen.value for seen in record.seen["it"]] == ["one", "two", "one"]
    assert record.looks > 4
    assert record.counted["it"] == [len(str(file))] * 2
    assert watch.fault("it", ["here"], {"here": record}) is None


def test_a_watch_that_fails_or_ends_is_a_fault(
    watched: Callable[..., watch.WatchRecord], tmp_path: Path
) -> None:
    record = watched(Watch(_READS, str(tmp_path / "absent")), lambda: None)
    fault = watch.fault("it", ["here"], {"here": record})
    assert fault is not None
    assert fault.startswith("here could not be watched during the cell: FileNotFoundError")
    ended = watch.WatchRecord(seen={"it": [Seen(1, 1.0)]})
    fault = watch.fault("it", ["here"], {"here": ended})
    assert fault == "what watched here during the cell ended before the cell did"
    assert watch.fault("it", ["there"], {"here": record}) is not None


def test_a_watch_that_stood_still_is_a_fault(
    watched: Callable[..., watch.WatchRecord], tmp_path: Path
) -> None:
    """SIGSTOP at the cell's begin and SIGCONT at its end: all between was taken as seen."""

    def stand_still(how_long_s: float) -> None:
        pid = int((tmp_path / "watched.pid").read_text())
        os.kill(pid, signal.SIGSTOP)
        time.sleep(how_long_s)
        os.kill(pid, signal.SIGCONT)

    record = watched(Watch(_READS, "/proc/version"), lambda: stand_still(1.2))
    assert 1.1 < record.longest_gap_s < 30
    assert watch.fault("it", ["here"], {"here": record}) is None, "any host may be busy for a while"
    fault = watch.fault("it", ["here"], {"here": replace(record, longest_gap_s=200.0)})
    assert fault == "what watched here stood still for 200 s of the cell"


def test_a_program_that_the_campaign_waits_for_is_no_gap(tmp_path: Path) -> None:
    _watching(tmp_path, shell.python("import time; time.sleep(2.5)", 1))
    assert watch.parse(_sh(watch.stop(str(tmp_path)))).longest_gap_s < 2.4


_SAYS = """
import json, os, sys
asked = json.loads(sys.argv[1])
print(os.getppid(), asked["text"])
sys.stderr.write("for people\\n")
sys.exit(asked["status"])
"""


def _watching(directory: Path, text: str) -> str:
    """What a script prints behind the start of a watcher."""
    start = watch.start({"it": {"here": Watch(_READS, "/proc/version")}}, str(directory))["here"]
    return _sh(f"{start}\n{watch.ready(str(directory))}\n{text}")


def test_scripts_have_the_watcher_run_their_programs(tmp_path: Path) -> None:
    """Exit status, output and errors are as of a Python of their own; and so is an exception."""
    say = [
        f"{{ {shell.python(_SAYS, {'text': text, 'status': status})}}} 2>&1 && echo 0 || echo $?"
        for text, status in (("it's \\n $HOME\"", 0), ("two", 3), ("three", "a sentence"))
    ]
    say.append(f"{{ {shell.python('import none_of_these', 1)}}} 2>&1 || echo failed $?")
    say.append(f"{{ {shell.python('a syntax error', 1)}}} 2>&1 || echo failed $?")
    printed = _watching(tmp_path, "\n".join(say))
    watcher = (tmp_path / "watched.pid").read_text().strip()
    assert printed.splitlines()[:9] == [
        f"{watcher} it's \\n $HOME\"", "for people", "0",
        f"{watcher} two", "for people", "3",
        f"{watcher} three", "for people", "a sentence",
    ]  # fmt: skip
    assert "ModuleNotFoundError: No module named 'none_of_these'\nfailed 1" in printed
    assert "SyntaxError" in printed.splitlines()[-2]
    # Another script, later: after the cell.
    after = f"{watch.asked(str(tmp_path))}{shell.python(_SAYS, {'text': 'after', 'status': 0})}"
    assert _sh(after) == f"{watcher} after\n"
    _sh(watch.stop(str(tmp_path)))
    assert sorted(tmp_path.glob("watched*")) == []


_ENDS_ITS_WATCHER = """
import os, sys
if open(sys.argv[1].strip('"')).read().strip() == str(os.getppid()):
    os.kill(os.getppid(), 9)
else:
    print("by itself")
"""


def test_a_watcher_that_ends_while_it_is_asked_is_waited_for_by_nobody(tmp_path: Path) -> None:
    program = shell.python(_ENDS_ITS_WATCHER, str(tmp_path / "watched.pid"))
    assert _watching(tmp_path, program) == "by itself\n"


def test_programs_run_where_the_watcher_is_gone(tmp_path: Path) -> None:
    """It may have been killed for its memory: what proves the configuration is asked all the same.

    That it was not looked meanwhile is a fault of its own.
    """
    _watching(tmp_path, "")
    watcher = int((tmp_path / "watched.pid").read_text())
    os.kill(watcher, 9)
    for _ in range(100):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{watcher}/stat").read_text().rpartition(") ")[2][0] != "Z":
                time.sleep(0.05)
    asked = f"{watch.asked(str(tmp_path))}{shell.python(_SAYS, {'text': 'here', 'status': 0})}"
    assert _sh(asked).endswith(" here\n")
    record = watch.parse(_sh(watch.stop(str(tmp_path))))
    fault = watch.fault("it", ["here"], {"here": record})
    assert fault == "what watched here during the cell ended before the cell did"


def test_a_process_is_told_from_another_of_its_number(
    watched: Callable[..., watch.WatchRecord], tmp_path: Path
) -> None:
    """The start time is that of proc(5), as psutil reads it too."""
    psutil = pytest.importorskip("psutil")
    pid_file = tmp_path / "osd.3.pid"
    sleeps = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
              for _ in range(2)]  # fmt: skip
    try:
        pid_file.write_text(str(sleeps[0].pid))
        places = {"osd.3": {"pid_file": str(pid_file), "socket": "/nowhere"}}
        source = shell.definitions(daemons_on_host)
        record = watched(
            Watch(source, places),
            lambda: (time.sleep(0.3), pid_file.write_text(str(sleeps[1].pid))),
        )
        began = psutil.Process(sleeps[0].pid).create_time() - psutil.boot_time()
    finally:
        for one in sleeps:
            one.kill()
            one.wait()
    looks = record.seen["it"]
    assert [look.value["osd.3"][0] for look in looks] == [one.pid for one in sleeps]
    ticks = looks[0].value["osd.3"][1]
    assert ticks / os.sysconf("SC_CLK_TCK") == pytest.approx(began, abs=1.0)
    seen = {"node2": looks}
    verdict = proof.judge_daemons(SITE, seen, ({3: 8}, {3: 8}))
    assert not verdict.proved
    assert "osd.3 on node2: it was restarted during the cell" in verdict.reason


@pytest.mark.parametrize(
    ("runs", "up_from", "said"),
    [
        ([[7, 100]], ({3: 8}, {3: 8}), None),
        ([[7, 100], [9, 200]], ({3: 8}, {3: 12}), "it was restarted during the cell"),
        ([[7, 100], None, [9, 200]], ({3: 8}, {3: 12}), "it was restarted during the cell"),
        ([[7, 100], [7, 300]], ({3: 8}, {3: 12}), "it was restarted during the cell"),
        ([[7, 100], None], ({3: 8}, {}), "process 7 ended during the cell"),
        ([None], ({3: 8}, {3: 8}), "it was not running when the cell began"),
        ([[7, 100]], ({3: 8}, {3: 12}), "the monitors marked it down during the cell"),
        ([[7, 100]], ({}, {3: 12}), "the monitors did not say since when it is up"),
    ],
)
def test_osds_are_the_same_throughout(runs: Any, up_from: Any, said: Any) -> None:
    seen = {"node2": [Seen({"osd.3": run}, float(n)) for n, run in enumerate(runs)]}
    verdict = proof.judge_daemons(SITE, seen, up_from)
    assert verdict.proved is (said is None)
    if said:
        assert f"osd.3 on node2: {said}" in verdict.reason
    lost = proof.lost_osds(SITE, seen)
    assert (lost is not None) is (runs[0] is not None and runs[-1] is None)


#: As `udevadm monitor --kernel --property` shows them, of `cryptsetup refresh` and of a trigger.
_RESUMED = b"change@/devices/virtual/block/dm-0\0ACTION=change\0DEVPATH=/devices/virtual/block/dm-0"
_RESUMED += b"\0SUBSYSTEM=block\0DM_COOKIE=6341122\0MAJOR=254\0MINOR=0\0DEVNAME=dm-0\0SEQNUM=9\0"


def test_a_resumed_mapping_counts_and_a_trigger_of_udev_does_not() -> None:
    changes = Changes()
    changes.note(_RESUMED)
    changes.note(_RESUMED.replace(b"DM_COOKIE=6341122", b"SYNTH_UUID=0"))
    changes.note(_RESUMED.replace(b"SUBSYSTEM=block", b"SUBSYSTEM=net"))
    changes.note(b"\xff\0no message at all")
    assert dict(changes.counts) == {"254:0": 1}


def test_overlays_that_watch_nothing_are_judged_by_their_probes() -> None:
    assert Overlay().watch(SITE) == {}
    assert Overlay().judge_seen(SITE, {}) is None


def test_an_osd_that_joined_since_is_no_proof() -> None:
    """Somebody enlarged his cluster midway: a plain OSD served data, and all were proved."""
    seen = {"node2": [Seen({"osd.3": [7, 100]}, 0.0)]}
    assert proof.judge_daemons(SITE, seen, ({3: 8}, {3: 8})).proved
    verdict = proof.judge_daemons(SITE, seen, ({3: 8}, {3: 8, 77: 9}))
    assert not verdict.proved and verdict.reason == "osd.77 is up, too, and nobody looked at it"

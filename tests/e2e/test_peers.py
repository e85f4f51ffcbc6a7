"""Our readers beside the tools whose figures people know: fio's own, and collectl's playback."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from cbt_crypto.hosts import samplers
from cbt_crypto.results.cell.node import NodeSamples
from cbt_crypto.results.cell.window import Window
from cbt_crypto.results.readers.collectl import CPU_STATES, read_collectl
from cbt_crypto.results.readers.fio import parse_fio_json
from cbt_crypto.results.readers.histogram import Histogram, merge, read_histogram_log

pytestmark = pytest.mark.e2e

DATA = Path(__file__).resolve().parents[1] / "unit/data"
RAW = DATA / "collectl/node0-20261120-144733.raw.gz"
#: Debian's package of fio has the tool among its documents.
PCTILES = Path("/usr/share/doc/fio/fio-histo-log-pctiles.py.gz")
PERCENTS = (50.0, 95.0, 99.0, 99.9)
#: The columns of a playback with -P, behind the time.
PLAYED = ("user", "nice", "sys", "iowait", "irq", "softirq", "steal", "idle")


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    """fio's own reader of histogram logs."""
    if not PCTILES.exists():
        pytest.fail(f"{PCTILES} is missing; install fio with its documents, `make test-packages`")
    path = tmp_path / "fio-histo-log-pctiles.py"
    path.write_bytes(gzip.decompress(PCTILES.read_bytes()))
    return path


def _same_as_the_tool(tool: Path, files: list[Path]) -> Histogram:
    """Compare, and return the merged histogram."""
    words = ["--time-quantum", "1000", "--output-unit", "usec", "--percentiles"]
    command = [sys.executable, str(tool), *words, *map(str, PERCENTS), "--", *map(str, files)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    last = printed.strip().splitlines()[-1]
    samples, *theirs = [float(word) for word in re.findall(r"[\d.]+", last)[1:]]
    logs = [read_histogram_log(file) for file in files]
    ours = merge(Histogram(log.middles_ns[log.bins], log.counts) for log in logs)
    assert ours.total == samples
    for percent, value in zip(PERCENTS, theirs):
        # 64 bins to an octave: one bin is at most a 64th of its latency, or 1 ns
        assert ours.percentile_ns(percent) / 1000 == pytest.approx(value, rel=1 / 64, abs=1e-3)
    return ours


def test_percentiles_of_one_log_are_those_of_fios_own_tool_within_a_bin(tool, tmp_path):
    path = tmp_path / "randread_clat_hist.log"
    path.write_bytes((DATA / "fio/randread_clat_hist.log").read_bytes())
    _same_as_the_tool(tool, [path])


def test_percentiles_of_merged_logs_of_a_real_run_too(tool, tmp_path):
    if shutil.which("fio") is None:
        pytest.fail("fio is missing; `make test-packages`")
    command = ["fio", "--name=j", "--ioengine=psync", "--rw=randread", "--bs=4k", "--size=16M"]
    command += ["--numjobs=3", "--time_based", "--runtime=4", "--filename=data"]
    command += ["--write_hist_log=h", "--log_hist_msec=1000", "--output-format=json+"]
    subprocess.run([*command, "--output=json"], check=True, capture_output=True, cwd=tmp_path)
    files = sorted(tmp_path.glob("h_clat_hist.*.log"))
    assert len(files) == 3
    logged = _same_as_the_tool(tool, files)
    jobs = parse_fio_json((tmp_path / "json").read_bytes()).jobs
    whole = merge(side.histogram for job in jobs for side in job.sides)
    # the logs may lack the last interval
    assert 0.5 * whole.total < logged.total <= whole.total


def test_user_and_sys_are_what_collectl_plays_back(tmp_path):
    if shutil.which("collectl") is None:
        pytest.fail("collectl is missing; `make test-packages`")
    command = ["collectl", "-p", str(RAW), "-sc", "-oU", "-P"]
    played = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = [line.split() for line in played.splitlines() if not line.startswith("#")]
    series = read_collectl(RAW)
    assert [float(row[0]) for row in rows] == np.floor(series.epoch_s[1:]).tolist()
    ticks = np.diff(series.cpu, axis=0)
    percents = 100 * ticks / ticks.sum(axis=1, keepdims=True)
    for column, state in enumerate(PLAYED, 1):
        theirs = np.array([float(row[column]) for row in rows])
        ours = percents[:, CPU_STATES.index(state)]
        assert np.abs(theirs - ours).max() <= 0.5 + 1e-9, state


@pytest.mark.alone
def test_our_sampler_counts_what_collectl_counts(tmp_path):
    """Both run over the same seconds, beside a process that a report would tell apart."""
    osd = tmp_path / "ceph-osd"
    shutil.copy(shutil.which("dash"), osd)
    here = {"collectl": tmp_path / "collectl", "sampler": tmp_path / "sampler"}
    here["collectl"].mkdir()
    record = ["collectl", "-s+mYZ", "-i", "1:1", "-F0", "--nohup", "-f", str(here["collectl"])]
    with subprocess.Popen(record, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as other:
        start = f"set -eu\n{samplers.start_counters(str(tmp_path))}"
        subprocess.run(["bash", "-c", start], check=True, env={**os.environ, "SUDO": ""})
        with subprocess.Popen([osd, "-c", "while :; do :; done"]) as busy:
            time.sleep(14)
            busy.kill()
        stop = samplers.stop_counters(str(tmp_path))
        subprocess.run(["bash", "-c", stop], check=True, env={**os.environ, "SUDO": ""})
        other.terminate()
    ours, theirs = (
        read_collectl(next(here[name].glob("*.raw*"))) for name in ("sampler", "collectl")
    )
    window = Window(
        max(ours.epoch_s[0], theirs.epoch_s[0]), min(ours.epoch_s[-1], theirs.epoch_s[-1])
    )
    use, theirs_use = (
        NodeSamples("localhost", series, 0.0).use(window) for series in (ours, theirs)
    )
    busy_states = [state for state in CPU_STATES if state in use.cpu_seconds and state != "idle"]
    assert use.percent(busy_states) == pytest.approx(theirs_use.percent(busy_states), rel=0.05)
    # The process was counted alike at the last moment at which ours looked at it.
    at_s, ticks = _counted(ours, busy.pid)
    assert ticks[-1] > ours.hz / 10
    assert np.interp(at_s[-1], *_counted(theirs, busy.pid)) == pytest.approx(
        ticks[-1], rel=0.1, abs=ours.hz / 2
    )
    assert sorted(ours.net_bytes) == sorted(theirs.net_bytes)


def _counted(series, pid):
    """Times, and the ticks that the process had used by then."""
    key = pid, "ceph-osd"
    used = [(one.epoch_s, one.ticks[key]) for one in series.processes if key in one.ticks]
    return np.array(used).T

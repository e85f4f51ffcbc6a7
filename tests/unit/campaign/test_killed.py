"""kill -9 at every stage, on a host of fakes: the next start clears up and completes."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cbt_crypto.run.journal import left_over

pytestmark = pytest.mark.unit

CBT = Path(__file__).parents[3] / "cbt.py"
#: Phase -> the program that takes long in it.
STAGES = {"deploy": "ceph-osd", "prefill": "fio", "cell 1/1": "fio"}
SLOW = {
    "ceph-osd": "sleep 30",
    "fio": 'case "$*" in *enghelp*|*version*) ;; *) sleep 30 ;; esac',
}


@pytest.mark.parametrize("stage", STAGES)
def test_the_next_start_completes(host: Any, stage: str, wait_for: Any) -> None:
    load = {"time": 1, "mode": "randwrite", "prefill": stage == "prefill"}
    path = host.write(benchmarks={"rbd_single_client": load})
    program = STAGES[stage]
    fake = host.directory / "bin" / program
    quick = fake.read_text()
    host.programs(program, quick.replace("#!/bin/sh\n", f"#!/bin/sh\n{SLOW[program]}\n", 1))
    command = [sys.executable, str(CBT), "--no-report", "-a", str(host.archive), str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if stage in line:
                break
        wait_for(host.tmp_dir.exists, 60)
        time.sleep(1)
        running.kill()
    assert len(left_over(host.archive)) == 1
    assert host.tmp_dir.exists()
    fake.write_text(quick)
    log = host.archive / "results" / "commands.log"
    before = log.read_text()
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "tearing down what a run that ended early" in again.stdout, again.stdout + again.stderr
    assert left_over(host.archive) == [], again.stdout + again.stderr
    assert not host.tmp_dir.exists()
    # A kernel waits for ever for OSDs that have ended, with what it has to write to them.
    tearing_down = log.read_text().removeprefix(before)
    assert 0 < tearing_down.find("unmount_below") < tearing_down.find("end_marked")

"""Stacks sampled by a perf of the test's own, through real shells: until the end, or why not."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cbt_crypto.errors import HostError
from cbt_crypto.hosts import samplers
from cbt_crypto.hosts.remote import Remote

pytestmark = pytest.mark.unit

#: Does what perf does, as far as the program can see; what it samples is this thread of the kernel.
PERF = """#!/bin/sh
case $1 in
stat) echo '{counted}' >&2 ;;
script) printf 'kworker/0:1 2/2 0.5: \\n\\tff work ([kernel.kallsyms])\\n\\n' ;;
record)
    {refuses}
    echo "$*" > {said}
    while [ $# -gt 1 ]; do out=$2; shift; done
    trap 'exit 0' TERM
    echo sampled > "$out"
    while :; do sleep 0.1; done ;;
esac
"""


@pytest.fixture
def profile(tmp_path: Path) -> Callable[..., dict[str, object]]:
    def made(refuses: str = "", counted: str = "<not supported> cycles") -> dict[str, object]:
        perf = tmp_path / "perf"
        perf.write_text(PERF.format(refuses=refuses, counted=counted, said=tmp_path / "said"))
        perf.chmod(0o755)
        return {"perf_cmd": str(perf), "frequency": 49, "unwind": "dwarf"}

    return made


def written(run_dir: Path) -> tuple[dict[str, Any], list[str]]:
    """The header and the lines of the only file that is left."""
    assert [path.name for path in run_dir.iterdir()] == ["stacks"]
    header, *lines = gzip.decompress((run_dir / "stacks").read_bytes()).decode().splitlines()
    return json.loads(header), lines


def test_two_names_of_a_host_share_one_until_the_end(
    run_dir: Path, remote: Remote, profile: Any, tmp_path: Path
) -> None:
    with samplers.stacks(remote, ["localhost", "127.0.0.1"], str(run_dir), profile()):
        assert (run_dir / ".stacks/perf.data").read_text() == "sampled\n", "it samples by now"
        (pid,) = (run_dir / ".stacks.pid").read_text().split()
    header, _ = written(run_dir)
    assert (header["event"], header["hz"], header["error"]) == ("cpu-clock", 49, "")
    assert 0 < header["seconds"] < 60
    assert not Path(f"/proc/{pid}/exe").exists()
    asked = (tmp_path / "said").read_text()
    assert " -a -F 49 --call-graph dwarf,8192 " in asked and " -e cpu-clock " in asked


def test_hardware_counts_where_it_can(
    run_dir: Path, remote: Remote, profile: Any, tmp_path: Path
) -> None:
    with samplers.stacks(remote, ["localhost"], str(run_dir), profile(counted="12,345 cycles")):
        pass
    assert written(run_dir)[0]["event"] == "cycles"
    assert " -e cycles " in (tmp_path / "said").read_text()


def test_why_perf_does_not_sample_is_told_and_the_cell_goes_on(
    run_dir: Path, remote: Remote, profile: Any
) -> None:
    refused = profile("echo 'No permission to enable cpu-clock' >&2; exit 255")
    with samplers.stacks(remote, ["localhost"], str(run_dir), refused):
        pass
    assert written(run_dir)[0]["error"] == "No permission to enable cpu-clock"


def test_a_host_without_perf_says_so(run_dir: Path, remote: Remote, profile: Any) -> None:
    without = {**profile(), "perf_cmd": "/nowhere/perf"}
    with samplers.stacks(remote, ["localhost"], str(run_dir), without):
        pass
    assert "/nowhere/perf" in written(run_dir)[0]["error"]


def test_it_ends_with_the_folder_and_when_what_is_measured_fails(
    run_dir: Path, remote: Remote, profile: Any, wait_for: Any
) -> None:
    with (
        pytest.raises(HostError, match="run fio"),
        samplers.stacks(remote, ["localhost"], str(run_dir), profile()),
    ):
        remote.run({"localhost": "exit 3"}, "run fio")
    assert written(run_dir)[0]["error"] == ""
    os.unlink(run_dir / "stacks")
    with samplers.stacks(remote, ["localhost"], str(run_dir), profile()):
        pid = (run_dir / ".stacks.pid").read_text().strip()
        shutil.rmtree(run_dir)
        wait_for(lambda: not Path(f"/proc/{pid}/exe").exists())
    assert not run_dir.exists()


def test_nothing_runs_that_nobody_asked_for(run_dir: Path, remote: Remote) -> None:
    with samplers.stacks(remote, ["localhost"], str(run_dir), None):
        assert list(run_dir.iterdir()) == []


def test_a_campaign_of_drives_has_no_osds_to_sample(
    run_dir: Path, remote: Remote, profile: Any
) -> None:
    with samplers.stacks(remote, [], str(run_dir), profile()):
        assert list(run_dir.iterdir()) == []

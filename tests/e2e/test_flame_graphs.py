"""Stacks of real OSDs with plain and secure messengers: AES-GCM is what differs, in every file."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cbt_crypto.hosts.stacks_on_host import fold
from cbt_crypto.report import build
from cbt_crypto.report.charts.flame import per_io
from cbt_crypto.report.figures.of_runs import total_rate

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

LET_GO = str(Path(__file__).parents[1] / "programs" / "let_go.sh")
BENCHMARKS = {
    "rbd_multi_client": {
        "volumes_per_client": 2,
        "vol_size": 128,
        "iodepth": 8,
        "time": 12,
        "ramp": 2,
        "mode": "randread",
        "op_size": 65536,
    }
}


@pytest.fixture(scope="module")
def measured(machine_factory: Callable[[str], Any], tmp_path_factory: Any) -> Any:
    """A campaign that samples, where the kernel lets perf do so, among no other tests' OSDs."""
    record = str(tmp_path_factory.mktemp("perf") / "perf.data")
    command = ["perf", "record", "-qaBN", "-e", "cpu-clock", "-o", record, "--", "true"]
    if not shutil.which("perf"):
        pytest.fail("perf is missing; `make test-packages`")
    if subprocess.run(command, check=False).returncode:
        pytest.skip("the kernel does not let perf sample here")
    machine = machine_factory("flame")
    configurations = {"Crc": {}, "Secure messenger": {"secure_messenger": {}}}
    config = machine.write(configurations, BENCHMARKS, {"sampler": None, "stacks": {}})
    alone = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    alone += ["--net", LET_GO, "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    done = subprocess.run(
        [*alone, *machine.command(config)], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return machine


def test_each_cell_has_its_stacks_and_hosts_have_nothing_left(measured: Any) -> None:
    for cell in measured.cells():
        packed = (cell["directory"] / "stacks.localhost").read_bytes()
        header, *stacks = gzip.decompress(packed).decode().splitlines()
        assert json.loads(header)["error"] == ""
        assert json.loads(header)["seconds"] > 14
        assert len(stacks) > 20
        assert not [path for path in cell["directory"].rglob("*") if "perf.data" in path.name]
    assert measured.leftovers() == []


def test_encryption_is_what_differs(measured: Any) -> None:
    (diff,) = (measured.archive / "charts").glob("*.diff.folded")
    base = own = 0
    for line in diff.read_text().splitlines():
        stack, of_base, of_own = line.rsplit(" ", 2)
        if "OnWire" in stack or "libcrypto" in stack:
            base, own = base + int(of_base), own + int(of_own)
    assert own > 1000, "AES-GCM takes more than a microsecond for 64 KiB"
    assert own > 5 * base
    page = (measured.archive / "report.html").read_text()
    assert "Flame graph, rbd_multi_client, 64 KiB, random reads, Secure messenger" in page
    assert "[libcrypto.so" in page


def test_samples_add_up_to_what_the_kernel_counted(measured: Any) -> None:
    for cell in build(Path(measured.archive)).cells:
        (run,) = cell.runs
        (host,) = run.recorded.hosts
        counted = host.threads["tp_osd_tp"]
        stacks = per_io(cell.runs).stacks.items()
        sampled = sum(ns for stack, ns in stacks if stack.startswith("ceph-osd;tp_osd_tp"))
        seconds = sampled * total_rate(run, "iops") / 1e9
        assert seconds == pytest.approx(counted.user + counted.sys, rel=0.3)


_SPINS = "__attribute__((noinline)) void spin(void) {for (;;) ;} int main() {spin();}"


def test_a_user_s_symbol_with_line_breaks_is_no_stack_of_an_osd(
    measured: Any, tmp_path: Path
) -> None:
    """perf prints it as it is: his text stood in an OSD's place, class and second."""
    source, made = tmp_path / "spin.c", tmp_path / "spin"
    source.write_text(_SPINS)
    subprocess.run(["cc", "-O1", "-c", "-o", f"{made}.o", source], check=True)
    osd, record = os.getpid(), tmp_path / "perf.data"
    symbol = f"x (y)\n\ntp_osd_tp  {osd}/1 1.5: \n\t  1a2b AES_of_nobody (z)\n\t  1a2c b"
    subprocess.run(["objcopy", "--redefine-sym", f"spin={symbol}", f"{made}.o"], check=True)
    subprocess.run(["cc", "-o", made, f"{made}.o"], check=True)
    command = ["perf", "record", "-qaBN", "-F", "99", "-g", "-e", "cpu-clock", "-o", str(record)]
    with subprocess.Popen([made]) as his:
        subprocess.run([*command, "--", "sleep", "2"], check=True)
        his.kill()
    printed = subprocess.check_output(["perf", "script", "-i", str(record)])
    assert b"\n\t  1a2b AES_of_nobody" in printed
    stacks = fold({"perf_cmd": "perf"}, str(record), {str(osd): "ceph-osd"}, 0.0)
    assert not [stack for stack in stacks if "nobody" in stack]

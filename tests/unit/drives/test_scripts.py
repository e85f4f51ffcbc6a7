"""The commands that prepare, measure and free a drive."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from cbt_crypto.benchmarks import etcd
from cbt_crypto.benchmarks.base import ClusterCommands
from cbt_crypto.benchmarks.drive import RawDevice
from cbt_crypto.benchmarks.etcd import Etcd, Fdatasync
from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.devices import destroy, lvm_and_md
from cbt_crypto.hosts.site import Drive
from cbt_crypto.plan.layout import drives_of, site_of
from cbt_crypto.plan.order import cells_of
from cbt_crypto.run.preflight.check import checks
from cbt_crypto.run.targets.drive import undo

pytestmark = pytest.mark.unit

COMMANDS = ClusterCommands("ceph", "rbd", "env")
RAW = {"raw_device": {"time": 5, "size": 64}}


def options(command: str) -> dict[str, str]:
    words = (word.lstrip("-").partition("=") for word in shlex.split(command)[1:])
    return {key: value for key, _, value in words}


def test_fio_straight_on_the_drive() -> None:
    scenario = RawDevice(
        configuration="A", drive="D", mode="randwrite", op_size=65536, iodepth=32, time=60,
        ioengine="io_uring", size=128,
    )  # fmt: skip
    found = options(scenario.fio_command("/dev/pci-0:1"))
    assert found["filename"] == "/dev/pci-0\\:1" and found["direct"] == "1"
    assert (found["rw"], found["bs"], found["iodepth"]) == ("randwrite", "65536", "32")
    assert (found["ioengine"], found["runtime"], found["size"]) == ("io_uring", "60", "128M")
    assert found["output-format"] == "json+" and "time_based" in found


def test_the_articles_fdatasync() -> None:
    found = options(Fdatasync(configuration="A", drive="D").fio_command("/mnt/d"))
    article = {
        "rw": "write", "ioengine": "sync", "fdatasync": "1", "directory": "/mnt/d",
        "size": "22M", "loops": "10", "bs": "2300",
    }  # fmt: skip
    assert {key: found[key] for key in article} == article


def test_the_articles_etcd_benchmark() -> None:
    command = Etcd(configuration="A", drive="D").benchmark_command()
    assert shlex.split(command) == [
        "benchmark", "--endpoints=127.0.0.1:23790", "--target-leader", "--conns=100",
        "--clients=1000", "put", "--key-size=8", "--val-size=256", "--total=100000",
        "--sequential-keys",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["raw_device", "fdatasync", "etcd"])
def test_every_script_is_valid_shell(on_drives: Any, place_of: Any, name: str) -> None:
    campaign = on_drives({name: {}}, drives={"D": {"host": "c0", "device": "/dev/a b'c"}})
    (scenario,) = campaign.scenarios[name]
    site = place_of(campaign, "D")
    scripts = scenario.measure(site, "/tmp/run dir", COMMANDS, lambda host, command: command)
    assert list(scripts) == ["c0"]
    texts = [*scripts.values(), *(need.script for need in scenario.requirements(site))]
    for text in texts:
        subprocess.run(["sh", "-n"], input=text, text=True, check=True)
    assert "/dev/a b" in scripts["c0"]


def test_an_array_is_made_and_taken_down(
    on_drives: Any, programs: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    agrees = "prove() { case $1 in ready) echo 1:2:3:4 ;; where) : ;; esac; }\n"

    def proved(tmp_dir: str, calls: Iterable[str]) -> str:
        return f"(\n{shell.calling(destroy.__file__, agrees + chr(10).join(calls))}\n)"

    monkeypatch.setattr(destroy, "proved", proved)
    programs("mdadm", f'echo "$@" >> {tmp_path}/calls')
    programs("modprobe", "exit 0")
    drive = Drive(
        "R", "h", ("/dev/x", "/dev/y"), "/f", array=f"{tmp_path}/cbt-crypto-1", chunk_kib=64
    )
    script = f"set -eu; SUDO=\n{lvm_and_md.make_array(drive, ['/dev/x', '/dev/y'], '/own')}"
    made = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert made.returncode == 1 and "mdadm made no" in made.stderr
    (tmp_path / "cbt-crypto-1").write_text("")
    subprocess.run(["sh", "-c", f"set -eu; SUDO=\n{lvm_and_md.stop(drive, '/own')}"], check=True)
    make, stop = (tmp_path / "calls").read_text().splitlines()
    assert make == (
        f"--create {tmp_path}/cbt-crypto-1 --level=0 --raid-devices=2 --chunk=64 --metadata=1.2 "
        "--uuid=1:2:3:4 --run --quiet /dev/x /dev/y"
    )
    assert stop == f"--stop --quiet {tmp_path}/cbt-crypto-1"
    assert not (tmp_path / "cbt-crypto-1").exists()


def test_arrays_and_mappings_are_undone_from_the_top(on_drives: Any) -> None:
    campaign = on_drives(RAW, configurations={"Default": {}, "LUKS": {"luks": {}}})
    stacks = [Stack(overlays) for overlays in campaign.configurations.values()]
    scripts = undo(drives_of(campaign.cluster), stacks, site_of(campaign.cluster))
    for text in scripts.values():
        subprocess.run(["sh", "-n"], input=text, text=True, check=True)
    # over the array on c0, under it on c1
    close, stop = "\nclose_luks cbt-crypto-", "\nstop_array /dev/md/cbt-crypto-"
    assert scripts["c0"].index(close) < scripts["c0"].index(stop)
    assert scripts["c1"].index(stop) < scripts["c1"].index(close)


def test_no_ceph_is_asked_for_and_the_devices_are_guarded(on_drives: Any) -> None:
    campaign = on_drives(RAW)
    needs = {need.name for need in checks(campaign, cells_of(campaign), [])}
    assert not needs & {"ceph", "rbd", "librados", "ceph-osd", "fio with rbd"}
    assert {"fio", "fio with libaio", "MD RAID-0", "size of drive NVMe"} <= needs
    assert {"device /dev/nvme0n1", "device /dev/sda", "device /dev/sdb"} <= needs


def test_a_missing_benchmark_tool_is_named(on_drives: Any, place_of: Any, sh: Any) -> None:
    campaign = on_drives({"etcd": {"benchmark_cmd": "/no/such", "drive": "NVMe"}})
    (scenario,) = campaign.scenarios["etcd"]
    needs = scenario.requirements(place_of(campaign, "NVMe"))
    need = next(need for need in needs if need.name == "etcd's benchmark tool")
    assert str(need.judge(sh(need.script))).startswith("/no/such is missing, or is not etcd's own")


def test_a_drive_that_is_too_small_is_named(on_drives: Any, place_of: Any, sh: Any) -> None:
    campaign = on_drives({"raw_device": {"drive": "NVMe"}})
    (scenario,) = campaign.scenarios["raw_device"]
    needs = scenario.requirements(place_of(campaign, "NVMe"))
    need = next(need for need in needs if need.name == "size of drive NVMe")
    assert need.judge(sh(need.script)) == "drive NVMe is smaller than size: 16416 (MiB); lower it"


@pytest.fixture
def sh() -> Any:
    def run(text: str) -> str:
        script = f"set -eu\nSUDO=\n{text}"
        return subprocess.run(
            ["sh", "-c", script], check=True, capture_output=True, text=True
        ).stdout

    return run


def test_etcd_is_ended_by_our_mark(on_drives: Any, place_of: Any) -> None:
    """It may have died long ago; root killed whoever had its number by then."""
    campaign = on_drives({"etcd": {}}, drives={"D": {"host": "c0", "device": "/dev/a"}})
    (scenario,) = campaign.scenarios["etcd"]
    script = scenario.measure(place_of(campaign, "D"), "/run", COMMANDS, lambda _, text: text)["c0"]
    assert "kill $etcd" not in script
    assert "end_marked 'TERM KILL' 30 etcd.pid" in script


def test_etcd_is_asked_without_a_proxy(
    on_drives: Any, place_of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a proxy said became the latency of etcd's syncs."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"etcd_disk_wal_fsync_duration_seconds_sum 1\nother 2\n")

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/metrics"
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        asked = json.dumps([url, "wal_fsync", 5])
        command = [sys.executable, "-I", "-S", "-c", etcd.LINES, asked]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        server.shutdown()
    said = "etcd_disk_wal_fsync_duration_seconds_sum 1\n"
    assert (done.stdout, done.returncode) == (said, 0), done.stderr

"""What passed OSDs' devices: read from the kernel's files, and between two readings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cbt_crypto.hosts import shell
from cbt_crypto.hosts.devices import traffic_on_host
from cbt_crypto.hosts.site import Osd, Site
from cbt_crypto.run.cell import conditions

pytestmark = pytest.mark.unit

SITE = Site(
    "/t", "/c", "h0", (), (Osd(0, "h0", "/dev/x", "/d", "/s", "/p"),)
)  # fmt: skip


def _device(root: Path, number: str, name: str, read: int, written: int) -> Path:
    folder = root / "devices" / name
    (folder / "slaves").mkdir(parents=True)
    (folder / "stat").write_text(f" 5 0 {read} 7 9 0 {written} 3 0 1 1 0 0 0 0 0 0\n")
    (folder / "size").write_text("4096\n")
    (folder / "dev").write_text(f"{number}\n")
    (root / number).symlink_to(folder)
    return folder


def test_a_mapping_and_what_is_below_it(tmp_path: Path) -> None:
    drive = _device(tmp_path, "8:0", "sda", 200, 400)
    mapping = _device(tmp_path, "254:0", "dm-0", 100, 300)
    (mapping / "dm").mkdir()
    (mapping / "dm/name").write_text("cbt-crypto-0\n")
    (mapping / "slaves/sda").symlink_to(drive)
    assert traffic_on_host.layers("254:0", str(tmp_path)) == [
        {"device": "dm-0", "mapping": "cbt-crypto-0", "read_bytes": 51200, "written_bytes": 153600},
        {"device": "sda", "read_bytes": 102400, "written_bytes": 204800, "size_bytes": 2 << 20},
    ]


@pytest.mark.parametrize("paths", [1, 2])
def test_a_drive_of_nvme_s_own_multipath_counts_by_its_paths(tmp_path: Path, paths: int) -> None:
    """Lines of /proc/diskstats as netdata's issue 5744 quotes them, of kernels before 6.4."""
    counted = "682 0 16148 59 67891 258573 17174264 58210 0 584 36052 0 0 0 0\n"
    head = _device(tmp_path, "259:13", "nvme3n1", 0, 0)
    (head / "stat").write_text("0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n")
    (head / "device").mkdir()
    for controller in range(33, 33 + paths):
        hidden = tmp_path / f"pci/nvme{controller}/nvme3c{controller}n1"
        hidden.mkdir(parents=True)
        (hidden / "stat").write_text(counted)
        (head / f"device/nvme{controller}").symlink_to(hidden.parent)
    (found,) = traffic_on_host.layers("259:13", str(tmp_path))
    assert (found["read_bytes"], found["written_bytes"]) == (
        16148 * 512 * paths, 17174264 * 512 * paths,
    )  # fmt: skip
    # Of a partition nothing is counted there, which is not that nothing passed.
    part = head / "nvme3n1p1"
    part.mkdir()
    (part / "stat").write_text((head / "stat").read_text())
    (tmp_path / "259:14").symlink_to(part)
    with pytest.raises(ValueError, match="nvme3n1p1: this kernel counts nothing of it"):
        traffic_on_host.layers("259:14", str(tmp_path))
    # Since 6.4 the drive itself counts, beside its paths.
    (head / "stat").write_text("1 0 8 0 1 0 16 0 0 0 0 0 0 0 0\n")
    (found,) = traffic_on_host.layers("259:13", str(tmp_path))
    assert (found["read_bytes"], found["written_bytes"]) == (8 * 512, 16 * 512)


def test_this_process_as_the_kernel_counts_it(tmp_path: Path) -> None:
    """The script as hosts run it, on a process that writes to a disk."""
    script = shell.program(traffic_on_host)
    pid = tmp_path / "pid"
    pid.write_text(f"{os.getpid()}\n")

    def told() -> dict[str, dict[str, object]]:
        asked = json.dumps({"osd.0": str(pid), "osd.1": str(tmp_path / "none")})
        return json.loads(subprocess.check_output([sys.executable, "-I", "-c", script, asked]))

    before = told()
    with tempfile.TemporaryFile(dir=tmp_path) as file:
        file.write(os.urandom(1 << 20))
        file.flush()
        os.fsync(file.fileno())
        is_on_disk = os.fstatvfs(file.fileno()).f_blocks and "tmpfs" not in _kind(tmp_path)
    after = told()
    assert "error" in after["osd.1"]
    moved = [one["osd.0"]["process"]["written_bytes"] for one in (before, after)]  # type: ignore[index]
    assert not is_on_disk or moved[1] - moved[0] >= 1 << 20


def _kind(path: Path) -> str:
    return subprocess.check_output(["stat", "-f", "-c", "%T", str(path)], text=True)


def _reading(hit: int, **more: object) -> dict[str, dict[str, object]]:
    layer = {"device": "dm-0", "mapping": "m", "read_bytes": 10 * hit, "written_bytes": hit}
    return {
        "osd.0": {
            "host": "h0", "counters": {"buffer_hit_bytes": hit}, "devices": [[layer]],
            "process": {"read_bytes": hit, "written_bytes": hit}, **more,
        }
    }  # fmt: skip


def test_between_two_readings() -> None:
    (found,) = conditions.between(_reading(5), _reading(12)).values()
    assert found == {
        "host": "h0",
        "counters": {"buffer_hit_bytes": 7},
        "devices": [[{"device": "dm-0", "mapping": "m", "read_bytes": 70, "written_bytes": 7}]],
        "process": {"read_bytes": 7, "written_bytes": 7},
    }


def test_an_osd_that_was_restarted_tells_nothing() -> None:
    assert conditions.between(_reading(12), _reading(5)) == {}
    assert conditions.between({}, _reading(5)) == {}


@pytest.mark.parametrize("prefix", ["", "bluestore_"], ids=["18.2", "16.2"])
def test_both_names_of_a_counter(prefix: str) -> None:
    answer = {f"bluestore/{prefix}buffer_hit_bytes": 3, "osd/op_out_bytes": 4}
    sockets = json.dumps({"answers": {"osd.0": answer}, "errors": {}})
    devices = json.dumps({"osd.0": {"devices": [], "process": None}})
    printed = f"@cbt-crypto-sockets\n{sockets}\n@cbt-crypto-devices\n{devices}\n"
    (found,) = conditions.parsed(SITE, {"h0": printed}).values()
    assert found["counters"] == {"buffer_hit_bytes": 3, "client_read_bytes": 4}
    assert conditions.parsed(SITE, {"h0": "@cbt-crypto-sockets\n{}\n"}) == {}


def _slow_op(number: int, at: str, seconds: object) -> dict[str, object]:
    what = "osd_op(client.4135.0:77 2.f 2:f0e:::rbd_data.1a:head [write 0~4096] snapc 0=[])"
    path = f"ops/{number}"
    return {f"{path}/description": what, f"{path}/initiated_at": at, f"{path}/duration": seconds}


def test_slow_operations_are_those_since_the_first_reading() -> None:
    osd = Osd(0, "h0", "/dev/x", "/d", "/s", "/p")
    counter = conditions.Counter(Site("/t", "/c", "head", (), (osd,)))
    first = _slow_op(0, "2026-11-24T15:50:11.500000+0000", 12.5)
    later = _slow_op(0, "2026-11-24T16:50:11.500000+0100", 1.5)
    quick = _slow_op(1, "2026-11-24T15:50:12.000000+0000", 0.02)
    odd = {**_slow_op(2, "soon", 2), **_slow_op(3, "", "long"), "ops/4/duration": 3}
    for ops in (first, {**later, **quick, **odd}):
        asked = {"osd.0": {}, "osd.0 dump_historic_ops": ops, "osd.0 dump_historic_slow_ops": first}
        sockets = json.dumps({"answers": asked, "errors": {}})
        devices = json.dumps({"osd.0": {"devices": [], "process": None}})
        counter.scripts()
        counter.note({"h0": f"@cbt-crypto-sockets\n{sockets}\n@cbt-crypto-devices\n{devices}\n"})
    told = {"osd": "osd.0", "host": "h0", "what": "osd_op", "seconds": 1.5, "began": 1795535411.5}
    assert counter.slow() == [told]
    assert counter.perf() == {}


#: Of `ceph pg stat --format json`, 18.2.7.
PG_STAT = """{"pg_ready":true,"pg_summary":{"num_pg_by_state":[{"name":"active+clean","num":13},
{"name":"active+clean+scrubbing+deep","num":2},{"name":"active+remapped+backfilling","num":1},
{"name":"active+recovery_wait+degraded","num":4}],"num_pgs":20}}"""


def test_what_a_cluster_of_others_is_busy_with() -> None:
    assert conditions.busy_groups(PG_STAT) == {"scrubbing": 2, "recovering": 1}
    for text in ("", "[]", "{}", '{"pg_summary": {"num_pg_by_state": [3]}}'):
        assert conditions.busy_groups(text) == {}


@pytest.mark.parametrize("is_existing", [True, False])
def test_only_a_cluster_of_others_is_asked_what_it_does_besides(is_existing: bool) -> None:
    osd = Osd(0, "h0", "/dev/x", "/d", "/s", "/p", is_existing=is_existing)
    counter = conditions.Counter(Site("/t", "/c", "head", (), (osd,)))
    assert ("head" in counter.scripts()) == is_existing
    printed = {"head": f"@cbt-crypto-placement-groups\n{PG_STAT}"} if is_existing else {}
    counter.note(printed)
    counter.scripts()
    counter.note({})
    told = counter.beside()
    assert (told is not None) == is_existing
    assert told is None or (told["scrubbing"], told["recovering"]) == (2, 1)

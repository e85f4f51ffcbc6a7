"""Reads that OSDs answer from their caches, and reads that take the drives, on real daemons."""

from __future__ import annotations

import csv
import subprocess
from typing import Any

import pytest
import yaml

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

#: 16 MiB fit into what BlueStore keeps of data, whichever of its shards they come to; of 256 MiB
#: small reads see a part, once.
SMALL, LARGE = "16", "256"
#: BlueStore begins with 128 MiB for all caches, of which data have a few in each shard.
CACHE = """\
[osd]
bluestore cache autotune = false
bluestore cache size = 536870912
bluestore cache meta ratio = 0.1
bluestore cache kv ratio = 0.1
"""
LOAD = {
    "vol_size": [int(SMALL), int(LARGE)], "time": 4, "op_size": 4096, "mode": "randread",
    "iodepth": 4, "cache": ["warm", "drop"], "ramp": 0,
}  # fmt: skip


def _is_on_disk(machine: Any) -> bool:
    kind = subprocess.check_output(["stat", "-f", "-c", "%T", str(machine.directory)], text=True)
    return kind.strip() != "tmpfs"


def test_a_row_says_how_much_came_from_memory(machine: Any) -> None:
    config = machine.write({"Unencrypted": {}}, {"rbd_single_client": LOAD})
    campaign = yaml.safe_load(config.read_text())
    conf = machine.directory / "ceph.conf"
    conf.write_text(CACHE)
    campaign["cluster"]["conf_file"] = str(conf)
    config.write_text(yaml.safe_dump(campaign, sort_keys=False))
    done = machine.run(config)
    assert done.returncode == 0, done.stdout + done.stderr
    onode_misses: dict[tuple[int, str], int] = {}
    for cell in machine.cells():
        assert cell["caches"] == {"state": cell["parameters"]["cache"], "faults": []}
        osds = cell["storage"].values()
        assert len(osds) == 2
        hit, missed, given = (
            sum(osd["counters"][name] for osd in osds)
            for name in ("buffer_hit_bytes", "buffer_miss_bytes", "client_read_bytes")
        )
        # the OSD's own count of what it gave, and the kernel's of what its process read
        assert hit + missed == pytest.approx(given, rel=0.01)
        read = sum(osd["process"]["read_bytes"] for osd in osds)
        assert not _is_on_disk(machine) or read == pytest.approx(missed, rel=0.05, abs=4 << 20)
        of = cell["parameters"]
        onode_misses[of["vol_size"], of["cache"]] = sum(
            osd["counters"]["onode_misses"] for osd in osds
        )
    # Maps and superblocks are read at any time; the volumes' own onodes only after a drop.
    for size in {size for size, _ in onode_misses}:
        assert onode_misses[size, "drop"] > onode_misses[size, "warm"], onode_misses
    with (machine.archive / "report.csv").open() as file:
        rows = [r for r in csv.DictReader(file) if r["figure"] == "reads_from_memory_percent"]
    percent = {(row["vol_size"], row["cache"]): float(row["value"]) for row in rows}
    assert percent[SMALL, "warm"] > 99, "a load that reads only what is cached is caught"
    assert percent[SMALL, "drop"] < percent[SMALL, "warm"], percent
    assert percent[LARGE, "drop"] < 30, percent
    assert "reads from memory %" in (machine.archive / "report.md").read_text()

"""A block's log, as fio 3.39 wrote it for 4 s of random reads, and logs made of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cbt_crypto.results.until import read_block

pytestmark = pytest.mark.unit

DATA = Path(__file__).parents[1] / "data" / "fio"
LOG = DATA / "block_iops.log"


def process(volume: int = 0) -> dict[str, Any]:
    return {"host": "node0", "volume": str(volume), "logs": f"output.{volume}"}


def write(directory: Path, volume: int, lines: str, job: int = 1) -> None:
    (directory / f"output.{volume}_iops.{job}.log.node0").write_text(lines)


def test_a_real_log(tmp_path: Path) -> None:
    write(tmp_path, 0, LOG.read_text())
    block = read_block(tmp_path, [process()], 1000)
    assert block is not None
    values = [int(line.split(",")[1]) for line in LOG.read_text().splitlines()]
    assert block.series == tuple(values)
    cut = int(block.warmup_s)
    assert block.iops == {"read": pytest.approx(sum(values[cut:]) / len(values[cut:]))}


@pytest.mark.parametrize("logs", ["../output.0", "{}/output.0", "*"])
def test_logs_elsewhere_are_no_logs(tmp_path: Path, logs: str) -> None:
    """A process is named by an archive, which is data."""
    (tmp_path / "cell").mkdir()
    write(tmp_path, 0, LOG.read_text())
    write(tmp_path / "cell", 1, LOG.read_text())
    named = {**process(), "logs": logs.format(tmp_path)}
    assert read_block(tmp_path / "cell", [named], 1000) is None


def test_a_log_of_an_endless_time(tmp_path: Path) -> None:
    """Every second up to its last was a number in memory."""
    write(tmp_path, 0, "1000, 10, 0, 0\n9000000000000000, 10, 0, 0\n")
    assert read_block(tmp_path, [process()], 1000) is None


def test_processes_and_jobs_add_up_in_the_seconds_that_all_have(tmp_path: Path) -> None:
    write(tmp_path, 0, "5000, 10, 0, 0\n6001, 11, 0, 0\n7000, 12, 0, 0\n8000, 9, 0, 0\n")
    write(tmp_path, 0, "5010, 1, 0, 0\n6001, 1, 0, 0\n7000, 1, 0, 0\n8000, 1, 0, 0\n", job=2)
    write(tmp_path, 1, "5900, 100, 0, 0\n6900, 100, 0, 0\n7900, 100, 0, 0\n")
    block = read_block(tmp_path, [process(0), process(1)], 1000)
    assert block is not None
    assert block.series == (111, 112, 113)


def test_a_stall_at_the_first_ios_counts_as_no_ios(tmp_path: Path) -> None:
    """fio writes no line of a second without IO; the block began with its first line."""
    begun = 1_700_000_000_000
    for volume, first in ((0, 1), (1, 4)):
        lines = "".join(f"{begun + 1000 * n}, 100, 0, 0\n" for n in range(first, 11))
        write(tmp_path, volume, lines)
        side = {"runtime": 10_000, "total_ios": 1000, "iops": 100.0, "io_bytes": 1, "bw_bytes": 1}
        job = {"jobname": "j", "job options": {}, "read": side, "usr_cpu": 1.0, "sys_cpu": 1.0}
        output = {"fio version": "3.39", "timestamp_ms": begun + 10_200, "jobs": [job]}
        (tmp_path / f"json_{volume}").write_text(json.dumps(output))
    processes = [{**process(volume), "json": f"json_{volume}"} for volume in (0, 1)]
    block = read_block(tmp_path, processes, 1000)
    assert block is not None
    assert block.series == (100,) * 3 + (200,) * 7
    assert block.iops == {"read": 170}
    (tmp_path / "json_1").write_text("{")
    torn = read_block(tmp_path, processes, 1000)
    assert torn is not None and torn.series == (200,) * 7, "nothing says that it stalled"


def test_directions_are_kept_apart(tmp_path: Path) -> None:
    write(tmp_path, 0, "".join(f"{n}000, 30, 0, 0\n{n}000, 10, 1, 0\n" for n in range(1, 7)))
    block = read_block(tmp_path, [process()], 1000)
    assert block is not None
    assert (block.iops, block.series) == ({"read": 30, "write": 10}, (40,) * 6)


def test_torn_lines_are_left_out_and_missing_logs_say_nothing(tmp_path: Path) -> None:
    write(tmp_path, 0, "1000, 10, 0, 0\n2000, 10, 0, 0\n3000, 1")
    block = read_block(tmp_path, [process()], 1000)
    assert block is not None and block.series == (10, 10)
    assert read_block(tmp_path, [process(0), process(1)], 1000) is None
    assert read_block(tmp_path, [], 1000) is None


def test_the_latency_of_a_real_log_is_that_of_fio_s_own_total(tmp_path: Path) -> None:
    """fio 3.33, 5 s at a rate: 983,628 ns and 71,255 ns, of which its log of IOPS lacks 1 s."""
    for figure in ("iops", "clat"):
        (tmp_path / f"output.0_{figure}.1.log.node0").write_text(
            (DATA / f"rated_{figure}.log").read_text()
        )
    block = read_block(tmp_path, [process()], 1000, latency=True)
    assert block is not None and block.clat_ns_mean == {
        "read": pytest.approx(983_628, rel=0.02),
        "write": pytest.approx(71_255, rel=0.1),
    }
    assert not read_block(tmp_path, [process()], 1000).clat_ns_mean  # type: ignore[union-attr]


def test_a_mean_latency_is_over_all_ios_of_all_processes_behind_the_warmup(tmp_path: Path) -> None:
    for volume, rates, means in ((0, (9, 30, 30), (9, 100, 200)), (1, (9, 10, 30), (9, 400, 500))):
        lines = "".join(f"{n}000, {rate}, 0, 0\n" for n, rate in enumerate(rates, 1))
        write(tmp_path, volume, lines)
        lines = "".join(f"{n}000, {mean}, 0, 0\n" for n, mean in enumerate(means, 1))
        (tmp_path / f"output.{volume}_clat.1.log.node0").write_text(lines)
    block = read_block(tmp_path, [process(0), process(1)], 1000, 1.0, latency=True)
    waited = 30 * 100 + 30 * 200 + 10 * 400 + 30 * 500
    assert block is not None and block.clat_ns_mean == {"read": pytest.approx(waited / 100)}
    (tmp_path / "output.1_clat.1.log.node0").unlink()
    block = read_block(tmp_path, [process(0), process(1)], 1000, 1.0, latency=True)
    assert block is not None and (block.clat_ns_mean, block.iops) == ({}, {"read": 50})

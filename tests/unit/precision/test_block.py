"""A block's log, as fio 3.39 wrote it for 4 s of random reads, and logs made of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cbt_crypto.results.precision.block import read_block

pytestmark = pytest.mark.unit

LOG = Path(__file__).parents[1] / "data" / "fio" / "block_iops.log"


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


def test_processes_and_jobs_add_up_in_the_seconds_that_all_have(tmp_path: Path) -> None:
    write(tmp_path, 0, "5000, 10, 0, 0\n6001, 11, 0, 0\n7000, 12, 0, 0\n8000, 9, 0, 0\n")
    write(tmp_path, 0, "5010, 1, 0, 0\n6001, 1, 0, 0\n7000, 1, 0, 0\n8000, 1, 0, 0\n", job=2)
    write(tmp_path, 1, "5900, 100, 0, 0\n6900, 100, 0, 0\n7900, 100, 0, 0\n")
    block = read_block(tmp_path, [process(0), process(1)], 1000)
    assert block is not None
    assert block.series == (111, 112, 113)


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

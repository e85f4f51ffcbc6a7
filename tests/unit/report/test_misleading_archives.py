"""Archives made to mislead: bombs, endless lines, links out, markup in names. Read as people do."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.unit

CELL = "results/00000000/id-00000000"
EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>"
#: The report of this archive takes some 200 MB without them.
MOST_BYTES = 900 << 20


def report(archive: Path, *options: str) -> tuple[int, str, int]:
    """Exit status, output and largest memory, in bytes, of `cbt-crypto report`."""
    with (archive.parent / "said").open("w+") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "cbt_crypto", "report", str(archive), *options],
            stdout=said, stderr=subprocess.STDOUT,
        )  # fmt: skip
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        return process.returncode, said.read(), usage.ru_maxrss * 1024


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_memory_is_bounded_and_names_are_inert(small: Path) -> None:
    log = small / CELL / "output.0_iops.1.log.client0"
    with log.open("wb") as file:
        file.truncate(2 << 30)
    member = gzip.compress(bytes(100 << 20), 9)
    bomb = next((small / CELL / "collectl.osd0").glob("*.raw.gz"))
    bomb.write_bytes(member * 60)
    (small / CELL / "collectl.osd0" / f"{EVIL.replace('/', '_')}.raw.gz").write_bytes(b"")
    environment = small / "results" / "environment.json"
    hosts = json.loads(environment.read_text())["hosts"]
    some = next(iter(hosts.values()))
    change(environment, hosts={**hosts, EVIL: {**some, "cpu_model": EVIL, "kernel": EVIL}})
    change(small / "results/00000000/id-00000001/cell.json", state="failed", reason=EVIL)
    status, said, peak = report(small)
    assert "Traceback" not in said
    assert status in (0, 1), said
    assert peak < MOST_BYTES
    for name in ("report.html", "report.md"):
        text = (small / name).read_text()
        assert "alert(1)" in text, "the names are there to be read"
        assert EVIL not in text
        assert "<img src=x" not in text
    for chart in (small / "charts").glob("*.svg"):
        assert "<script" not in chart.read_text()


def test_nothing_is_written_through_links(small: Path) -> None:
    outside = small.parent / "outside"
    outside.mkdir()
    (outside / "victim").write_text("precious")
    (small / "report.html").symlink_to(outside / "victim")
    status, said, _ = report(small)
    assert status == 0, said
    assert not (small / "report.html").is_symlink()
    (small / "report.html").unlink()
    (small / "charts" / "x").mkdir()
    (small / "charts").rename(small.parent / "moved")
    (small / "charts").symlink_to(outside)
    status, said, _ = report(small)
    assert (status, said.splitlines()[-1]) == (2, f"{small}/charts: is a link; remove it")
    assert (outside / "victim").read_text() == "precious"
    assert [path.name for path in outside.iterdir()] == ["victim"]

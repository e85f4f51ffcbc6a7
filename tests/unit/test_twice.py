"""What `make test` does with a test that fails beside others, tried on suites of one file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

TWICE = Path(__file__).resolve().parents[1] / "twice.sh"
BESIDE = ["-n", "2", "--dist", "loadgroup"]


@pytest.mark.parametrize(
    ("body", "words", "runs", "status"),
    [
        ("assert len(runs) == 2", BESIDE, 2, 0),
        ("assert False", BESIDE, 2, 1),
        ("assert True", BESIDE, 1, 0),
        ("pytest.exit('broken')", [], 1, 2),
    ],
    ids=["fails once", "fails", "passes", "breaks off"],
)
def test_what_failed_is_run_once_more(
    tmp_path: Path, body: str, words: list[str], runs: int, status: int
) -> None:
    lines = ["from pathlib import Path", "import pytest", "", "def test_one():",
             "    kept = Path(__file__).with_name('runs')",
             "    runs = (kept.read_text() if kept.exists() else '') + '.'",
             "    kept.write_text(runs)", f"    {body}"]  # fmt: skip
    (tmp_path / "test_one.py").write_text("\n".join(lines))
    (tmp_path / "pytest").write_text(f'#!/bin/sh\nexec {sys.executable} -m pytest "$@"\n')
    (tmp_path / "pytest").chmod(0o755)
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run([TWICE, "test_one.py", *words], cwd=tmp_path, env=path, check=False)
    assert done.returncode == status
    assert len((tmp_path / "runs").read_text()) == runs

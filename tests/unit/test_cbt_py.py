"""./cbt.py finds the checkout's own environment, before anything is imported that it lacks."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """The command in a checkout of its own, by a Python that has no libraries."""
    shutil.copy(ROOT / "cbt.py", tmp_path)
    (tmp_path / "cbt_crypto").symlink_to(ROOT / "cbt_crypto")
    return [sys.executable, "-S", str(tmp_path / "cbt.py"), "--plan", "some.yaml"]


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_the_environment_that_make_has_made_is_used(command: list[str], tmp_path: Path) -> None:
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "by .venv: $*"\n')
    python.chmod(0o755)
    done = run(command)
    assert done.stdout == f"by .venv: {tmp_path}/cbt.py --plan some.yaml\n", done.stderr


def test_without_one_it_says_how_to_make_one(command: list[str]) -> None:
    done = run(command)
    assert done.returncode == 1
    assert done.stderr == "Python has no click; run `make venv`, or `pip install .`\n"

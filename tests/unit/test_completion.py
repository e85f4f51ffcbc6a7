"""The shells' completion scripts know both commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from cbt_crypto.cli import cbt_crypto

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_both_commands_are_completed(shell: str) -> None:
    result = CliRunner().invoke(cbt_crypto, ["completion", shell])
    assert result.exit_code == 0
    assert f"_CBT_CRYPTO_COMPLETE={shell}_complete" in result.output
    assert f"_CBT_PY_COMPLETE={shell}_complete" in result.output


def test_a_name_that_a_shell_would_run_is_not_offered(tmp_path: Path) -> None:
    """`results/2026$(id)` was offered as it is, and run with Tab and Enter."""
    for name in (
        "2026$(id>PWN3)",
        "2026`id`",
        "2026;id",
        "2026 id",
        "2026\nid",
        "2026-é",
        "2026-1",
    ):
        (tmp_path / "results" / name / "results").mkdir(parents=True)
        (tmp_path / "results" / name / "results" / "plan.json").touch()
    for shell in ("bash", "zsh", "fish"):
        asked = {"COMP_WORDS": "cbt-crypto report results/2", "COMP_CWORD": "2",
                 "_CBT_CRYPTO_COMPLETE": f"{shell}_complete"}  # fmt: skip
        if shell == "fish":
            asked["COMP_CWORD"] = "results/2"
        done = subprocess.run(
            [sys.executable, "-m", "cbt_crypto"], cwd=tmp_path, env={**os.environ, **asked},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert re.findall("results/2026.*", done.stdout) == ["results/2026-1"], shell


def test_bash_takes_it() -> None:
    text = CliRunner().invoke(cbt_crypto, ["completion", "bash"]).output
    asked = f"{text}\ncomplete -p cbt-crypto cbt.py"
    told = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True)
    assert len(told.stdout.splitlines()) == 2


def test_archives_are_completed(tmp_path: Path) -> None:
    for name in ("reef-2026-11-23", "reef-2026-11-24"):
        (tmp_path / "results" / name / "results").mkdir(parents=True)
        (tmp_path / "results" / name / "results" / "plan.json").touch()
    (tmp_path / "results" / "notes").mkdir()

    def offered(command: str, typed: str) -> list[str]:
        program = [sys.executable, "-m", "cbt_crypto"]
        asked = {
            "COMP_WORDS": f"cbt-crypto {command} {typed}",
            "COMP_CWORD": "2",
            "_CBT_CRYPTO_COMPLETE": "bash_complete",
        }
        done = subprocess.run(
            program, cwd=tmp_path, env={**os.environ, **asked}, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        return done.stdout.splitlines()

    both = ["plain,results/reef-2026-11-24", "plain,results/reef-2026-11-23"]
    for command in ("watch", "stop", "cleanup", "report", "gate", "pack"):
        assert offered(command, "res") == both, command
    # What is no archive of this directory is any path, as the shell completes it.
    assert offered("watch", "/tm") == ["dir,/tm"] or offered("watch", "/tm") == ["file,/tm"]

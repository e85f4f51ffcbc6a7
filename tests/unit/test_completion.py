"""The shells' completion scripts know both commands."""

from __future__ import annotations

import subprocess

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


def test_bash_takes_it() -> None:
    text = CliRunner().invoke(cbt_crypto, ["completion", "bash"]).output
    asked = f"{text}\ncomplete -p cbt-crypto cbt.py"
    told = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True)
    assert len(told.stdout.splitlines()) == 2

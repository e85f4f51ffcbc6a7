"""Each published experiment ends in verdicts as it is shipped, within a weekend."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from cbt_crypto.main import cbt

pytestmark = pytest.mark.unit

CONFIGS = Path(__file__).parents[3] / "configs"
PUBLISHED = (
    "reef_encryption", "luks_workqueues", "hci_tuning", "luks_raw_device", "network_overhead",
    "sync_writes", "quickstart",
)  # fmt: skip


def planned(name: str, text: str, directory: Path) -> str:
    path = directory / f"{name}.yaml"
    path.write_text(text)
    done = CliRunner().invoke(cbt, ["--plan", "--cbt", "embedded", str(path)])
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


@pytest.mark.parametrize("name", PUBLISHED)
def test_it_ends_in_verdicts(name: str, tmp_path: Path) -> None:
    text = (CONFIGS / f"{name}.yaml").read_text()
    said = planned(name, text, tmp_path)
    assert "The campaign ends in verdicts" in said
    hours = re.search(r"In all (?:at most )?about (\d+) h ", said)
    assert hours is None or int(hours[1]) < 60, "a weekend"
    once = planned(name, re.sub(r"(?m)^  iterations: \d+", "  iterations: 1", text), tmp_path)
    assert "ends in verdicts" not in once

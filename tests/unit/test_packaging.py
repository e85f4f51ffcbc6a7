"""All packages have one version, and name files that there are."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import cbt_crypto

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]


def test_every_recipe_has_the_version_of_the_program() -> None:
    version = cbt_crypto.__version__
    assert f"cbt-crypto ({version}) " in (ROOT / "debian/changelog").read_text().splitlines()[0]
    assert not re.search(r"^Version: +[0-9]", (ROOT / "packaging/cbt-crypto.spec").read_text())
    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text()


def test_the_version_is_read_by_make_as_python_reads_it() -> None:
    text = (ROOT / "cbt_crypto/__init__.py").read_text()
    assert re.findall(r'^__version__ = "(.*)"$', text, re.MULTILINE) == [cbt_crypto.__version__]
    said = subprocess.run(
        [sys.executable, "-m", "cbt_crypto", "--version"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout.split()[-1] == cbt_crypto.__version__


def test_the_container_copies_and_mounts_what_there_is() -> None:
    recipe = (ROOT / "packaging/Containerfile").read_text()
    assert (ROOT / "requirements.lock").is_file() and "/src/requirements.lock" in recipe
    assert not re.search(r"COPY .*\.ssh", recipe), "keys are mounted, never in an image"

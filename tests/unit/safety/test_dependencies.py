"""What the quickstart installs is pinned by checksum, from nowhere in particular."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[3]
LOCK = (ROOT / "requirements.lock").read_text()


def required() -> list[Requirement]:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "setup.cfg")
    return [Requirement(line) for line in parser["options"]["install_requires"].split("\n") if line]


def test_every_line_is_an_exact_version_and_its_checksums() -> None:
    blocks = LOCK.replace("\\\n", " ").strip().splitlines()
    kept = [line for line in blocks if line.strip() and not line.startswith("#")]
    form = re.compile(r"[a-z0-9-]+==[\w.]+(?: ;[^\\]*?)?(?:\s+--hash=sha256:[0-9a-f]{64})+\s*")
    assert kept and not [line[:60] for line in kept if not form.fullmatch(line)]
    assert not re.search(r"https?:|--(extra-)?index|--find-links|--trusted", LOCK)


def test_it_has_all_that_the_package_requires_as_it_requires_it() -> None:
    pinned = dict(re.findall(r"^([a-z0-9-]+)==([\w.]+)", LOCK, re.MULTILINE))
    for one in required():
        assert pinned[canonicalize_name(one.name)] in one.specifier, one
    assert "setuptools" in pinned, "or building the package would fetch one that nobody looked at"


def test_every_requirement_has_both_bounds() -> None:
    for one in required():
        assert {spec.operator for spec in one.specifier} == {">=", "<"}, one


def test_the_quickstart_installs_by_it() -> None:
    (recipe,) = re.findall(
        r"^\$\(VENV\)/\.stamp:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.M
    )
    assert "--require-hashes -r requirements.lock" in recipe
    assert "--no-deps --no-build-isolation -e ." in recipe

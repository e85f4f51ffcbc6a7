"""The documentation is built strictly: a page that its menu leaves out ends the build."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.unit

PROJECT = Path(__file__).resolve().parents[2]


def pages(nav: Any) -> Iterator[str]:
    """The files that a menu of mkdocs names, at any depth."""
    if isinstance(nav, str):
        yield nav
    for entry in nav if isinstance(nav, list) else nav.values() if isinstance(nav, dict) else ():
        yield from pages(entry)


def test_the_menu_has_every_page_once() -> None:
    document = yaml.safe_load((PROJECT / "mkdocs.yml").read_text(encoding="utf-8"))
    there = [path.name for path in (PROJECT / "docs").glob("*.md")]
    assert sorted(pages(document["nav"])) == sorted(there)

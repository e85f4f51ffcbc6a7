"""One word for each thing, in docs, messages and docstrings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
PRODUCT = ("cbt_crypto", "benchmarks", "cluster_overlays")
#: What is written instead of each.
REJECTED = {
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\b[Ss]o (many|long|often)\b": "the number, or its name",
    r"\bpercents\b": "percentages, or percent of the baseline",
    r"\bstrangers?\b": "another user, untrusted",
    r"\b(take|takes|taken|taking) down\b": "tear down",
    r"\b(equal|different|same) loads?\b": "workload, or rate",
    r"\blies (on|in|below)\b": "is",
}
_TYPES = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def _modules() -> Iterator[tuple[Path, ast.Module]]:
    for top in PRODUCT:
        for path in sorted((ROOT / top).rglob("*.py")):
            if not any(part.is_symlink() for part in (path, *path.parents)):
                yield path, ast.parse(path.read_text(encoding="utf-8"))


def _sentences(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Docstrings and texts of more than one word; names of keys have none."""
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


def _rejected(text: str) -> Iterator[str]:
    for pattern, instead in REJECTED.items():
        for found in re.finditer(pattern, re.sub(r"`[^`]*`", "", text)):
            yield f"{found[0]!r}; write: {instead}"


def test_pages_use_no_rejected_word() -> None:
    # What a run said when it was tried stays as it was said.
    pages = [page for page in (ROOT / "docs").glob("*.md") if page.name != "faults.md"]
    found = {
        f"{page.name}: {problem}"
        for page in pages
        for problem in _rejected(page.read_text(encoding="utf-8"))
    }
    assert found == set()


def test_messages_and_docstrings_use_no_rejected_word() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{line}: {problem}"
        for path, module in _modules()
        for line, text in _sentences(module)
        for problem in _rejected(text)
    }
    assert found == set()


def test_a_docstring_makes_sense_without_its_neighbours() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {getattr(node, 'name', 'module')}"
        for path, module in _modules()
        for node in ast.walk(module)
        if isinstance(node, _TYPES) and (ast.get_docstring(node) or "").startswith("The same")
    }
    assert found == set()

"""What tests put in the place of something has a public name: what is private may change."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

TESTS = Path(__file__).parents[1]


def patched(text: str) -> Iterator[str]:
    """The names that `monkeypatch.setattr` and `delattr` are given, a dotted path's last part."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr not in ("setattr", "delattr"):
                continue
            for argument in node.args[:2]:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield argument.value.rpartition(".")[2]


def test_no_private_name_is_patched() -> None:
    found = {
        f"{path.relative_to(TESTS)}: {name}"
        for path in TESTS.rglob("*.py")
        for name in patched(path.read_text(encoding="utf-8"))
        # os._exit is the standard library's name for it.
        if name.startswith("_") and not name.startswith("__") and name != "_exit"
    }
    assert found == set()


def test_what_is_patched_is_found() -> None:
    text = 'monkeypatch.setattr("a.b._c", 1)\nmonkeypatch.setattr(a, "_d", 1)\nx.setattr(a, "e", 1)'
    assert list(patched(text)) == ["_c", "_d", "e"]

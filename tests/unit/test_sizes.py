"""What a reader can hold in mind: the longest module and function, and the whole product."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
MODULE_LINES, FUNCTION_LINES = 650, 60
#: Modules and lines of the whole product: when you add, take away.
PRODUCT_MODULES, PRODUCT_LINES = 220, 51_893


def sources(*folders: str) -> Iterator[Path]:
    """Links inside `cbt_crypto/` are not followed: what they lead to is in the list itself."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not any(parent.is_symlink() for parent in path.parents):
                yield path


PRODUCT = [*sources("cbt_crypto", "benchmarks", "cluster_overlays", "perf")]
#: What tests share; a file of tests is a list, and may be longer.
HELPERS = [path for path in sources("tests") if not path.name.startswith("test_")]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def too_long(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    lines = len(text.splitlines())
    if lines > MODULE_LINES:
        yield f"{name_of(path)} has {lines} lines"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                yield f"{name_of(path)}:{node.lineno} {node.name} has {length} lines"


def test_no_module_and_no_function_is_too_long() -> None:
    assert len(PRODUCT) > 200 and len(HELPERS) > 20
    assert [fault for path in (*PRODUCT, *HELPERS) for fault in too_long(path)] == []


def test_the_product_does_not_grow() -> None:
    product = [*sources("cbt_crypto", "benchmarks", "cluster_overlays")]
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in product)
    assert len(product) <= PRODUCT_MODULES
    assert lines <= PRODUCT_LINES


def test_what_is_too_long_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    path = tmp_path / "long.py"
    path.write_text("def f():\n" + "    pass\n" * 60 + "x = 1\n" * 590)
    assert list(too_long(path)) == ["long.py has 651 lines", "long.py:1 f has 61 lines"]

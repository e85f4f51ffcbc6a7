"""A name that begins with an underscore is its module's own: nobody else imports or calls it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
FOLDERS = ("cbt_crypto", "benchmarks", "cluster_overlays", "perf", "tests")
#: What others offer by such a name: the standard library and lxml's types.
OF_OTHERS = {"os._exit", "etree._Element"}


def sources() -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not any(parent.is_symlink() for parent in path.parents):
                yield path


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def borrowed(text: str) -> Iterator[str]:
    """The private names that a module takes from others: imported, or by the module's own name."""
    imported = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                imported.add((alias.asname or alias.name).split(".")[0])
                if isinstance(node, ast.ImportFrom) and is_private(alias.name):
                    yield f"{node.module}.{alias.name}"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
            if node.value.id in imported and is_private(node.attr) and name not in OF_OTHERS:
                yield name


def test_no_module_borrows_a_private_name() -> None:
    paths = list(sources())
    assert len(paths) > 400
    names = {path.relative_to(ROOT).as_posix(): list(borrowed(path.read_text())) for path in paths}
    assert {path: taken for path, taken in names.items() if taken} == {}


def test_what_is_borrowed_is_found() -> None:
    text = "import os\nfrom a.b import _c, d\nfrom a import b\nb._e()\nb.f()\nd._g\nself._h\n"
    assert sorted(borrowed(text)) == ["a.b._c", "b._e", "d._g"]
    assert list(borrowed("import os\nos._exit(0)\n")) == []

"""Changes to upstream's own files, at places that are found by what stands there.

Nothing of upstream's text is kept here: Python is found by its syntax tree.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import TypeVar

from cbt_crypto.errors import UsageError

NodeT = TypeVar("NodeT", bound=ast.AST)

#: The module that is put beside upstream's, and says which cluster a file asks for.
FACTORY = "clusterfactory"


def use_factory(source: str, name: str = "cbt.py") -> str:
    """cbt.py, with the cluster from the factory, and campaigns handed over before anything else.

    Raises UsageError that names what was not found.
    """
    tree = ast.parse(source)
    lines = source.splitlines(keepends=True)
    imported = _the(name, "an import of Ceph from cluster.ceph", _imports(tree))
    main = _the(name, "a function main", _functions(tree, "main"))
    made = _the(name, "a call of Ceph in main", _calls(main, "Ceph"))
    begin = _the(
        name, "settings.initialize(...) in main",
        [s.value for s in main.body if isinstance(s, ast.Expr) and _is_initialize(s.value)],
    )  # fmt: skip
    assert isinstance(begin, ast.Call)
    (context,) = begin.args
    # From the end on, so that line numbers stay true.
    _replace(lines, made.func, f"{FACTORY}.get_object")
    if made.lineno >= 2 and re.match(r"\s*#.*cluster\s*factory", lines[made.lineno - 2], re.I):
        del lines[made.lineno - 2]  # what it asks for is there now
    indent = " " * begin.col_offset
    shown = ast.unparse(context)
    lines.insert(
        begin.lineno - 1,
        f"{indent}if {FACTORY}.is_campaign({shown}.config_file):\n"
        f"{indent}    return {FACTORY}.run_campaign({shown})\n",
    )
    lines[imported.lineno - 1 : imported.end_lineno] = [f"import {FACTORY}\n"]
    changed = "".join(lines)
    ast.parse(changed)
    return changed


def _imports(tree: ast.Module) -> list[ast.ImportFrom]:
    return [
        node
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        and node.module == "cluster.ceph"
        and [alias.name for alias in node.names] == ["Ceph"]
    ]


def _functions(tree: ast.Module, name: str) -> list[ast.FunctionDef]:
    return [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]


def _calls(function: ast.FunctionDef, name: str) -> list[ast.Call]:
    return [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
    ]


def _is_initialize(value: ast.expr) -> bool:
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr == "initialize"
        and isinstance(value.func.value, ast.Name)
        and value.func.value.id == "settings"
        and len(value.args) == 1
    )


def _the(name: str, what: str, found: Sequence[NodeT]) -> NodeT:
    if len(found) != 1:
        raise UsageError(
            f"{name}: {len(found)} times {what}, where this program looks for one; this checkout "
            "is too unlike those it knows"
        )
    return found[0]


def _replace(lines: list[str], node: ast.expr, text: str) -> None:
    """Replace a node that lies on one line."""
    line = lines[node.lineno - 1]
    lines[node.lineno - 1] = line[: node.col_offset] + text + line[node.end_col_offset :]


def require(requirements: str, wanted: Sequence[str]) -> str:
    """requirements.txt with those of `wanted` that it does not have."""
    there = {_project(line) for line in requirements.splitlines()}
    missing = [line for line in wanted if _project(line) not in there]
    end = "" if not requirements or requirements.endswith("\n") else "\n"
    return requirements + end + "".join(f"{line}\n" for line in missing)


def _project(line: str) -> str:
    name = re.split(r"[<>=!~;\[ ]", line.strip(), maxsplit=1)[0]
    return name.lower().replace("_", "-")


#: Slices as the formatter writes them, and lines that begin with an operator: PEP 8 has them so,
#: while the checker's configuration there turns its defaults off, and these two rules on.
_COLON = re.compile(r"\S :(?=[\] ]|\S)")
_OPERATOR = re.compile(r"^\s+(?:and|or|[-+*/|&%]|==|!=|<=|>=|<|>|not in|in|is)\s+\S")


def without_complaints(source: str) -> str:
    """Python of ours so that upstream's flake8 configuration has nothing to say of it."""
    return "".join(_quiet(line) for line in source.splitlines(keepends=True))


def _quiet(line: str) -> str:
    rules = [
        rule
        for rule, pattern in (("E203", _COLON), ("W503", _OPERATOR))
        if pattern.search(line) and "# noqa" not in line
    ]
    if not rules or line.rstrip().endswith("\\") or '"""' in line:
        return line
    return f"{line.rstrip()}  # noqa: {','.join(rules)}\n"

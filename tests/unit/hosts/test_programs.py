"""Modules whose source is sent to the hosts: with what they import, and nothing lost."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from cbt_crypto.hosts import shell
from cbt_crypto.hosts.devices.layers_on_host import number, number_at, opened

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[3]
NAMES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for folder in ("cbt_crypto", "cluster_overlays")
    for path in sorted((ROOT / folder).rglob("*_on_host.py"))
]
MODULES = [
    importlib.import_module(name if name.startswith("cbt_crypto.") else f"cbt_crypto.{name}")
    for name in NAMES
]


#: The value that replaces every name imported from typing, as `ast.dump` shows it.
NO_TYPE = ast.dump(ast.parse(shell.NO_TYPE).body[0])[len("Expr(") :]


def is_start(text: str) -> bool:
    return text.startswith("If(") and "__main__" in text


def statements(source: str, has_start: bool) -> list[str]:
    """Each statement of a module without docstrings and imports of ours."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value = ast.Constant("")
    dumped = [(node, ast.dump(node)) for node in tree.body]
    return [
        text
        for node, text in dumped
        if not (isinstance(node, ast.ImportFrom) and str(node.module).startswith("cbt_crypto"))
        and not text.startswith("ImportFrom(module='typing'")
        and not text.endswith(NO_TYPE)
        and (has_start or not is_start(text))
    ]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.split(".")[-1])
def test_what_is_sent_is_the_module_behind_what_it_imports(module: ModuleType) -> None:
    sent = statements(shell.program(module), has_start=True)
    of_module = statements(inspect.getsource(module), has_start=True)
    assert sent[-len(of_module) :] == of_module
    assert not any("cbt_crypto." in text for text in sent if text.startswith("ImportFrom"))
    assert sum(map(is_start, sent)) <= 1
    bound = "|".join([r"(?:Function|Class)Def\(name=", r"Assign\(targets=\[Name\(id="])
    names = [name for text in sent for name in re.findall(rf"^(?:{bound})'(\w+)'", text)]
    assert {name for name in names if names.count(name) > 1} <= {"main"}
    functions = statements(shell.definitions(module), has_start=False)
    assert functions == [text for text in sent if not is_start(text)]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.split(".")[-1])
def test_every_name_in_it_is_defined(module: ModuleType, tmp_path: Path) -> None:
    """ruff reads the text as Python that stands alone: F821 is an undefined name."""
    path = tmp_path / "program.py"
    path.write_text(shell.program(module))
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821,F822,F823"]
    done = subprocess.run([*command, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.split(".")[-1])
def test_it_is_defined_without_typing(module: ModuleType) -> None:
    """Its import takes 9 ms of 39, and an emulated machine starts hundreds of such programs."""
    text = f"{shell.definitions(module)}print('typing' in sys.modules)"
    command = [sys.executable, "-I", "-S", "-c", f"import sys\n{text}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"{'import typing' in inspect.getsource(module)}\n"


def test_the_modules_are_found() -> None:
    assert len(MODULES) > 15


def test_the_devices_of_a_process_are_those_it_has_open(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"], stdin=(tmp_path / "file").open("w")) as process:
        try:
            pid, own = str(process.pid), number(os.stat(tmp_path).st_dev)
            until = time.monotonic() + 30
            while Path(f"/proc/{pid}/comm").read_text().strip() != "sleep":
                assert time.monotonic() < until
                time.sleep(0.01)
            assert opened(pid) == []
            assert opened(pid, lambda target, _: target == str(tmp_path / "file")) == [own]
        finally:
            process.kill()


def test_only_a_block_device_has_a_number(tmp_path: Path) -> None:
    assert number_at(str(tmp_path)) is None
    assert number_at(str(tmp_path / "none")) is None
    assert number_at("/dev/null") is None

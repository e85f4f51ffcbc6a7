"""The layers of docs/architecture.md: import-linter holds them, and a wrong import breaks them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in ("cbt_crypto", "pyproject.toml"):
        source, target = ROOT / name, tmp_path / name
        if source.is_dir():
            # The links to benchmarks and cluster_overlays become folders.
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    return tmp_path


def lint(directory: Path) -> subprocess.CompletedProcess[str]:
    program = (
        "import sys; sys.path.insert(0, '.'); "
        "from importlinter.cli import lint_imports_command as lint; lint()"
    )
    return subprocess.run(
        [sys.executable, "-c", program, "--no-cache"],
        cwd=directory, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def test_the_layers_hold(copy: Path) -> None:
    done = lint(copy)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("hosts/site.py", "cbt_crypto.plan.cells"),
        ("plan/cells.py", "cbt_crypto.engine.choice"),
        ("report/model.py", "cbt_crypto.plan.file"),
        ("results/cell/run.py", "cbt_crypto.cluster_overlays.base"),
        ("engine/upstream/cell.py", "cbt_crypto.run.cell.measure"),
    ],
)
def test_a_wrong_import_breaks_them(copy: Path, module: str, imported: str) -> None:
    path = copy / "cbt_crypto" / module
    path.write_text(path.read_text() + f"\nimport {imported}  # noqa\n")
    done = lint(copy)
    assert done.returncode == 1, done.stdout + done.stderr
    assert imported in done.stdout

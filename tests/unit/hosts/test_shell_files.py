"""The `.sh` files beside modules: whole functions alone, sent as far as they are called."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from cbt_crypto.hosts import shell

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[3]
FILES = [
    path
    for folder in ("benchmarks", "cbt_crypto", "cluster_overlays")
    for path in sorted((ROOT / folder).rglob("*.sh"))
    if path.with_suffix(".py").exists()
]


def test_there_are_some() -> None:
    assert {"destroy.sh", "rbd_images.sh", "environment.sh"} <= {path.name for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_has_functions_and_comments_alone(path: Path) -> None:
    """Anything else would never reach a host."""
    text = path.read_text()
    rest = shell.FUNCTION.sub("", text)
    assert [line for line in rest.splitlines() if line and not line.startswith("#")] == []
    names = [match[1] for match in shell.FUNCTION.finditer(text)]
    assert len(names) == len(set(names)) == len(re.findall(r"^\w+\(\)", text, re.M))
    subprocess.run(["sh", "-n", str(path)], check=True)


def test_what_is_called_comes_along_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "some.sh").write_text(
        "# Why.\none() { two; }\n\n# Never sent.\ntwo() {\n    # Why this.\n    echo 2\n}\n"
        "three() { one; }\n"
    )
    module = str(tmp_path / "some.py")
    assert shell.calling(module, "two") == "two() {\n    # Why this.\n    echo 2\n}\ntwo"
    sent = shell.call(module, "three", "a b")
    assert re.findall(r"^(\w+)\(", sent, re.M) == ["one", "two", "three"]
    assert sent.endswith("\nthree 'a b'") and "Why." not in sent
    assert subprocess.check_output(["sh", "-c", sent], text=True) == "2\n"
    assert shell.calling(module, "nothing of it") == "nothing of it"

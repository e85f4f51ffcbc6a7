"""The patches in contrib/upstream as they are read by a reviewer."""

from __future__ import annotations

import re

import pytest
from upstream_patches import PATCHES

pytestmark = pytest.mark.unit

#: Lines that a patch may add and remove, tests and documentation included.
_LIMIT = {"hook": 380, "luks": 550, "messenger-modes": 550, "cpusets": 380}

every_patch = pytest.mark.parametrize("name", PATCHES)


def test_patches_are_numbered() -> None:
    assert [path.name[:5] for path in PATCHES.values()] == [f"{n:04}-" for n in range(1, 7)]


@every_patch
def test_subject_and_message(name: str) -> None:
    text = PATCHES[name].read_text()
    (subject,) = re.findall(r"^Subject: \[PATCH\] (.*(?:\n .*)?)$", text, re.M)
    component, _, summary = subject.replace("\n", "").partition(": ")
    assert re.fullmatch(r"[a-z_]+", component) and summary[0].isupper() and len(subject) <= 72
    message, _, rest = text.partition("\n---\n")
    assert message.endswith("\nAssisted-by: LLM")
    assert "Signed-off-by" not in text, "whoever sends a patch signs it off"
    for heading in ("What changes without", "How it was tried", "For the reviewer"):
        assert f"\n{heading}" in f"\n{rest}"


@every_patch
def test_a_patch_is_small_and_needs_nothing_of_this_package(name: str) -> None:
    lines = PATCHES[name].read_text().splitlines()
    changed = [line for line in lines if re.match(r"[+-](?!\+\+ |-- )", line)]
    assert len(changed) <= _LIMIT.get(name, 380)
    assert not [line for line in changed if re.search("cbt.crypto", line)]
    files = [line[6:] for line in lines if line.startswith("+++ b/")]
    assert any(file.startswith("tests/test_") for file in files)
    assert name == "cpu-sums" or any(file.startswith("docs/") for file in files)


@every_patch
def test_its_list_of_files_counts_its_lines(name: str) -> None:
    told, _, diff = PATCHES[name].read_text().partition("\ndiff --git ")
    for sign, word in (("+", "insertion"), ("-", "deletion")):
        counts = re.findall(rf"(\d+) {word}s?\([+-]\)", told) or ["0"]
        lines = re.findall(rf"^\{sign}(?!\{sign}\{sign} )", diff, re.M)
        assert counts == [str(len(lines))], "make upstream-patches writes it anew"

"""Changes to upstream's own files, at lines that are found by a pattern.

A pattern is as short as will do; nothing else of upstream's text is kept here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cbt_crypto.errors import UsageError


@dataclass(frozen=True)
class Edit:
    """One change: `text`, whole lines, before, after, or instead of the line that `at` matches.

    `at` is a regular expression for a line without its end, and matches one line of the file.
    """

    path: str
    where: Literal["before", "after", "instead"]
    at: str
    text: str


def apply(tree: Path, edits: Sequence[Edit]) -> None:
    """Change the files below `tree`. Raises UsageError that names what was not found."""
    for edit in edits:
        path = tree / edit.path
        if not path.is_file():
            raise UsageError(f"{edit.path}: is not there; {_UNLIKE}")
        path.write_text(changed(path.read_text(encoding="utf-8"), edit), encoding="utf-8")


_UNLIKE = "this checkout is too unlike those that this program knows"


def changed(source: str, edit: Edit) -> str:
    """The source with one edit. Raises UsageError unless its place is there once."""
    lines = source.splitlines(keepends=True)
    places = [
        number
        for number, line in enumerate(lines)
        if re.fullmatch(edit.at, line.rstrip("\n").rstrip("\r"))
    ]
    if len(places) != 1:
        raise UsageError(
            f"{edit.path}: {len(places)} lines are like {edit.at!r}, where this program looks for "
            f"one; {_UNLIKE}"
        )
    (place,) = places
    first = place + 1 if edit.where == "after" else place
    last = place if edit.where == "before" else place + 1
    lines[first:last] = [edit.text]
    return "".join(lines)

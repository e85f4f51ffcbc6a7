"""What was wrong with a file of an archive, kept beside the figures instead of raised."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One sentence about one file or cell.

    `file` is relative to the archive and begins the sentence; it is empty when the problem is
    of the cell as a whole.
    """

    file: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.file} {self.sentence}" if self.file else self.sentence


class Malformed(Exception):
    """A file cannot be read as what it should be; the message is one sentence without its name."""

"""What was wrong with a file of an archive, kept beside the figures instead of raised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

#: Characters of a sentence about a file.
_LONGEST = 400


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
    """A file cannot be read as what it should be; the message is one sentence without its name.

    What it repeats of the file is made printable, on one line, and shortened where it is longer
    than a sentence.
    """

    def __init__(self, sentence: str) -> None:
        text = printable(" ".join(sentence.split()))
        super().__init__(text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ...")


class Unreadable(Malformed):
    """What the system would not let be read, though it is there: another time it may.

    `met` is how many of these this process has met, whoever caught them.
    """

    met: ClassVar[int] = 0

    def __init__(self, error: OSError) -> None:
        super().__init__(f"cannot be read ({error.strerror})")
        Unreadable.met += 1


def of_system(error: OSError) -> Malformed:
    """The problem that this error of the system is."""
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return Malformed(f"cannot be read ({error.strerror})")
    return Unreadable(error)


def printable(text: str) -> str:
    """`text` with a replacement character for each one that is neither printable nor a newline.

    A terminal would obey some of them, and an HTML document cannot hold others.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)

"""Log every command that ran on a host in one line: `results/commands.log` and `cbt.py -v`.

What a check asked before anything was touched is held back until there is an archive.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import logging.handlers
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Optional

from typing_extensions import override

from cbt_crypto.hosts.secret import masked

#: Where it stands in an archive.
NAME = "results/commands.log"

#: How a command ends that did what it should.
SUCCESS = "exit 0"

_LOGGER = logging.getLogger("cbt_crypto.commands")
_LOGGER.propagate = False
_LOGGER.setLevel(logging.INFO)

#: Characters of a command that are shown, and of them those at its end.
_LONGEST, _END = 2000, 400
#: Characters of what a failed command said.
_SAID = 300
#: Names of hosts in one line.
_HOSTS = 16
#: Bytes after which the file is put aside as commands.log.1, and older parts with higher numbers.
_FILE_BYTES = 16 << 20
#: Older parts that are kept.
_PARTS = 63
#: Lines that are held back.
_HELD = 10_000
#: A here-document longer than this is logged as its number of lines.
_SHOWN_LINES = 6
_HERE = re.compile(
    r"<<-?[ ]*['\\]?(?P<word>\w+)'?(?P<rest>[^\n]*)\n(?P<body>.*?)\n(?P=word)\b", re.S
)


def record(
    hosts: Sequence[str], what: str, command: str, ending: str, seconds: float,
    errors: str = "",
) -> None:  # fmt: skip
    """Log a command that ended, as `ending` says: `exit 0`, `no answer`, `timed out`, `started`."""
    if _LOGGER.handlers:
        _LOGGER.info("%s", line(time.time(), hosts, what, command, ending, seconds, errors))


def line(
    ended: float, hosts: Sequence[str], what: str, command: str, ending: str,
    seconds: float, errors: str = "",
) -> str:  # fmt: skip
    """One line of the log; `ended` in seconds since the epoch."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ended)) + f".{int(ended % 1 * 1000):03}Z"
    names = ",".join(hosts[:_HOSTS])
    more = f"+{len(hosts) - _HOSTS}" if len(hosts) > _HOSTS else ""
    text = f"{stamp}\t{seconds:.3f} s\t{ending}\t{names}{more}\t{what}\t{_shown(command)}"
    if ending != SUCCESS and errors.strip():
        text += f"\tsaid: {_one_line(masked(errors.strip())[-_SAID:])}"
    return text


def _shown(command: str) -> str:
    text = _one_line(_HERE.sub(_without_body, masked(command.strip())))
    if len(text) <= _LONGEST:
        return text
    name = hashlib.sha256(command.encode()).hexdigest()[:12]
    return (
        f"{text[: _LONGEST - _END]} ... [{len(text)} characters, sha256 {name}] ... {text[-_END:]}"
    )


def _without_body(match: re.Match[str]) -> str:
    lines = match["body"].count("\n") + 1
    if lines <= _SHOWN_LINES:
        return match[0]
    return f"<<'{match['word']}'{match['rest']} [{lines} lines]"


def _one_line(text: str) -> str:
    """Line breaks and tabs as `\\n` and `\\t`; what else a terminal would act on as `?`."""
    text = text.replace("\n", "\\n").replace("\t", "\\t")
    return "".join(character if character.isprintable() else "?" for character in text)


class CommandLog:
    """Holds lines back until `open` says where they belong."""

    def __init__(self) -> None:
        """Hold lines in memory: before `open` there may be no archive to write to."""
        never = logging.CRITICAL + 1
        self.handler = logging.handlers.MemoryHandler(_HELD, flushLevel=never, flushOnClose=False)

    def open(self, archive: Path) -> None:
        """Write to the archive from now on, and first what was held back. Safe to repeat."""
        if self.handler.target is None:
            path = archive / NAME
            # What cannot be written is told of by the file, and by what has to be written.
            with contextlib.suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
            self.handler.setTarget(_File(path))
            self.handler.flush()
            self.handler.capacity = 1

    def close(self) -> None:
        """Close the file; what nobody gave a file to is forgotten."""
        target = self.handler.target
        self.handler.close()
        if target is not None:
            target.close()


class _File(logging.handlers.RotatingFileHandler):
    """Appends to a regular file of the archive, never through a link that somebody put there."""

    def __init__(self, path: Path) -> None:
        self._told = False
        super().__init__(
            path, maxBytes=_FILE_BYTES, backupCount=_PARTS, encoding="utf-8", delay=True
        )

    @override
    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(self.baseFilename, flags, 0o644)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            os.close(descriptor)
            raise OSError(f"{self.baseFilename} is not a regular file of its own")
        return open(descriptor, "a", encoding="utf-8")

    @override
    def handleError(self, record: logging.LogRecord) -> None:
        """Warn once: a full disk ends the campaign elsewhere, with a sentence of its own."""
        if not self._told:
            self._told = True
            error = sys.exc_info()[1]
            print(f"{self.baseFilename}: commands are not logged: {error}", file=sys.stderr)


class _Echo(logging.Handler):
    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__()
        self._show = show

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self._show(record.getMessage())


@contextlib.contextmanager
def recording(show: Optional[Callable[[str], None]] = None) -> Iterator[CommandLog]:
    """Record every command that ends within the block; `show` gets each line at once."""
    log = CommandLog()
    handlers: list[logging.Handler] = [log.handler, *([_Echo(show)] if show else [])]
    for handler in handlers:
        _LOGGER.addHandler(handler)
    try:
        yield log
    finally:
        for handler in handlers:
            _LOGGER.removeHandler(handler)
        log.close()

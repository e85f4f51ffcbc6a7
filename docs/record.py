"""Records commands as a person would see them, in asciinema's format (version 2).

    python docs/record.py docs/first-hour.cast 'cbt-crypto init --hosts node[0-3]' 'cbt.py ...'

Each command is shown as typed, run in a terminal of its own, and followed to its end; one that
fails ends the recording. `asciinema play FILE` shows it.
"""

from __future__ import annotations

import argparse
import codecs
import fcntl
import json
import os
import pty
import re
import struct
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_PROMPT = "\x1b[1;32m$\x1b[0m "
KEY_S = 0.04
#: Silence that is longer is shown as this, in seconds.
_IDLE_S = 2.0
#: What redraws lines that are there: it erases them, one above the other, and writes them again.
_REDRAW = re.compile(r"\r?(?:\x1b\[2K|\x1b\[1A|\r)+")
#: Of such, one is kept in so many seconds.
_EVERY_S = 3.0


class Recording:
    """A cast that grows as things are shown."""

    def __init__(self, path: Path, columns: int, rows: int) -> None:
        self._file = path.open("w", encoding="utf-8")
        self._started = time.time()
        header = {"version": 2, "width": columns, "height": rows, "idle_time_limit": _IDLE_S}
        self._file.write(json.dumps({**header, "timestamp": int(self._started)}) + "\n")

    def show(self, text: str) -> None:
        """Something appears on the screen."""
        event = [round(time.time() - self._started, 3), "o", text]
        self._file.write(json.dumps(event) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Nothing appears any more."""
        self._file.close()

    def type(self, command: str) -> None:
        """A person types."""
        self.show(_PROMPT)
        for char in command:
            time.sleep(KEY_S)
            self.show(char)
        self.show("\r\n")

    def run(self, command: str, size: tuple[int, int]) -> int:
        """Run a command in a terminal of that size; return its exit status."""
        pid, terminal = pty.fork()
        if pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", *reversed(size), 0, 0))
            os.environ.update(TERM="xterm-256color", COLUMNS=str(size[0]), LINES=str(size[1]))
            os.execvp("bash", ["bash", "-c", command])
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        for data in _chunks(terminal):
            self.show(decode(data))
            sys.stdout.buffer.write(data)
            sys.stdout.flush()
        os.close(terminal)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def thinned(events: list[list[Any]]) -> list[list[Any]]:
    """The events without redraws that the next one, of as many lines, replaces within seconds."""
    kept: list[list[Any]] = []
    for event in events:
        if len(kept) > 1 and _replaces(event, kept[-1]) and event[0] - kept[-2][0] < _EVERY_S:
            kept.pop()
        kept.append(event)
    return kept


def _replaces(event: list[Any], before: list[Any]) -> bool:
    """Whether both erase as many lines as they write, so that the earlier one may be left out."""
    erased, erased_before = _REDRAW.match(event[2]), _REDRAW.match(before[2])
    if erased is None or erased_before is None or erased[0] != erased_before[0]:
        return False
    lines = erased[0].count("\x1b[1A")
    return all(one[2].count("\n") == lines for one in (event, before))


def _thin(cast: Path) -> None:
    header, *lines = cast.read_text(encoding="utf-8").splitlines()
    events = thinned([json.loads(line) for line in lines])
    cast.write_text("\n".join([header, *map(json.dumps, events)]) + "\n", encoding="utf-8")


def _chunks(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:
            return  # its last process has closed it
        if not data:
            return
        yield data


def main() -> int:
    """Record what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("cast", type=Path)
    parser.add_argument("commands", nargs="+")
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--rows", type=int, default=32)
    asked = parser.parse_args()
    recording = Recording(asked.cast, asked.columns, asked.rows)
    for command in asked.commands:
        recording.type(command)
        status = recording.run(command, (asked.columns, asked.rows))
        if status != 0:
            return status
    recording.show(_PROMPT)
    recording.close()
    _thin(asked.cast)
    return 0


if __name__ == "__main__":
    sys.exit(main())

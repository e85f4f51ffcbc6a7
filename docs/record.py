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
import struct
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

_PROMPT = "\x1b[1;32m$\x1b[0m "
_KEY_S = 0.04
#: Silence that is longer is shown as this, in seconds.
_IDLE_S = 2.0


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

    def type(self, command: str) -> None:
        """A person types."""
        self.show(_PROMPT)
        for char in command:
            time.sleep(_KEY_S)
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
    return 0


if __name__ == "__main__":
    sys.exit(main())

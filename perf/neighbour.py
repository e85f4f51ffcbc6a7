"""A neighbour on this machine: 0 to 2 busy processes, drawn anew each minute.

    python perf/neighbour.py [--most 2] [--seconds 60] [--seed 1] -- COMMAND ...

Runs the command beside it, and ends with the command's exit status. What is drawn is printed with
the time; the same seed draws the same. For campaigns whose verdicts are to hold on shared machines.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence

_BUSY = (sys.executable, "-S", "-c", "while True: pass")


def main() -> int:
    """Run the command, and a neighbour for as long."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--most", type=int, default=2, help="busy processes (default: 2)")
    parser.add_argument("--seconds", type=float, default=60, help="of a burst (default: 60)")
    parser.add_argument("--seed", type=int, default=1, help="of the draws (default: 1)")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    drawn = random.Random(arguments.seed)
    with subprocess.Popen(arguments.command) as command:
        while command.poll() is None:
            count = drawn.randint(0, arguments.most)
            print(f"{time.strftime('%H:%M:%S')} neighbour: {count} busy", file=sys.stderr)
            with busy([_BUSY] * count), contextlib.suppress(subprocess.TimeoutExpired):
                command.wait(arguments.seconds)
    return command.returncode


@contextlib.contextmanager
def busy(commands: Iterable[Sequence[str]]) -> Iterator[None]:
    """Processes that take a CPU each, until the block ends."""
    processes = [subprocess.Popen(command) for command in commands]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())

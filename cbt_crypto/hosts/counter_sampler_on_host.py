"""Write the kernel's counters to a file in collectl's raw form. Runs on hosts: Python 3.6 alone."""

import glob
import json
import os
import signal
import sys
import time
from typing import Any, Dict, Iterator, Tuple

from cbt_crypto.hosts.trust_on_host import ceph_users, is_believed

_NET = "/sys/class/net"


def main(asked: Dict[str, Any]) -> None:
    """Sample until SIGTERM or until `file` goes; every `processes_every`th has the processes."""
    # Waited for below, and so not delivered: a sample is never cut in the middle.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    # Each sample is written at once, as a whole: the file may be read, or the host lost, any time.
    with open(asked["file"], "wb", buffering=0) as file:
        text, count, every_s = header(), 0, asked["every_s"]
        while os.path.exists(asked["file"]):
            with_processes = count % asked["processes_every"] == 0
            file.write((text + sample(with_processes)).encode("utf-8", "replace"))
            text, count = "", count + 1
            # On the beat of the clock, as the samples of other hosts are.
            if signal.sigtimedwait([signal.SIGTERM], to_next_beat(every_s)):
                break
        # The last time stamp ends the sample before it: readers take none that may be cut off.
        file.write((sample(True) + stamp()).encode("utf-8", "replace"))


def to_next_beat(every_s: float) -> float:
    """Seconds until the clock is a multiple of `every_s`."""
    return every_s - time.time() % every_s


def header() -> str:
    """What a reader must know of the host: ticks a second, threads, speeds of links in Mbit/s."""
    links = " ".join(f"{name}:{speed}" for name, speed in speeds())
    return (
        "# Counters of the kernel, sampled by cbt-crypto\n# HZ: {}  NumCPUs: {}\n# NetNames: {}\n"
    ).format(os.sysconf("SC_CLK_TCK"), os.cpu_count(), links)


def stamp() -> str:
    """The line that begins a sample, with the time in s since 1970 on this host's clock."""
    return f"\n>>> {time.time():.3f} <<<\n"


def sample(with_processes: bool) -> str:
    """One sample, from its time stamp to its last line."""
    lines = [_first_line("/proc/stat")]
    with open("/proc/net/dev", errors="replace") as file:
        lines += ["Net " + line.strip() for line in file if ":" in line]
    if with_processes:
        lines += _processes()
    return stamp() + "\n".join(lines)


def _processes() -> Iterator[str]:
    users = ceph_users()
    for path in glob.iglob("/proc/[0-9]*/stat"):
        pid = path.split("/")[2]
        try:
            line = _first_line(path)
        except OSError:  # It has ended meanwhile.
            continue
        if " (ceph-osd) " not in line or is_believed(pid, users):
            yield f"proc:{pid} stat {line}"


def speeds() -> Iterator[Tuple[str, int]]:
    """Of each link with a speed, in Mbit/s; bridges, tunnels and links that are down have none."""
    for name in sorted(os.listdir(_NET)) if os.path.isdir(_NET) else ():
        try:
            speed = int(_first_line(f"{_NET}/{name}/speed"))
        except (OSError, ValueError):
            continue
        if speed > 0:
            yield name, speed


def _first_line(path: str) -> str:
    # A name of a process may hold any byte, a line break too: the reader leaves such lines out.
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.readline().rstrip("\n")


if __name__ == "__main__":
    main(json.loads(sys.stdin.read()))

"""Our own record of processors, network and processes, for hosts that have no collectl.

RHEL carries no collectl, and its Perl takes an emulated processor ten seconds to start. The file
has collectl's form, so `results.readers.collectl` reads either.
"""

from __future__ import annotations

import shlex

from cbt_crypto.hosts import shell
from cbt_crypto.hosts.samplers import counters_on_host

#: Its directory in a run's, and in the archive with the host's name behind it.
NAME = "sampler"
#: Seconds between samples, and how many of them there are to one with the processes.
EVERY_S, PROCESSES_EVERY = 1, 10


def start_script(run_dir: str) -> str:
    """Shell text that starts it in the background; its first sample may come a little later.

    It ends by itself when the run's directory is removed.
    """
    directory = f"{run_dir}/{NAME}"
    asked = {
        "file": f"{directory}/counters.raw",
        "every_s": EVERY_S,
        "processes_every": PROCESSES_EVERY,
    }
    program = shell.call_of_main(counters_on_host, asked)
    start = shell.start_python(program, pid_file(run_dir), f"{directory}/.messages")
    return f"mkdir -p {shlex.quote(directory)}\n{start}\n"


def stop_script(run_dir: str) -> str:
    """Shell text that has it take its last sample and end; safe to repeat."""
    return shell.stop_in_background(pid_file(run_dir))


def pid_file(run_dir: str) -> str:
    """Where its process is noted."""
    return f"{run_dir}/{NAME}/.pid"

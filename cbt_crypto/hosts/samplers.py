"""Samplers on hosts while a cell runs: CPU of client processes, the kernel's counters, energy."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Sequence

from cbt_crypto.hosts import client_sampler_on_host, counter_sampler_on_host, shell
from cbt_crypto.hosts.remote import Remote

#: The file of samples in a run's directory; `results.cell.client_cpu` reads it.
CLIENTS_FILE = "clients_cpu"
#: Programs of client processes, as the kernel has their names.
CLIENT_PROGRAMS = ("fio", "rados", "rbd", "benchmark")


def with_client_sampler(
    text: str, run_dir: str, tmp_dir: str, programs: Sequence[str] = CLIENT_PROGRAMS
) -> str:
    """Shell text that samples while `text` runs, and fails as it does.

    A host that cannot sample measures all the same. The sampler ends with its file at the latest,
    which is removed with `run_dir`.
    """
    file = f"{run_dir}/{CLIENTS_FILE}"
    asked = {"file": file, "tmp_dir": tmp_dir, "programs": list(programs)}
    program = shell.call_of_main(client_sampler_on_host, asked)
    start = shell.python_in_background(program, "/dev/null", as_root=True)
    path = shlex.quote(file)
    return f"""\
{start}
sampler=$!
# Its start would take time from what is measured.
n=0; until [ -s {path} ] || [ $n -ge 200 ]; do n=$((n + 1)); sleep 0.05; done
(
{text}
)
# Nobody has waited for this child yet, so the number of its session is still its own.
$SUDO kill -s TERM -- "-$sampler" 2> /dev/null || :
wait "$sampler" || :"""


#: Its directory in a run's, and in the archive with the host's name behind it.
COUNTERS = "sampler"
#: Seconds between samples, and how many of them there are to one with the processes.
EVERY_S, PROCESSES_EVERY = 1, 10


def start_counters(run_dir: str) -> str:
    """Shell text that starts it in the background; its first sample may come a little later.

    It ends by itself when the run's directory is removed.
    """
    directory = f"{run_dir}/{COUNTERS}"
    asked = {
        "file": f"{directory}/counters.raw",
        "every_s": EVERY_S,
        "processes_every": PROCESSES_EVERY,
    }
    program = shell.call_of_main(counter_sampler_on_host, asked)
    start = shell.start_python(program, pid_file(run_dir), f"{directory}/.messages")
    return f"mkdir -p {shlex.quote(directory)}\n{start}\n"


def stop_counters(run_dir: str) -> str:
    """Shell text that has it take its last sample and end; safe to repeat."""
    return shell.stop_in_background(pid_file(run_dir))


def pid_file(run_dir: str) -> str:
    """Where its process is noted."""
    return f"{run_dir}/{COUNTERS}/.pid"


#: Where the kernel has the zones. AMD's processors are there under Intel's name.
POWERCAP = "/sys/class/powercap"
#: The file of samples in a run's directory; `results.energy` reads it.
ENERGY_FILE = "energy"
_TIMEOUT_S = 60

# intel-rapl-mmio:* is the same energy, counted again; the pattern does not match it.
_ZONES = """\
zones() {
    for zone in "$1"/intel-rapl:*; do
        { read -r _ < "$zone/energy_uj" && read -r _ < "$zone/max_energy_range_uj"; } 2>/dev/null &&
            echo "$zone" || :
    done
}
"""

# Each sample is written at once, and by a builtin: the sampler must cost next to nothing. It ends
# with its file, so that one whose end was lost does not outlive the run's directory.
_SAMPLER = f"""\
{_ZONES}
umask 022
file=$2
set -- $(zones "$1")
[ $# -gt 0 ] || exit 0
exec >"$file"
for zone; do
    read -r name < "$zone/name"
    read -r range < "$zone/max_energy_range_uj"
    echo "# zone ${{zone##*/}} $range $name"
done
sample() {{
    line=$(date +%s.%N) || return 0
    for zone; do
        read -r counted < "$zone/energy_uj"
        line="$line $counted"
    done
    echo "$line"
}}
# The signal is for the whole group, and sudo may pass it on once more.
trap 'trap "" TERM; sample "$@"; exit 0' TERM
while [ -e "$file" ]; do
    sample "$@"
    sleep 1 &
    wait $! || :
done
"""


def names_script(powercap: str = POWERCAP) -> str:
    """Shell text that prints the name of each zone that can be read, a line each; maybe none."""
    text = f'{_ZONES}for zone in $(zones "$1"); do cat "$zone/name"; done'
    return f"$SUDO sh -c {shlex.quote(text)} sh {shlex.quote(powercap)}"


def start_energy(run_dir: str, powercap: str = POWERCAP) -> str:
    """Shell text that starts the sampler in the background; it ends by itself without zones."""
    file = shlex.quote(f"{run_dir}/{ENERGY_FILE}")
    arguments = f"{shlex.quote(_SAMPLER)} sh {shlex.quote(powercap)} {file}"
    return shell.start_in_background(f"$SUDO sh -c {arguments}", _pid_file(run_dir))


def stop_energy(run_dir: str) -> str:
    """Shell text that has the sampler take its last sample and end; safe to repeat."""
    return shell.stop_in_background(_pid_file(run_dir))


@contextlib.contextmanager
def recorded(remote: Remote, hosts: Sequence[str], run_dir: str) -> Iterator[None]:
    """Samples are taken on `hosts` while the block runs. Raises HostError."""
    remote.run(dict.fromkeys(hosts, start_energy(run_dir)), "record the energy", _TIMEOUT_S)
    try:
        yield
    finally:
        stop = dict.fromkeys(hosts, stop_energy(run_dir))
        remote.run(stop, "end the record of the energy", _TIMEOUT_S)


def _pid_file(run_dir: str) -> str:
    return f"{run_dir}/.{ENERGY_FILE}.pid"

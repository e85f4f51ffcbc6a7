"""Records the energy that processors and memory count, by RAPL, on the hosts that have it.

The kernel offers the counters as zones of powercap, in microjoules, to root alone. A sampler in
plain shell writes them down every second, because nothing else need be installed on a host.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Sequence

from cbt_crypto.hosts import shell
from cbt_crypto.hosts.remote import Remote

#: Where the kernel has the zones. AMD's processors are there under Intel's name.
POWERCAP = "/sys/class/powercap"
#: The file of samples in a run's directory; `results.energy` reads it.
FILE = "energy"
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


def start_script(run_dir: str, powercap: str = POWERCAP) -> str:
    """Shell text that starts the sampler in the background; it ends by itself without zones."""
    file = shlex.quote(f"{run_dir}/{FILE}")
    arguments = f"{shlex.quote(_SAMPLER)} sh {shlex.quote(powercap)} {file}"
    return shell.start_in_background(f"$SUDO sh -c {arguments}", _pid_file(run_dir))


def stop_script(run_dir: str) -> str:
    """Shell text that has the sampler take its last sample and end; safe to repeat."""
    return shell.stop_in_background(_pid_file(run_dir))


@contextlib.contextmanager
def recorded(remote: Remote, hosts: Sequence[str], run_dir: str) -> Iterator[None]:
    """Samples are taken on `hosts` while the block runs. Raises HostError."""
    remote.run(dict.fromkeys(hosts, start_script(run_dir)), "record the energy", _TIMEOUT_S)
    try:
        yield
    finally:
        stop = dict.fromkeys(hosts, stop_script(run_dir))
        remote.run(stop, "end the record of the energy", _TIMEOUT_S)


def _pid_file(run_dir: str) -> str:
    return f"{run_dir}/.{FILE}.pid"

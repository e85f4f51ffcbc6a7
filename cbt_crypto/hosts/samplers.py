"""Samplers on hosts while a cell runs: the recorder, and the counters in place of collectl."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Optional

from cbt_crypto.hosts import counter_sampler_on_host, recorder_on_host, shell, stacks_on_host
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.site import HostScripts, Site

#: The recorder's file in a run's directory, which `results.readers.recording` reads.
RECORDING_FILE = "recording"
#: Programs of client processes, as the kernel has their names.
CLIENT_PROGRAMS = ("fio", "rados", "rbd", "benchmark", "rbd-nbd")


#: Its directory in a run's, and in the archive with the host's name behind it.
COUNTERS = "sampler"
#: Seconds between samples, and how many of them there are to one with the processes.
EVERY_S, PROCESSES_EVERY = 1, 10


def start_counters(run_dir: str) -> str:
    """Shell text that starts it in the background; it ends with the run's directory."""
    directory = f"{run_dir}/{COUNTERS}"
    file = f"{directory}/counters.raw"
    asked = {"file": file, "every_s": EVERY_S, "processes_every": PROCESSES_EVERY}
    program = shell.call_of_main(counter_sampler_on_host, asked)
    start = shell.start_python(program, pid_file(run_dir), f"{directory}/.messages")
    return f"mkdir -p {shlex.quote(directory)}\n{start}\n"


def stop_counters(run_dir: str) -> str:
    """Shell text that has it take its last sample and end; safe to repeat."""
    return shell.stop_in_background(pid_file(run_dir))


def pid_file(run_dir: str) -> str:
    """Where its process is noted."""
    return f"{run_dir}/{COUNTERS}/.pid"


#: Where the kernel has RAPL's zones. AMD's processors are there under Intel's name.
POWERCAP = "/sys/class/powercap"
_TIMEOUT_S = 60


def names_script(powercap: str = POWERCAP) -> str:
    """Shell text that prints the name of each zone that can be read, a line each; maybe none."""
    return f"$SUDO sh -c {shlex.quote(shell.call(__file__, 'zones', powercap))}"


def start_recorder(
    run_dir: str,
    tmp_dir: str,
    *,
    has_clients: bool,
    powercap: str = POWERCAP,
    programs: Sequence[str] = CLIENT_PROGRAMS,
) -> str:
    """Shell text that starts the recorder and waits for its first sample; none is no error."""
    told = {"has_clients": has_clients, "powercap": powercap, "programs": list(programs)}
    asked = {"folder": run_dir, "tmp_dir": tmp_dir, **told}
    program = shell.call_of_main(recorder_on_host, asked)
    return _once(program, f"{run_dir}/{RECORDING_FILE}", _pid_file(run_dir))


def _once(program: str, samples: str, pid_file: str) -> str:
    start = shell.start_python(program, pid_file, "/dev/null", as_root=True)
    return f"start() {{\n{start}\n}}\n{shell.call(__file__, 'start_once', samples, pid_file)}"


def stop_recorder(run_dir: str) -> str:
    """Shell text that has the recorder take its last sample and end; safe to repeat."""
    return shell.stop_in_background(_pid_file(run_dir))


def recorders(site: Site, run_dir: str) -> HostScripts:
    """The scripts that start one on every host of clients, OSDs and drives."""
    hosts = dict.fromkeys((*site.storage_hosts, *site.osd_hosts, *site.clients))
    start = partial(start_recorder, run_dir, site.tmp_dir)
    return {host: start(has_clients=host in site.clients) for host in hosts}


@contextlib.contextmanager
def recorded(remote: Remote, scripts: HostScripts, run_dir: str) -> Iterator[None]:
    """The recorders that `scripts` start run while the block does. Raises HostError."""
    remote.run(scripts, "start the recorder", _TIMEOUT_S)
    try:
        yield
    finally:
        stop = dict.fromkeys(scripts, stop_recorder(run_dir))
        remote.run(stop, "end the recorder", _TIMEOUT_S)


#: Seconds for hosts to fold what perf recorded: a gigabyte at most.
_FOLDING_S = 900


@contextlib.contextmanager
def stacks(
    remote: Remote, hosts: Sequence[str], run_dir: str, profile: Optional[Mapping[str, object]]
) -> Iterator[None]:
    """`hosts` sample stacks while the block runs, if asked, and then fold them. HostError."""
    if profile is None or not hosts:
        yield
        return
    pid_file = f"{run_dir}/.stacks.pid"
    program = shell.call_of_main(stacks_on_host, {"folder": run_dir, **profile})
    start = _once(program, f"{run_dir}/.stacks/perf.data", pid_file)
    script = f"mkdir -p {shlex.quote(run_dir)}/.stacks\n{start}"
    remote.run(dict.fromkeys(hosts, script), "start perf record", _TIMEOUT_S)
    try:
        yield
    finally:
        fold = shell.call(__file__, "fold_stacks", f"{run_dir}/.stacks", str(_FOLDING_S - 60))
        script = f"{shell.stop_in_background(pid_file)}\n{fold}"
        remote.run(dict.fromkeys(hosts, script), "fold the stacks", _FOLDING_S)


def _pid_file(run_dir: str) -> str:
    return f"{run_dir}/.{RECORDING_FILE}.pid"

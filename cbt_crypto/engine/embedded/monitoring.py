"""CBT's `monitoring`: collectl, or our sampler in its place, and perf; on all nodes at once."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, Optional

from cbt_crypto.engine.embedded import common, settings
from cbt_crypto.errors import HostError
from cbt_crypto.hosts import samplers, shell
from cbt_crypto.plan.file.cluster import MonitoringProfiles

#: Directories of running monitors, so that `stop()` without one ends them all.
_running: list[str] = []
#: Names of profiles of which each campaign has one.
_SAMPLED_BY = ("collectl", samplers.COUNTERS)
#: Seconds that collectl may take to write its first sample; an emulated CPU needs some ten.
_PATIENCE_S = 60


def prepare(directory: str) -> None:
    """Start what samples without waiting for it: collectl takes an emulated CPU seconds."""
    _running.append(directory)
    for name, profile in _profiles().items():
        if name in _SAMPLED_BY:
            _pdsh(profile["nodes"], start_script(name, profile, directory))


def start(directory: str, lead_s: float = 0) -> None:
    """Start every profile below `directory`/<profile>; return when samples are sure by `lead_s`.

    One that ends, or takes too long, is not waited for: the report says which seconds lack samples.
    """
    is_prepared = directory in _running
    if not is_prepared:
        _running.append(directory)
    for name, profile in _profiles().items():
        samples = name in _SAMPLED_BY
        script = [] if samples and is_prepared else [start_script(name, profile, directory)]
        if samples:
            script.append(_wait_script(name, directory, lead_s))
        _pdsh(profile["nodes"], "\n".join(script))


def stop(directory: Optional[str] = None) -> None:
    """End the profiles of one directory, or of all that were started."""
    for path in [directory] if directory else list(_running):
        for name, profile in _profiles().items():
            _pdsh(profile["nodes"], shell.stop_in_background(_pid_file(name, path)))
        if path in _running:
            _running.remove(path)


@contextlib.contextmanager
def monitor(directory: str, lead_s: float = 0) -> Iterator[None]:
    """The profiles run while the block does, of which the first `lead_s` need no samples."""
    start(directory, lead_s)
    try:
        yield
    finally:
        stop(directory)


def _profiles() -> dict[str, dict[str, Any]]:
    chosen = MonitoringProfiles.model_validate(settings.monitoring_profiles)
    # Stacks are sampled by the campaign itself, whatever its engine.
    return chosen.model_dump(exclude_none=True, exclude={"stacks"})


def _wait_script(name: str, directory: str, lead_s: float) -> str:
    """Wait for a first sample, while what samples runs."""
    runs = f'[ -e "/proc/$(cat {shlex.quote(_pid_file(name, directory))})/exe" ]'
    return shell.first_sample(f"{directory}/{name}", _PATIENCE_S, runs, lead_s)


def start_script(name: str, profile: dict[str, Any], directory: str) -> str:
    """Shell text that starts one profile below `directory`."""
    if name == samplers.COUNTERS:
        return samplers.start_counters(directory)
    target = f"{directory}/{name}"
    arguments = " ".join(shlex.quote(word) for word in shlex.split(profile["args"]))
    commands = {
        # -F0 writes each sample out at once: collectl is ended by a signal and loses its buffer.
        # --nohup: else it ends by itself as soon as the shell has that started it.
        "collectl": f"collectl {arguments} -F0 --nohup -f {shlex.quote(target)}",
        "perf": f"$SUDO {shlex.quote(profile.get('perf_cmd', 'perf'))} {arguments} "
        f"-o {shlex.quote(target)}/perf.out",
    }
    script = f"mkdir -p {shlex.quote(target)}\n"
    return script + shell.start_in_background(
        commands[name], _pid_file(name, directory), f"{target}/.messages"
    )


def _pid_file(name: str, directory: str) -> str:
    return samplers.pid_file(directory) if name == samplers.COUNTERS else f"{directory}/{name}/.pid"


def _pdsh(roles: Sequence[str], script: str) -> None:
    from cbt_crypto.hosts.remote import preamble  # noqa: PLC0415 - remote takes an engine, we are one

    nodes = settings.getnodes(*roles)
    text = f"{preamble(str(settings.cluster['tmp_dir']))}\nset -eu\n{script}"
    handle = common.pdsh(nodes, text)
    _, stderr = handle.communicate(2 * _PATIENCE_S)
    if handle.returncode:
        raise HostError(nodes, "monitoring", f"exit status {handle.returncode}", stderr[-600:])

"""One campaign at a time in a directory or on a device of a host."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cbt_crypto.errors import HostError, RunError, UsageError
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.site import HostScripts, Site
from cbt_crypto.run.interrupt import Abandoned
from cbt_crypto.run.locks import hold_on_host, holder

_TIMEOUT_S = 60

Resource = tuple[str, str]


@dataclass(frozen=True)
class _Busy:
    host: str
    resource: Sequence[str]
    holder: Mapping[str, Any]

    def sentence(self) -> str:
        kind, path = self.resource
        if "stranger" in self.holder:
            return (
                f"{self.host}: {kind} {path} is held by process {self.holder.get('keeper')} of uid "
                f"{self.holder['stranger']}, which is no campaign of yours; end it"
            )
        text = f"{self.host}: {kind} {path} is in use by {holder.describe(self.holder)}; "
        if holder.is_dead(self.holder) is None and self.holder.get("host"):
            return text + (
                f"wait for it, or if it is dead run on {self.holder['host']}: "
                f"cbt-crypto cleanup {self.holder.get('archive')}"
            )
        return text + "wait for it or end it"


def resources_of(site: Site) -> dict[str, list[Resource]]:
    """Host -> what a campaign must have there for itself."""
    result: dict[str, list[Resource]] = {}
    for host in site.hosts:
        result[host] = [("tmp_dir", site.tmp_dir)]
        result[host] += [("device", device) for device in site.devices_of(host)]
    return result


@dataclass(frozen=True)
class Hold:
    """What a run holds. A keeper may die, or be ended by somebody, while the run lasts."""

    remote: Remote
    site: Site
    who: Mapping[str, Any]

    def check(self) -> None:
        """Take back what was lost. Raises RunError when somebody else has it by now."""
        resources = resources_of(self.site)
        order = {"action": "check", "run": self.who["run"]}
        answers = self.remote.attempt(_scripts(resources, order), _TIMEOUT_S)
        # One that does not answer says nothing; what follows will find it silent too.
        lost = [busy_hold.host for busy_hold in _busy({h: a.stdout for h, a in answers.items()})]
        busy = _hold(self.remote, {host: resources[host] for host in lost}, self.who)
        if busy:
            sentences = "\n".join(busy_hold.sentence() for busy_hold in busy)
            raise LostHold(f"{sentences}; this run held it before, and touches nothing more")


class LostHold(RunError):
    """Somebody else holds what this run held: nothing may be touched any more, nor taken down."""


@contextlib.contextmanager
def hosts_held(
    remote: Remote, site: Site, run: str, who: Mapping[str, Any], dead_run: str = ""
) -> Iterator[Hold]:
    """Hold the hosts of `site` for `run` while the block runs.

    What a dead run still holds is taken from it, and what `dead_run` does, which the caller knows
    to be dead. Raises UsageError that names a living holder, or one of which this machine cannot
    tell; then nothing is held.
    """
    this_holder = {**who, "run": run}
    busy = _hold(remote, resources_of(site), this_holder)
    runs = {str(busy_hold.holder.get("run")) for busy_hold in busy if _is_dead(busy_hold)}
    holders = {str(busy_hold.holder.get("run")) for busy_hold in busy}
    dead = (runs | ({dead_run} & holders)) - {"None", ""}
    if dead:
        for each in dead:
            free_hosts(remote, site, each)
        # Those that were not in use hold already; they are asked again, with the others.
        free_hosts(remote, site, run)
        busy = _hold(remote, resources_of(site), this_holder)
    if busy:
        free_hosts(remote, site, run)
        raise UsageError("\n".join(busy_hold.sentence() for busy_hold in busy))
    try:
        yield Hold(remote, site, this_holder)
    except Abandoned:
        raise  # at once; the next start sees that this run is dead
    except BaseException:
        _free_quietly(remote, site, run)
        raise
    else:
        _free_quietly(remote, site, run)


def free_hosts(remote: Remote, site: Site, run: str) -> None:
    """Give up what `run` holds on the hosts. Safe to repeat. Raises HostError."""
    orders = {
        host: {"action": "free", "resources": resources, "run": run}
        for host, resources in resources_of(site).items()
    }
    remote.run({host: _script(order) for host, order in orders.items()}, "free the host",
               _TIMEOUT_S)  # fmt: skip


def _free_quietly(remote: Remote, site: Site, run: str) -> None:
    # A host that is gone holds nothing; one that cannot be reached is taken over when it can.
    with contextlib.suppress(HostError):
        free_hosts(remote, site, run)


def _hold(
    remote: Remote, resources: Mapping[str, list[Resource]], who: Mapping[str, Any]
) -> list[_Busy]:
    try:
        order = {"action": "hold", "holder": who}
        return _busy(remote.run(_scripts(resources, order), "hold the host", _TIMEOUT_S))
    except HostError as error:
        raise UsageError(str(error)) from error


def _scripts(resources: Mapping[str, list[Resource]], order: Mapping[str, Any]) -> HostScripts:
    return {host: _script({**order, "resources": wanted}) for host, wanted in resources.items()}


def _busy(answers: Mapping[str, str]) -> list[_Busy]:
    return [
        _Busy(host, **json.loads(text.strip()[len("busy ") :]))
        for host, text in answers.items()
        if text.strip().startswith("busy ")
    ]


def _is_dead(busy: _Busy) -> bool:
    return holder.is_dead(busy.holder) is True


def _script(order: Mapping[str, Any]) -> str:
    # What keeps the names is none of the processes that end with the cluster.
    source = shell.program(hold_on_host)
    return f"unset CBT_CRYPTO_MARK; SUDO=${{BARE_SUDO:-}}\n{shell.python(source, order)}"


def own_id() -> str:
    """A name for a run that no other has."""
    return os.urandom(8).hex()

"""One campaign at a time in a directory or on a device of a host."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cbt_crypto.errors import HostError, UsageError
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.site import Site
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
        osds = [osd for osd in site.osds_of(host) if not osd.is_file]
        devices = [
            device for osd in osds for device in (osd.disk or osd.device, osd.db_device) if device
        ]
        drives = [drive for drive in site.drives if drive.host == host]
        devices += [device for drive in drives for device in drive.devices]
        result[host] = [("tmp_dir", site.tmp_dir)]
        result[host] += [("device", device) for device in dict.fromkeys(devices)]
    return result


@contextlib.contextmanager
def hosts_held(remote: Remote, site: Site, run: str, who: Mapping[str, Any]) -> Iterator[None]:
    """Hold the hosts of `site` for `run` while the block runs.

    What a dead run still holds is taken from it. Raises UsageError that names a living holder, or
    one of which this machine cannot tell; then nothing is held.
    """
    told = {**who, "run": run}
    busy = _hold(remote, resources_of(site), told)
    dead = {one.holder["run"] for one in busy if one.holder.get("run") and _is_dead(one)}
    if dead:
        for each in dead:
            free_hosts(remote, site, each)
        # Those that were not in use hold already; they are asked again, with the others.
        free_hosts(remote, site, run)
        busy = _hold(remote, resources_of(site), told)
    if busy:
        free_hosts(remote, site, run)
        raise UsageError("\n".join(one.sentence() for one in busy))
    try:
        yield
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
    scripts = {
        host: _script({"action": "hold", "resources": wanted, "holder": who})
        for host, wanted in resources.items()
    }
    try:
        answers = remote.run(scripts, "hold the host", _TIMEOUT_S)
    except HostError as error:
        raise UsageError(str(error)) from error
    return [
        _Busy(host, **json.loads(text.strip()[len("busy ") :]))
        for host, text in answers.items()
        if text.strip().startswith("busy ")
    ]


def _is_dead(busy: _Busy) -> bool:
    return holder.is_dead(busy.holder) is True


def _script(order: Mapping[str, Any]) -> str:
    # What keeps the names is none of the processes that end with the cluster.
    source = inspect.getsource(hold_on_host)
    return f"unset CBT_CRYPTO_MARK\n{shell.python(source, order)}"


def own_id() -> str:
    """A name for a run that no other has."""
    return os.urandom(8).hex()

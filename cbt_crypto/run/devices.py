"""Which devices a run works on: looked at once, kept in the journal, noted on the hosts."""

from __future__ import annotations

import json
import os
import shlex
import uuid
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cbt_crypto.errors import HostError, UsageError
from cbt_crypto.hosts import directories
from cbt_crypto.hosts.devices import destroy
from cbt_crypto.hosts.devices.destroy import DeviceGuard
from cbt_crypto.hosts.devices.identity_on_host import is_same_after_all, words
from cbt_crypto.hosts.remote import Remote, answer_of
from cbt_crypto.hosts.site import HostScripts
from cbt_crypto.plan.cells import Cell
from cbt_crypto.plan.file import Campaign
from cbt_crypto.run.journal import devices_before, places_of, uuids_tracked
from cbt_crypto.run.preflight.check import needs_of

#: Host -> path -> `identity`, `uuid` and `wipe`.
Notes = Mapping[str, Mapping[str, Any]]
_LIMIT_S = 120
_WHAT = "identify the devices"
#: Boot, number of the disk in it, number of the device.
_SEEN_WORDS = 3


def read_identities(remote: Remote, campaign: Campaign, cells: Sequence[Cell]) -> Notes:
    """What the campaign's paths lead to now. Touches nothing. Raises UsageError."""
    wanted: dict[str, dict[str, bool]] = {}
    for host, guard in _guards(campaign, cells):
        wanted.setdefault(host, {})[guard.device] = guard.wipe
    tmp_dir = campaign.cluster.tmp_dir
    scripts = {host: destroy.identify(tmp_dir, paths) for host, paths in wanted.items()}
    try:
        answers = remote.run(scripts, _WHAT, _LIMIT_S)
        identities = {h: answer_of(h, _WHAT, text, identities_in) for h, text in answers.items()}
        for host, by_path in identities.items():
            if set(by_path) != set(wanted[host]):
                paths = ", ".join(wanted[host])
                raise HostError(host, _WHAT, "an answer about other devices", f"asked: {paths}")
    except HostError as error:
        raise UsageError(str(error)) from error
    check_distinct(campaign, cells, identities)
    return {
        host: {
            path: {"identity": known, "uuid": str(uuid.uuid4()), "wipe": wanted[host][path]}
            for path, known in identities.get(host, {}).items()
        }
        for host in {**places_of(campaign), **identities}
    }


def check_distinct(
    campaign: Campaign,
    cells: Sequence[Cell],
    identities: Mapping[str, Mapping[str, Mapping[str, str]]] = MappingProxyType({}),
) -> None:
    """Raise UsageError for a device that OSDs would have twice, by path, host name or role.

    Drives without Ceph are measured one after another, and may be.
    """
    guards = (each for each in _guards(campaign, cells) if each[1].key != "drives")
    uses = dict.fromkeys((host, guard.device, guard.key) for host, guard in guards)
    for (host, path, key), (other_host, other, other_key) in combinations(uses, 2):
        is_one_host = host == other_host
        known = identities.get(host, {}).get(path, {})
        its_known = identities.get(other_host, {}).get(other, {})
        if (is_one_host and os.path.normpath(path) == os.path.normpath(other)) or _is_one_device(
            known, its_known, is_one_host
        ):
            raise UsageError(
                f"cluster: {key} and {other_key} name one device twice, {host}: {path} and "
                f"{other_host}: {other}{f' ({words(dict(known))})' if known else ''}; keep one of "
                "them"
            )


def _guards(campaign: Campaign, cells: Sequence[Cell]) -> Iterator[tuple[str, DeviceGuard]]:
    for need in needs_of(campaign, cells):
        if isinstance(need, DeviceGuard):
            yield from ((host, need) for host in need.hosts)


def _is_one_device(one: Mapping[str, str], other: Mapping[str, str], is_one_host: bool) -> bool:
    """Whether two devices have sectors in common, by what they say of themselves."""
    seen, its_seen = one.get("seen", "").split(), other.get("seen", "").split()
    is_one_place = one.get("start") is None or other.get("start") in (None, one.get("start"))
    # The boot, and the number of the disk in it, where the kernel counts disks.
    if len(seen) == len(its_seen) == _SEEN_WORDS and seen[:2] == its_seen[:2]:
        return is_one_place
    says_the_same = any(one.get(name) == other.get(name) is not None for name in ("wwn", "backing"))
    is_alike = says_the_same and one.get("size") == other.get("size")
    return (bool(seen) and seen == its_seen) or (is_one_host and is_alike and is_one_place)


def identities_in(text: str) -> dict[str, dict[str, str]]:
    """Path -> what tells the device from others. Raises ValueError for anything else."""
    by_path = json.loads(text)
    for known in by_path.values():
        if not all(isinstance(word, str) for pair in known.items() for word in pair):
            raise ValueError("not all are texts")
    return dict(by_path)


def check_same(archive: Path, notes: Notes) -> None:
    """Raise UsageError for a path that led to another device when the archive was written."""
    before = devices_before(archive)
    for host, of_host in notes.items():
        for path, note in of_host.items():
            then, now = before.get((host, path)), note["identity"]
            if then is not None and not is_same_after_all(then, now):
                raise UsageError(
                    f"{host}: {path} is another device now: {words(now)}; this archive knows it "
                    f"as {words(then)}; nothing was touched. Name devices by their ids, as below "
                    "/dev/disk/by-id, or name a new archive with -a"
                )


def recording(tmp_dir: str, notes: Notes) -> HostScripts:
    """Scripts that note them on their hosts, in a directory of ours.

    Claims of runs that the user's state does not track are dropped there: nothing is to be theirs.
    """
    make, tracked = directories.make(tmp_dir), uuids_tracked()
    return {
        host: (make if of_host else "") + destroy.record(tmp_dir, of_host, tracked)
        for host, of_host in notes.items()
    }


def restoring(tmp_dir: str, notes: Notes) -> HostScripts:
    """Scripts that put notes back which were lost with their directory."""
    make = directories.make(tmp_dir)
    return {
        host: f"{_are_noted(tmp_dir, of_host)} || {{\n{make}{destroy.restore(tmp_dir, of_host)}\n}}"
        for host, of_host in notes.items()
        if of_host
    }


def _are_noted(tmp_dir: str, of_host: Mapping[str, Any]) -> str:
    """Shell text that is true where all are there, as they almost always are."""
    file = shlex.quote(f"{tmp_dir}/{destroy.NOTES}")
    asked = (f"$SUDO grep -qsF {shlex.quote(note['uuid'])} {file}" for note in of_host.values())
    return " && ".join(asked)

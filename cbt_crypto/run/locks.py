"""One campaign at a time: in an archive, and in a directory or on a device of a host."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shlex
import socket
import stat
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from cbt_crypto.archive.files import digest, one_line
from cbt_crypto.errors import HostError, RunError, UsageError
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.remote import Remote, answer_of, own_name
from cbt_crypto.hosts.site import HostScripts, Site
from cbt_crypto.run import hold_on_host
from cbt_crypto.run.interrupt import Abandoned
from cbt_crypto.run.resume import check_own


def this_run(archive: Path) -> dict[str, Any]:
    """This process as a holder: who, where, since when, and how to tell that it has ended."""
    return {
        "user": own_name(),
        "host": socket.gethostname(),
        "machine": _text("/etc/machine-id"),
        "hardware": hardware(),
        "boot": _boot(),
        "pid": os.getpid(),
        "started": _started(os.getpid()),
        "clock": _clock(),
        "archive": str(archive.absolute()),
        "since": time.strftime("%Y-%m-%d %H:%M:%S %z"),
    }


def describe(holder: Mapping[str, Any]) -> str:
    """`alice@head (process 4711, archive /srv/a, since 2026-11-20 10:00:00 +0000)`."""
    if not holder.get("pid"):
        return "another run"
    who = f"{holder.get('user')}@{holder.get('host')}"
    text = f"{who} (process {holder['pid']}, archive {holder.get('archive')}, "
    text += f"since {holder.get('since')})"
    return "".join(char if char.isprintable() else "?" for char in text)


def is_dead(holder: Mapping[str, Any]) -> Optional[bool]:
    """Whether that run has ended; None when this machine cannot know, as it may be another."""
    if holder.get("host") != socket.gethostname() or holder.get("machine") != _text(
        "/etc/machine-id"
    ):
        return None
    pid, boot, here = holder.get("pid"), str(holder.get("boot")), _boot()
    if not isinstance(pid, int):
        return True
    if boot == here:
        return not _is_that(pid, holder)
    boot_id, _, container = boot.partition(" ")
    if boot_id != here.partition(" ")[0] or not container:
        # This machine before it started anew, or a clone of it.
        return True if _is_this_hardware(holder.get("hardware")) else None
    # In a container of this machine, which counts its processes for itself.
    if any(_is_that(seen, holder) for seen in _in_container(pid, container)):
        return False
    # A container does not see those of another, nor a user those of others.
    is_seen = os.geteuid() == 0 or holder.get("user") == own_name()
    return True if is_seen and here.endswith(_FIRST_PIDS) else None


#: Of the machine itself: PROC_PID_INIT_INO of Linux.
_FIRST_PIDS = " pid:[4026531836]"
#: QEMU's own choice, the same in all its machines.
_QEMU_CARD = "52:54:00:12:34:"


def hardware() -> dict[str, str]:
    """Digests of what machines cloned from one image do not share; without what is not readable.

    The DMI uuid is root's to read; a container has network cards only if they were given to it.
    """
    cards = []
    for card in Path("/sys/class/net").glob("*/device"):
        address = _text(f"{card.parent}/address")
        # 1: drawn anew at each start, as of virtual functions.
        if _text(f"{card.parent}/addr_assign_type") != "1" and address[:15] != _QEMU_CARD:
            cards.append(address)
    uuid = _text("/sys/class/dmi/id/product_uuid")
    # All digits alike: the maker gave it none.
    found = {"cards": sorted(cards), "uuid": uuid if len({*uuid} - {"-"}) > 1 else ""}
    return {key: digest(value) for key, value in found.items() if value}


def _is_this_hardware(there: Any) -> bool:
    """Whether all that both know is the same; earlier versions noted nothing of it."""
    here = hardware()
    both = here.keys() & there.keys() if isinstance(there, dict) else set()
    return bool(both) and all(here[key] == there[key] for key in both)


def _is_that(pid: int, holder: Mapping[str, Any]) -> bool:
    """Whether a process is the holder's. In another time namespace, its start is told otherwise."""
    started = _started(pid)
    if started is not None and holder.get("clock", _clock()) != _clock():
        return True
    return started is not None and started == holder.get("started")


def _clock() -> str:
    try:
        return os.readlink("/proc/self/ns/time")
    except OSError:  # before Linux 5.6
        return ""


def _boot() -> str:
    """Changes when the machine, or the container that counts process ids, starts anew."""
    try:
        container = os.readlink("/proc/self/ns/pid")
    except OSError:
        container = ""
    return f"{_text('/proc/sys/kernel/random/boot_id')} {container}".strip()


def _in_container(pid: int, container: str) -> Iterator[int]:
    """What this machine calls the process that has number `pid` in a container."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(folder / "ns/pid") == container:
                numbers = _text(f"{folder}/status").partition("\nNSpid:")[2].partition("\n")[0]
                if numbers.split()[-1:] == [str(pid)]:
                    yield int(folder.name)


def _started(pid: int) -> Optional[int]:
    """When a process started, in ticks since boot, or None; its id may be reused."""
    fields = _text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 and fields[0] not in ("Z", "X") else None


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


@contextlib.contextmanager
def locked(archive: Path) -> Iterator[None]:
    """Hold the archive while the block runs; UsageError names who holds it already."""
    # Not filelock: the file says who holds it, and filelock empties it when it opens it. Nor
    # does that look whether an archive of others has a link or a pipe in this place.
    try:
        archive.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{archive}: cannot be made: {error.strerror}; name another archive with -a"
        ) from None
    with os.fdopen(_opened(archive / ".lock"), "r+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            who = one_line(file.read(4096).strip()) or "another run"
            raise UsageError(f"{archive}: is in use by {who}; wait for it or end it") from error
        except OSError as error:
            raise UsageError(
                f"{archive}: cannot be locked ({error.strerror}); name one on a local file system"
            ) from error
        # On a full disk the name is missing, and the lock is held all the same.
        with contextlib.suppress(OSError):
            os.ftruncate(file.fileno(), 0)
            os.pwrite(file.fileno(), describe(this_run(archive)).encode(), 0)
        # Now that it is held: somebody may have made it since it was looked at.
        check_own(archive)
        yield


def _opened(path: Path) -> int:
    """The lock's file. Raises UsageError for a link, a pipe, or a file that has another name."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        # Whoever may open it could lock it, and so keep everybody out.
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise UsageError(f"{path}: was not made by this program; remove it") from None
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(descriptor)
        raise UsageError(f"{path}: was not made by this program; remove it")
    if status.st_uid == os.geteuid():
        os.fchmod(descriptor, 0o600)
    return descriptor


_TIMEOUT_S = 60

Resource = tuple[str, str]


@dataclass(frozen=True)
class _Busy:
    host: str
    resource: Sequence[str]
    holder: Mapping[str, Any]

    def sentence(self) -> str:
        kind, path = self.resource
        held = f"{self.host}: {kind} {path} is held by"
        if not self.holder:
            keeper = "what does not answer; see what has @cbt-crypto-... open in: ss -xap"
            return one_line(f"{held} {keeper}")
        if "stranger" in self.holder:
            keeper = f"process {self.holder.get('keeper')} of uid {self.holder['stranger']}"
            return one_line(f"{held} {keeper}, which is not your campaign; end it")
        text = one_line(f"{self.host}: {kind} {path} is in use by {describe(self.holder)}; ")
        if is_dead(self.holder) is None and self.holder.get("host"):
            return text + one_line(
                f"wait for it, or if it is dead run on {self.holder['host']}: "
                f"cbt-crypto cleanup {shlex.quote(str(self.holder.get('archive')))}; where that "
                f"finds nothing left, end process {self.holder.get('keeper')} on {self.host}"
            )
        return text + "wait for it or end it"


def resources_of(site: Site) -> dict[str, list[Resource]]:
    """Host -> what a campaign must have there for itself."""
    result: dict[str, list[Resource]] = {}
    for host in site.hosts:
        result[host] = [("tmp_dir", site.tmp_dir)]
        result[host] += [("device", device) for device in site.devices_of(host)]
        result[host] += [("overlay", overlay) for there, overlay in site.changed if there == host]
    return result


@dataclass(frozen=True)
class Hold:
    """What a run holds. A keeper may die, or be ended by somebody, while the run lasts."""

    remote: Remote
    site: Site
    who: Mapping[str, Any]

    def check(self) -> None:
        """Take back what this process lost. Raises LostHold if somebody else has any of it now."""
        for hold in tuple(_HOLDS):
            hold._take_back()

    def _take_back(self) -> None:
        resources = resources_of(self.site)
        order = {"action": "check", "run": self.who["run"]}
        answers = self.remote.attempt(_scripts(resources, order), _TIMEOUT_S)
        # One that does not answer says nothing; what follows will find it silent too.
        told = {host: a.stdout for host, a in answers.items() if a.status == 0}
        lost = [busy_hold.host for busy_hold in _busy(told)]
        busy = _hold(self.remote, {host: resources[host] for host in lost}, self.who)
        if busy:
            sentences = "\n".join(busy_hold.sentence() for busy_hold in busy)
            raise LostHold(f"{sentences}; this run held it before, and touches nothing more")


#: All that this process holds now: a run holds hosts of an existing cluster when it finds them.
_HOLDS: list[Hold] = []


class LostHold(RunError):
    """Somebody else holds what this run held: nothing may be touched any more, nor torn down."""


@contextlib.contextmanager
def hosts_held(
    remote: Remote, site: Site, run: str, who: Mapping[str, Any], dead_run: str = ""
) -> Iterator[Hold]:
    """Hold the hosts of `site` for `run` during the block, also from `dead_run` or any dead run.

    Raises UsageError for a holder that lives or cannot be judged here; then nothing is held.
    """
    this_holder = {**who, "run": run}
    try:
        busy = _hold(remote, resources_of(site), this_holder)
        claims = [(hold.host, str(hold.holder.get("run") or "")) for hold in busy]
        dead = {
            claim for claim, hold in zip(claims, busy) if claim[1] and is_dead(hold.holder) is True
        }
        # Only the caller knows of a run that it is dead everywhere; a host can say so of itself.
        for host, its_run in dead:
            free_hosts(remote, site, its_run, (host,))
        if dead_run and dead_run in {its_run for _, its_run in claims}:
            free_hosts(remote, site, dead_run)
            dead.add(("", dead_run))
        if dead:
            # Those that were not in use hold already; they are asked again, with the others.
            free_hosts(remote, site, run)
            busy = _hold(remote, resources_of(site), this_holder)
        if busy:
            raise UsageError("\n".join(busy_hold.sentence() for busy_hold in busy))
        hold = Hold(remote, site, this_holder)
        _HOLDS.append(hold)
        try:
            yield hold
        finally:
            _HOLDS.remove(hold)
    except Abandoned:
        raise  # at once; the next start sees that this run is dead
    except BaseException:
        _free_quietly(remote, site, run)
        raise
    else:
        _free_quietly(remote, site, run)


def free_hosts(remote: Remote, site: Site, run: str, hosts: Optional[Sequence[str]] = None) -> None:
    """Give up what `run` holds on the hosts, by default all. Safe to repeat. Raises HostError."""
    resources = {h: r for h, r in resources_of(site).items() if hosts is None or h in hosts}
    order = {"action": "free", "run": run}
    remote.run(_scripts(resources, order), "free the host", _TIMEOUT_S)


def _free_quietly(remote: Remote, site: Site, run: str) -> None:
    # A host that is gone holds nothing; one that cannot be reached is taken over when it can.
    try:
        free_hosts(remote, site, run)
    except HostError as error:
        rest = "it may be held still; the next run there from this machine takes it over"
        print(one_line(f"{error}; {rest}"), file=sys.stderr, flush=True)


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
    """The hosts that are not held. Raises HostError for one that says neither."""
    parsed = (answer_of(host, "hold the host", text, _read_hold) for host, text in answers.items())
    return [_Busy(host, *found) for host, found in zip(answers, parsed) if found is not None]


def _read_hold(text: str) -> Optional[tuple[Resource, dict[str, Any]]]:
    """Of `held`, or of `busy` with who holds what. Raises ValueError for anything else."""
    if text == "held":
        return None
    if not text.startswith("busy "):
        raise ValueError("neither held nor busy")
    document = json.loads(text[len("busy ") :])
    (kind, path), holder = document["resource"], document["holder"]
    if not (isinstance(kind, str) and isinstance(path, str) and isinstance(holder, dict)):
        raise ValueError("not a resource and its holder")
    return (kind, path), holder


def _script(order: Mapping[str, Any]) -> str:
    # What keeps the names is none of the processes that end with the cluster.
    source = shell.program(hold_on_host)
    return f"unset CBT_CRYPTO_MARK; SUDO=${{BARE_SUDO:-}}\n{shell.python(source, order)}"


def own_id() -> str:
    """A name for a run that no other has."""
    return os.urandom(8).hex()

"""What a run deployed where: in its archive for people, in the user's state to act on.

journal.jsonl has a line, written beforehand, for each start, deployment and complete end. An
archive is data: `open_runs` says what to tear down, unless the user trusts the archive.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pwd
import re
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Optional

from cbt_crypto import __version__
from cbt_crypto.archive.files import Malformed, check_values, one_line, read_document, write_json
from cbt_crypto.cluster_overlays.base import Overlay
from cbt_crypto.engine import Engine
from cbt_crypto.errors import UsageError
from cbt_crypto.hosts import directories
from cbt_crypto.hosts.directory_on_host import Refused, check_directory
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.secret import document_without
from cbt_crypto.hosts.shell import joined
from cbt_crypto.hosts.site import Site
from cbt_crypto.hosts.trust_on_host import distrust
from cbt_crypto.plan.file import Campaign, validate_campaign
from cbt_crypto.plan.layout import whole_site

_NAME = re.compile(r"[0-9a-zA-Z]{1,64}")


def directory() -> Path:
    """Where they are. Not in $HOME, which sudo may leave as the caller's."""
    chosen = os.environ.get("XDG_STATE_HOME", "")
    # One that is not absolute says nothing, by the XDG Base Directory Specification.
    if not os.path.isabs(chosen):
        try:
            chosen = f"{pwd.getpwuid(os.geteuid()).pw_dir}/.local/state"
        except KeyError:
            sentence = f"user {os.geteuid()} has no home directory; set XDG_STATE_HOME"
            raise UsageError(sentence) from None
    return Path(chosen) / "cbt-crypto" / "open-runs"


def note(run: str, **entry: Any) -> None:
    """Add to what is known of a run, durably. Raises UsageError."""
    try:
        path = _path(run, make=True)
        whole = {**(_read(path) or {}), **entry, "run": run}
        if len(json.dumps(whole, indent=1)) > _LIMIT // 2:
            raise ValueError
        write_json(path, whole)
    except OSError as error:
        why = f"cannot be written ({error.strerror}); make room there, or set XDG_STATE_HOME"
        raise UsageError(f"{directory()}: {why}") from None
    except ValueError:
        # What cannot be read again would be left behind in silence; nor is half a surrogate text.
        why = "hosts say more of themselves than can be noted, or what is no text"
        raise UsageError(f"{directory()}: {why}; see what runs on them") from None


def note_osd_hosts(run: str, osds: Sequence[str]) -> None:
    """Note OSD hosts that the file does not name, so that they are cleared after a kill, too."""
    entry = known(run) or {}
    entry["document"]["cluster"]["osds"] = list(osds)
    campaign = _deployment(run, entry).campaign(Path(entry["archive"]))
    note(run, document=entry["document"], hosts=places_of(campaign))


def forget(run: str) -> None:
    """Note that a run has been torn down."""
    path = _path(run)
    if path.parent.is_dir():
        path.unlink(missing_ok=True)


def known(run: str) -> Optional[dict[str, Any]]:
    """What is known of a run; None for one that is none of this user's."""
    return _read(_path(run)) if _NAME.fullmatch(run) else None


def all_open() -> Iterator[dict[str, Any]]:
    """All open runs of this user, oldest first."""
    where = directory()
    if not where.is_dir():
        return
    _check(where)
    entries = [_read(path) for path in where.glob("*.json")]
    yield from sorted(filter(None, entries), key=lambda entry: seconds_of(entry, "started"))


def seconds_of(entry: Mapping[str, Any], key: str) -> float:
    """When, in seconds of the epoch; 0 where the entry does not say."""
    seconds = entry.get(key)
    return float(seconds) if isinstance(seconds, (int, float)) else 0.0


def _path(run: str, make: bool = False) -> Path:
    if not _NAME.fullmatch(run):
        raise UsageError(f"{run!r} is no name of a run")
    where = directory()
    if make:
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
    if where.is_dir():
        _check(where)
        if make and not where.is_symlink():
            where.chmod(0o700)
    return where / f"{run}.json"


def _check(where: Path) -> None:
    try:
        check_directory(str(where.resolve()))
    except (Refused, OSError) as error:
        sentence = str(error).replace("name another tmp_dir", "set XDG_STATE_HOME to a safe place")
        raise UsageError(sentence) from None


def _read(path: Path) -> Optional[dict[str, Any]]:
    try:
        if distrust(path.lstat(), (os.geteuid(),), is_group_ours=True):
            return None
        value: Mapping[str, Any] = json.loads(read_document(path))
    except (OSError, Malformed, ValueError, RecursionError):
        return None
    # A disk may have damaged it.
    is_entry = isinstance(value, Mapping) and isinstance(value.get("run"), str)
    return dict(value) if is_entry else None


_LIMIT = 64 << 20


@dataclass(frozen=True)
class Deployment:
    """A run that deployed something and did not tear it down, as the journal has it."""

    run: str
    by: dict[str, Any]
    hosts: dict[str, dict[str, Any]]
    document: Any
    #: Of a cluster that somebody else deployed; empty for others, and of earlier versions.
    fsid: str = ""
    #: Which cbt-crypto wrote it; empty before 1.0.
    version: str = ""
    #: Host -> path -> what was noted of the device there; of this user's own runs alone.
    devices: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    #: Overlay -> host -> what it needs to undo its work there; likewise.
    ways_back: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    #: Whether it is this user's own: else the archive says so.
    is_own: bool = False

    @property
    def own_run(self) -> str:
        """The run, where it is this user's own; empty where the archive alone says so."""
        return self.run if self.is_own else ""

    def campaign(self, archive: Path) -> Campaign:
        """The campaign as its file was then. Raises UsageError when it is none any more."""
        try:
            return validate_campaign(path_of(archive), self.document)
        except UsageError as error:
            if self.version == __version__:
                raise
            wrote = f"cbt-crypto {one_line(self.version) or 'of then'}"
            raise UsageError(f"{error}\nclean up with {wrote}; this is {__version__}") from None

    def describe(self) -> str:
        """Where something is left and what, in one line."""
        return one_line("; ".join(f"{host}: {_what(left)}" for host, left in self.hosts.items()))


@dataclass
class Journal:
    """The journal of one archive, written to by one run."""

    archive: Path
    run: str
    deployment: Optional[Deployment] = field(default=None)

    def begin(
        self, campaign: Campaign, by: dict[str, Any], engine: Engine,
        devices: Mapping[str, Mapping[str, Any]] = MappingProxyType({}), fsid: str = "",
    ) -> None:  # fmt: skip
        """Note what this run may touch from now on; `devices`: host -> path -> its note."""
        checkout = str(engine.checkout.absolute()) if engine.checkout else None
        document = json.loads(json.dumps(campaign.document, default=str))
        hosts = places_of(campaign)
        self.deployment = Deployment(self.run, by, hosts, document)
        entry: dict[str, Any] = {"by": by, "hosts": hosts, "document": document}
        noted = {host: dict(of_host) for host, of_host in devices.items()}
        entry.update(checkout=checkout, devices=noted, fsid=fsid, version=__version__)
        note(self.run, archive=str(self.archive.absolute()), started=time.time(), **entry)
        path_of(self.archive).parent.mkdir(parents=True, exist_ok=True)
        self._append(event="begin", **{**entry, "document": document_without(document)})

    def keep_ways_back(self, by_overlay: Mapping[str, Mapping[str, str]]) -> None:
        """Keep, in the user's own state, what overlays need to undo what they will do."""
        note(self.run, ways_back=by_overlay)

    def deploy(self, configuration: str, how: str) -> None:
        """Note that a configuration is about to be deployed."""
        self._append(event="deploy", configuration=configuration, how=how)

    def end(self) -> None:
        """Note that everything of this run has been torn down, also where this is a copy."""
        # Somebody may have moved the archive meanwhile, and no other is made in its place.
        with contextlib.suppress(FileNotFoundError):
            self._append(event="end")
        original = str((known(self.run) or {}).get("archive", self.archive))
        with contextlib.suppress(OSError, UsageError):
            if self.run in {left.run for left in left_over(Path(original))}:
                Journal(Path(original), self.run)._append(event="end")
        forget(self.run)

    def _append(self, **entry: Any) -> None:
        path = path_of(self.archive)
        text = json.dumps({"format": 1, "run": self.run, "time": time.time(), **entry})
        with os.fdopen(_open_own(path), "r+b") as file:
            # A line that a full disk or a kill cut short must not swallow this one.
            size = file.seek(0, os.SEEK_END)
            ends_in_newline = size == 0 or os.pread(file.fileno(), 1, size - 1) == b"\n"
            file.write(("" if ends_in_newline else "\n").encode() + text.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def path_of(archive: Path) -> Path:
    """The path of the journal in an archive; it need not exist."""
    return archive / "results" / "journal.jsonl"


def places_of(campaign: Campaign) -> dict[str, dict[str, Any]]:
    """Host -> what a run may leave there: its directory, devices, and the overlays at work."""
    site = whole_site(campaign)
    overlays = sorted({o.name for named in campaign.configurations.values() for o in named})
    left_by_host: dict[str, dict[str, Any]] = {}
    for host in site.hosts:
        mark, devices = f"CBT_CRYPTO_MARK={site.tmp_dir}@{host}", list(site.devices_of(host))
        left_by_host[host] = {"tmp_dir": site.tmp_dir, "mark": mark, "devices": devices}
        if overlays and host in (*site.osd_hosts, *site.clients):
            left_by_host[host]["overlays"] = overlays
    return left_by_host


def own_left_over(archive: Path) -> list[Deployment]:
    """This user's own runs of the archive that were not torn down, as his state has them."""
    here = os.path.realpath(archive)
    known = {deployment.run for deployment in left_over(archive)}
    return [
        _deployment(entry["run"], entry, is_own=True)
        for entry in all_open()
        if entry["run"] in known or os.path.realpath(str(entry.get("archive"))) == here
    ]


def uuids_tracked() -> list[str]:
    """What this user's open runs call the devices that they may have claimed, on all hosts."""
    runs = (_deployment(entry["run"], entry, is_own=True) for entry in all_open())
    return [
        note["uuid"] for run in runs for paths in run.devices.values() for note in paths.values()
    ]


def left_over(archive: Path) -> list[Deployment]:
    """What the archive says that runs deployed and did not tear down, oldest first: hearsay."""
    still_open: dict[str, Deployment] = {}
    for entry in _entries(archive):
        run = entry.get("run")
        if not isinstance(run, str):
            continue
        if entry.get("event") == "begin":
            still_open[run] = _deployment(run, entry)
        elif entry.get("event") == "end":
            still_open.pop(run, None)
    return list(still_open.values())


def fsid_before(archive: Path) -> str:
    """The cluster of somebody else that the archive's cells are of; empty if it knows none."""
    return next((str(e["fsid"]) for e in _entries(archive) if e.get("fsid")), "")


def devices_before(archive: Path) -> dict[tuple[str, str], dict[str, str]]:
    """(host, path) -> the device that the archive's last run found there."""
    by_path: dict[tuple[str, str], dict[str, str]] = {}
    for entry in _entries(archive):
        hosts = entry.get("devices") if entry.get("event") == "begin" else None
        for host, of_host in _dict(hosts).items():
            for path, note in _dict(of_host).items():
                known = _dict(note).get("identity")
                if isinstance(known, dict):
                    by_path[str(host), str(path)] = {str(k): str(v) for k, v in known.items()}
    return by_path


def _dict(value: Any) -> dict[str, Any]:
    """What an archive has as an object; empty for anything else that somebody put there."""
    return value if isinstance(value, dict) else {}


def _deployment(run: str, entry: dict[str, Any], is_own: bool = False) -> Deployment:
    hosts = _dict(entry.get("hosts")).items()
    return Deployment(
        run=run,
        by=_dict(entry.get("by")),
        hosts={str(host): left for host, left in hosts if isinstance(left, dict)},
        document=entry.get("document"),
        fsid=str(entry.get("fsid") or ""),
        version=str(entry.get("version") or ""),
        devices=_dict(entry.get("devices")) if is_own else {},
        ways_back=_dict(entry.get("ways_back")) if is_own else {},
        is_own=is_own,
    )


def _entries(archive: Path) -> Iterator[dict[str, Any]]:
    """Whole lines; one that was cut short tells of nothing that was done."""
    path = path_of(archive)
    if not os.path.lexists(path):
        return
    try:
        data = read_document(path, _LIMIT)
        check_values(data)
    except Malformed as error:
        how = "move it away: what your own runs left is known without it"
        raise UsageError(f"{path}: {error}; {how}") from None
    for line in data.split(b"\n"):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict):
            yield entry


def _open_own(path: Path) -> int:
    """The journal for appending. Raises UsageError for a link, a pipe, or a file of two names."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags, 0o644)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise UsageError(f"{path}: is a link or a pipe; remove it") from None
        raise
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(descriptor)
        raise UsageError(f"{path}: is no file of its own; remove it")
    return descriptor


def _what(left: dict[str, Any]) -> str:
    words = [f"processes with {left.get('mark')}", str(left.get("tmp_dir"))]
    words += [str(device) for device in left.get("devices") or []]
    if left.get("overlays"):
        words.append("the work of " + ", ".join(map(str, left["overlays"])))
    return ", ".join(words)


#: Overlay -> host -> what it printed.
ByOverlay = Mapping[str, Mapping[str, str]]
_LIMIT_S = 120


def ask(remote: Remote, site: Site, campaign: Campaign) -> ByOverlay:
    """What each overlay's hosts are now, before anything is changed. Raises HostError."""
    by_overlay: dict[str, dict[str, str]] = {}
    for overlay in _overlays(campaign):
        scripts = overlay.way_back(site)
        if scripts:
            outputs = remote.run(scripts, f"note what {overlay.name} will change", _LIMIT_S)
            by_overlay.setdefault(overlay.name, {}).update(outputs)
    return by_overlay


def put_back(remote: Any, site: Site, campaign: Campaign, by_overlay: Any) -> Iterator[str]:
    """Give it back to hosts that lost it; yields what nobody knows any more, host by host."""
    scripts = joined(o.put_back(site, _of(by_overlay, o.name)) for o in _overlays(campaign))
    made = {host: directories.make(site.tmp_dir) + text for host, text in scripts.items()}
    for host, printed in remote.run(made, "look for the way back", _LIMIT_S).items():
        yield from (f"{host}: {line}" for line in printed.splitlines() if line.strip())


def _of(by_overlay: Any, name: str) -> dict[str, str]:
    by_host = by_overlay.get(name) if isinstance(by_overlay, Mapping) else None
    items = by_host.items() if isinstance(by_host, Mapping) else ()
    return {host: text for host, text in items if isinstance(text, str)}


def _overlays(campaign: Campaign) -> list[Overlay]:
    """Every overlay of every configuration, each with its options once."""
    overlays: list[Overlay] = []
    for stack in campaign.stacks.values():
        overlays += [overlay for overlay in stack.named if overlay not in overlays]
    return overlays

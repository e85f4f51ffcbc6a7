"""Notes on the devices of this host, and which devices, and what on them, is ours by these notes.

This file runs on the hosts, as root, behind identity_on_host and before proof_on_host. The notes
are a file in the campaign's own directory: path -> `identity` and `wipe`, as they were at the
check; `uuid`, which everything that the campaign makes on the device gets; `claimed`, from when on
it may be written to; `working`, while a command of ours is at work on it; and `older`, notes of
runs before.
"""

import contextlib
import fcntl
import json
import os
import uuid
from typing import Any, Callable, Dict, Iterator, List

from cbt_crypto.hosts.devices.identity_on_host import (
    difference,
    folder_of,
    identity,
    is_tagged,
    raw_data,
    signatures,
    text_of,
)
from cbt_crypto.hosts.directories.directory_on_host import MARKER, Refused, check_directory

Note = Dict[str, Any]
#: What is made on a device of a stacked one has a uuid that follows from both.
_SPACE = uuid.UUID("6f9d1cf2-6f0c-4b52-8a8e-2a1c3f1f5d2b")


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """One at a time; without a directory there is nothing to lock, nor to note.

    Nor is there in one that is not marked as ours yet: a file in it would make it somebody else's.
    """
    if os.path.isdir(os.path.dirname(path)):
        check_directory(os.path.dirname(path))
    if not os.path.lexists(os.path.join(os.path.dirname(path), MARKER)):
        yield
        return
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Notes:
    """The notes of this host's devices."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.by_path = {}  # type: Dict[str, Note]
        if not os.path.lexists(os.path.dirname(path)):
            return
        check_directory(os.path.dirname(path))
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return
        with os.fdopen(descriptor) as file:
            self.by_path = json.load(file)

    def save(self) -> None:
        """The old file or the new one, whatever happens."""
        temporary = self.path + ".new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with os.fdopen(os.open(temporary, flags, 0o600), "w") as file:
            json.dump(self.by_path, file)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, self.path)
        directory = os.open(os.path.dirname(self.path), os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)

    def each(self, path: str) -> List[Note]:
        """The notes on a path, the newest first."""
        newest = self.by_path.get(path)
        return [newest, *newest.get("older", [])] if newest else []

    def of_node(self, node: str) -> List[Note]:
        """The notes on the device of that name in the kernel, by whatever path."""
        notes = []
        now = identity(node)
        for path in self.by_path:
            notes += [n for n in self.each(path) if not difference(n["identity"], now)]
        return notes


# -- what is ours --------------------------------------------------------------------------------


def stacked_uuid(note: Note, name: str) -> str:
    """The uuid of what is made on a volume, an array or a mapping of ours."""
    return str(uuid.uuid5(_SPACE, note["uuid"] + name))


def plain(text: str) -> str:
    """A uuid as every tool writes it: MD has colons, LVM letters of both cases."""
    return "".join(char for char in text.lower() if char.isalnum())


def foreign_content(path: str, uuids: List[str], working: bool) -> List[str]:
    """What is on the device and not ours by a uuid that we chose. Raises Refused."""
    ours = {plain(uuid_made) for uuid_made in uuids}
    content = signatures(path)
    foreign = [entry["type"] for entry in content if plain(entry["uuid"]) not in ours]
    place = None if content or is_tagged(path) or working else raw_data(path)
    return foreign + ([f"data without a name at byte {place}"] if place is not None else [])


def below(folder: str) -> List[str]:
    """The devices at the bottom of a mapping, a volume or an array: nodes; itself for a disk."""
    slaves = folder + "/slaves"
    names = sorted(os.listdir(slaves)) if os.path.isdir(slaves) else []
    nodes = []  # type: List[str]
    for name in names:
        nodes += below(os.path.realpath("/sys/class/block/" + name))
    return nodes or ["/dev/" + os.path.basename(folder).replace("!", "/")]


def is_stacked(path: str) -> bool:
    """Whether the device is a mapping, a volume or an array."""
    folder = folder_of(path)
    return os.path.isdir(folder + "/dm") or os.path.isdir(folder + "/md")


def stacked_note(notes: Notes, path: str) -> Note:
    """A note on the devices below a stacked one. Raises Refused unless all of them are ours."""
    folder = folder_of(path)
    name = text_of(folder + "/dm/name").replace("--", "-") or "cbt-crypto-"
    bottoms = below(folder)
    claimed = [note for node in bottoms for note in notes.of_node(node)[:1] if note.get("claimed")]
    if not name.startswith("cbt-crypto-") or not claimed or len(claimed) < len(bottoms):
        raise Refused("is not made of devices of ours")
    return claimed[0]


def holder_is_ours(notes: Notes) -> Callable[[str], bool]:
    """Whether a mapping, volume or array, by its name in the kernel, is made of our devices."""

    def judge(name: str) -> bool:
        try:
            return bool(stacked_note(notes, "/dev/" + name.replace("!", "/")))
        except Refused:
            return False

    return judge


def uuids_of(notes: List[Note]) -> List[str]:
    """All that these notes say was made."""
    return [uuid_made for note in notes for uuid_made in (note["uuid"], *note.get("uuids", ()))]

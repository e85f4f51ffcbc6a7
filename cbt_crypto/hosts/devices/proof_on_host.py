"""Prove that a device is ours, in the script that will destroy what is on it. Runs on hosts."""

import contextlib
import fcntl
import glob
import io
import json
import os
import select
import subprocess
import sys
import tempfile
import traceback
import uuid
from typing import Any, Callable, Dict, Iterator, List, Optional

from cbt_crypto.hosts.devices.identity_on_host import (
    BLUESTORE,
    BLUESTORE_LABELS,
    LAST_PATIENCE_S,
    TAG_BYTES,
    alike,
    check_unused,
    difference,
    disk_of,
    folder_of,
    identity,
    is_as_left,
    is_blank,
    is_sampled,
    node_of,
    raw_data,
    signatures,
    tag_of,
    text_of,
    words,
    write_tag,
)
from cbt_crypto.hosts.devices.layers_on_host import number_at
from cbt_crypto.hosts.directory_on_host import MARKER, Refused, check_directory

Note = Dict[str, Any]
#: What is made on a device of a stacked one has a uuid that follows from both.
_SPACE = uuid.UUID("6f9d1cf2-6f0c-4b52-8a8e-2a1c3f1f5d2b")


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """Run one at a time. Without a directory that is marked as ours nothing is locked or noted."""
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
            try:
                self.by_path = json.load(file)
                if not all(note["identity"]["size"] for note in self.by_path.values()):
                    raise ValueError
            except (ValueError, TypeError, LookupError, AttributeError):
                raise Refused(
                    path + " is damaged, so no device is known to be ours; look at each, and "
                    "remove that file"
                ) from None

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

    def put(self, path: str, its_notes: List[Note]) -> None:
        """Have these notes on a path, the newest first, and no others."""
        self.by_path.pop(path, None)
        bare = [{key: note[key] for key in note if key != "older"} for note in its_notes]
        if bare:
            self.by_path[path] = dict(bare[0], older=bare[1:])

    def keep(self, is_kept: Callable[[Note], bool]) -> None:
        """Drop all other notes."""
        for path in list(self.by_path):
            self.put(path, [note for note in self.each(path) if is_kept(note)])

    def of_device(self, path: str, node: str = "") -> List[Note]:
        """The notes on a path that are of its device now, or of `node`. Raises Refused."""
        now = identity(node or path)
        return [note for note in self.each(path) if not difference(note["identity"], now)]

    def of_node(self, node: str) -> List[Note]:
        """The notes on the device of that name in the kernel, by whatever path."""
        notes = []
        now = identity(node)
        for path in self.by_path:
            notes += [n for n in self.each(path) if not difference(n["identity"], now)]
        return notes


# -- what is ours --------------------------------------------------------------------------------


def plain(text: str) -> str:
    """A uuid as every tool writes it: MD has colons, LVM letters of both cases."""
    return "".join(char for char in text.lower() if char.isalnum())


def foreign_content(path: str, notes: List[Note], working: List[Note]) -> List[str]:
    """What is on the device and not ours by a uuid that its `notes` have. Raises Refused.

    Behind our tag may be anything that was measured with, as long as the device is claimed; and
    a command of those `working` may have been cut short.
    """
    ours = {plain(uuid_made) for uuid_made in uuids_of(notes)}
    content = signatures(path)
    foreign = [entry["type"] for entry in content if plain(entry["uuid"]) not in ours]
    # The tag's word first: to see that nothing was written, much of the device is read.
    is_known = content or tag_of(path) in ours or is_as_left(path)
    if is_known or any(is_cut_short(path, note) for note in working):
        return foreign
    place = raw_data(path)
    return foreign + ([f"data without a name at byte {place}"] if place is not None else [])


def is_cut_short(path: str, note: Note) -> bool:
    """Whether a command of ours that was ended may have left what nothing recognises.

    Each leaves zeros in the place of our tag until its own signature is there. What is lent is
    written to by others. Either happened since the host was booted, and the device plugged in.
    """
    is_now = note.get("working") and note.get("since") == identity(path)["seen"]
    return bool(is_now) and (note["working"] == "lent" or is_blank(path))


def below(folder: str) -> List[str]:
    """The devices at the bottom of a mapping, a volume or an array: nodes; itself for a disk."""
    slaves = folder + "/slaves"
    names = sorted(os.listdir(slaves)) if os.path.isdir(slaves) else []
    nodes = [node for name in names for node in below(os.path.realpath(f"{slaves}/{name}"))]
    return nodes or ["/dev/" + os.path.basename(folder).replace("!", "/")]


def is_stacked(path: str) -> bool:
    """Whether the device, or the disk it is a part of, is on other devices."""
    disk = disk_of(folder_of(path))
    return (
        any(os.path.isdir(f"{disk}/{kind}") for kind in ("dm", "md"))
        or bool(glob.glob(glob.escape(disk) + "/slaves/*"))  # as those of bcache
        or number_at(text_of(disk + "/loop/backing_file")) is not None
    )


def stacked_note(notes: Notes, path: str) -> Note:
    """A note on the devices below a stacked one. Raises Refused unless all of them are ours."""
    folder = folder_of(path)
    name = text_of(folder + "/dm/name").replace("--", "-") or "cbt-crypto-"
    bottoms = below(folder)
    claimed = [note for node in bottoms for note in notes.of_node(node)[:1] if note.get("claimed")]
    if not name.startswith("cbt-crypto-") or not claimed or len(claimed) < len(bottoms):
        raise Refused("is not made of this campaign's devices")
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


def look(notes: Notes, path: str, key: str) -> None:
    """For the check: print ok, `signature` and what is there, or a sentence."""
    try:
        its_notes = notes.of_device(path)
        check_single(path)
        check_unused(path, holder_is_ours(notes))
        foreign = foreign_content(path, its_notes, its_notes)
    except Refused as error:
        sentence = str(error)
        print(sentence + "; fix " + key if "not a block device" in sentence else sentence)
        return
    print("signature " + ", ".join(dict.fromkeys(foreign)) if foreign else "ok")
    print("stable " + stable_name(path) + "\nsampled" * is_sampled(path))


def check_single(path: str) -> None:
    """Raise Refused for what is on other devices, and might be a part of them."""
    if is_stacked(path):
        raise Refused("is on other devices, as a volume or an array is; name the device below it")


def stable_name(path: str) -> str:
    """A name that udev makes of what the device says of itself; empty where there is none."""
    for folder in ("/dev/disk/by-id", "/dev/disk/by-partuuid"):
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
            if os.path.realpath(os.path.join(folder, name)) == os.path.realpath(path):
                return os.path.join(folder, name)
    return ""


def identify(notes: Notes, *paths: str) -> str:
    """What tells these devices from others, as JSON by path. Touches nothing."""
    return json.dumps({path: identity(path) for path in paths})


def record(notes: Notes, kept: str, *tracked: str) -> None:
    """Note the devices of a run that begins, as it has looked at them; `kept` is JSON by path.

    What other runs claimed stays claimed if a uuid in `tracked` is theirs: they were not given up.
    """
    notes.keep(lambda note: note["uuid"] in tracked)
    for path, note in json.loads(kept).items():
        notes.put(path, [dict(note, claimed=False), *notes.each(path)])
    notes.save()


def forget(notes: Notes, *uuids: str) -> None:
    """Give up what the runs with these uuids claimed: whoever uses it now is not disturbed."""
    notes.keep(lambda note: note["uuid"] not in uuids)
    notes.save()


def restore(notes: Notes, kept: str) -> None:
    """Put notes back that were lost with their directory, as after a power cut."""
    told = json.loads(kept)
    # Which device's uuid an array had is lost too.
    chosen = sorted(note["uuid"] for note in told.values())
    for path, note in told.items():
        its_notes = notes.each(path)
        if all(known["uuid"] != note["uuid"] for known in its_notes):
            notes.put(path, [dict(note, claimed=True, uuids=chosen), *its_notes])
    notes.save()


def noted(notes: Notes, path: str) -> Note:
    """The note on a device that the path still leads to. Raises Refused."""
    note = notes.by_path.get(path)
    if note is None:
        raise Refused("was not identified before this run, so it is left alone")
    now = identity(path)
    fault = difference(note["identity"], now)
    if fault:
        raise Refused(fault + elsewhere(note["identity"]) + "; nothing was touched")
    return note


def elsewhere(known: Dict[str, str]) -> str:
    """Where a device is that is not at its path any more."""
    paths = alike(known)
    return ", which is now " + paths[0] if len(paths) == 1 else ", which is not on this host"


def claim(notes: Notes, path: str, then: str = "") -> str:
    """Check that it is the device seen before, and free; return its name if it is to be wiped.

    If it is `then` to `discard`, all of it must be known to be of no worth.
    """
    note = noted(notes, path)
    check_single(path)
    check_unused(path)
    foreign = foreign_content(path, notes.of_device(path), [note])
    if foreign and not note["wipe"]:
        raise Refused("carries data ({}); nothing was touched".format(", ".join(foreign)))
    if then and not note["wipe"] and is_sampled(path):
        raise Refused("was looked at in samples alone; nothing was discarded, as wipe is not true")
    note["claimed"] = True
    notes.save()
    return node_of(path) if foreign or signatures(path) else ""


def tag(notes: Notes, path: str, node: str = "") -> None:
    """Begin a claimed device with our tag, which says by which claim; `node` is to be wiped."""
    claims = [note for note in notes.of_device(path, node) if note.get("claimed")]
    if not claims:
        raise Refused("is not claimed by this run, so it is left alone")
    write_tag(node or path, plain(claims[0]["uuid"]), is_first=bool(node))
    for note in claims:
        note["working"] = ""
    notes.save()


def ready(notes: Notes, path: str, what: str) -> str:
    """Check that a claimed device is unused and as we left it; return the uuid for what is made."""
    if is_stacked(path):
        note = stacked_note(notes, path)
        check_unused(path)
        return str(uuid.uuid5(_SPACE, note["uuid"] + path))
    note = noted(notes, path)
    if not note.get("claimed"):
        raise Refused("was not claimed by this run, so it is left alone")
    check_unused(path)
    foreign = foreign_content(path, [note], [note])
    if foreign:
        raise Refused(
            "carries data ({}) since it was claimed; nothing was touched".format(", ".join(foreign))
        )
    note["working"], note["since"] = what, identity(path)["seen"]
    notes.save()
    return lvm_form(note["uuid"]) if what == "lvm" else str(note["uuid"])


def made(notes: Notes, path: str, chosen: Optional[str] = None) -> None:
    """After that; `chosen` is a uuid that the command chose itself."""
    if not is_stacked(path):
        note = noted(notes, path)
        note["working"] = ""
        if chosen:
            note["uuids"] = sorted({chosen, *note.get("uuids", ())})
        notes.save()


def share(notes: Notes, path: str, uuid_given: str) -> None:
    """What is about to be made on the device has this uuid, which another one gave."""
    if not is_stacked(path):
        note = noted(notes, path)
        note["uuids"] = sorted({uuid_given, *note.get("uuids", ())})
        notes.save()


def where(notes: Notes, path: str) -> str:
    """The device as the kernel calls it now, when what is on it is ours; empty when nothing is."""
    if os.path.exists(path) and is_stacked(path):
        stacked_note(notes, path)
        return path
    for note in notes.each(path):
        if not note.get("claimed"):
            continue
        node = present(path, note)
        check_unused(node, holder_is_ours(notes), LAST_PATIENCE_S)
        foreign = foreign_content(node, [note], [note])
        if not foreign:
            return node
    return ""


def present(path: str, note: Note) -> str:
    """The noted device, wherever it is now. Raises Refused when it is nowhere, or not for sure."""
    try:
        if not difference(note["identity"], identity(path)):
            return node_of(path)
        now = "is now " + words(identity(path))
    except Refused:
        now = "is gone"
    paths = [p for p in alike(note["identity"]) if not difference(note["identity"], identity(p))]
    if len(paths) == 1:
        return paths[0]
    raise Refused(
        "{}, and ours was {}, which is not on this host; nothing was touched. Plug it in again, or "
        "give it up with cbt-crypto cleanup --forget".format(now, words(note["identity"]))
    )


def own_mapping(notes: Notes, name: str) -> bool:
    """Whether a mapping of that name is of LUKS with a uuid that we chose, on devices of ours."""
    path = "/dev/mapper/" + name
    folder = folder_of(path)
    kind = text_of(folder + "/dm/uuid")
    stacked_note(notes, path)
    our_uuids = set()
    for below_it in sorted(os.listdir(folder + "/slaves")):
        node = "/dev/" + below_it.replace("!", "/")
        if is_stacked(node):
            return kind.startswith("CRYPT-LUKS")
        our_uuids |= {plain(uuid_made) for uuid_made in uuids_of(notes.of_node(node))}
    return kind.startswith("CRYPT-LUKS") and plain(kind.split("-")[2]) in our_uuids


def is_lent(notes: Notes, path: str) -> bool:
    """Whether others overwrite the device for a cell, by our leave."""
    its = notes.of_device(path)
    return any(note.get("claimed") and note.get("working") == "lent" for note in its)


def emptied(notes: Notes, path: str, node: str) -> None:
    """After a device was wiped: no copies of labels, our tag, and it is nobody's any more."""
    with open(node, "r+b", buffering=0) as device:
        size = device.seek(0, os.SEEK_END)
        for place in BLUESTORE_LABELS[1:]:
            if place + TAG_BYTES <= size:
                device.seek(place)
                if device.read(len(BLUESTORE)) == BLUESTORE:
                    device.seek(place)
                    device.write(bytes(TAG_BYTES))
    write_tag(node)
    for note in notes.of_device(path, node):
        note["claimed"], note["working"] = False, ""
    notes.save()


def lvm_form(uuid: str) -> str:
    """A uuid as LVM writes it."""
    text = plain(uuid)
    ends = (6, 10, 14, 18, 22, 26, 32)
    return "-".join(text[start:end] for start, end in zip((0, *ends), ends))


#: What is asked for by its name; what it returns is printed, or for a bool the exit status.
ACTIONS: Dict[str, Callable[..., Any]] = {
    "look": look, "identify": identify,
    "record": record, "forget": forget, "restore": restore, "claim": claim, "tag": tag,
    "ready": ready, "made": made, "share": share, "where": where,
    "emptied": emptied, "own-mapping": own_mapping, "stacked": stacked_note,
    "is-lent": is_lent, "is-stacked": lambda notes, path: os.path.exists(path) and is_stacked(path),
    # Those that were written to, and not emptied.
    "all-claimed": lambda notes: "\n".join(
        path for path in notes.by_path if any(note.get("claimed") for note in notes.each(path))
    ),
}  # fmt: skip


_SBIN = ":/usr/sbin:/sbin"


def act(action: str, notes: Notes, rest: List[str]) -> int:
    """Do one thing; the exit status is what a shell's `if` asks for."""
    answer = ACTIONS[action](notes, *rest)
    if isinstance(answer, bool):
        return 0 if answer else 1
    if isinstance(answer, str):
        print(answer)
    return 0


def main(arguments: List[str]) -> int:
    """NOTES ACTION [PATH ...]; what is refused is one sentence on standard error, and status 1."""
    if not os.environ["PATH"].endswith(_SBIN):
        os.environ["PATH"] += _SBIN
    try:
        with locked(arguments[0] + ".lock"):
            return act(arguments[1], Notes(arguments[0]), arguments[2:])
    except Refused as error:
        print(
            "{} {}".format(arguments[2] if len(arguments) > 2 else "", error).strip(),
            file=sys.stderr,
        )
    except (OSError, ValueError) as error:
        print("{} {}".format(" ".join(arguments[1:3]), error), file=sys.stderr)
    return 1


#: Descriptors of a script that `serve` runs: its turn, read and given back; question and answer.
_TURN, _TURN_BACK, _ASK, _ANSWER = 6, 7, 8, 9
#: Where it reads itself, if it came by standard input.
_SCRIPT = 5


def _pipe() -> List[int]:
    """A pipe whose ends are above the descriptors that the script is to have."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in ends]
    for end in ends:
        os.close(end)
    return moved


def _kept(script: bytes) -> int:
    with tempfile.TemporaryFile() as file:
        file.write(script)
        file.flush()
        file.seek(0)
        return fcntl.fcntl(file.fileno(), fcntl.F_DUPFD_CLOEXEC, 20)


def serve(path: str, command: List[str]) -> int:
    """Run a script and do what it asks for, one thing at a time; return its exit status.

    A start of Python for each proof takes longer than the proof. Without `command` it is in stdin.
    """
    given = {}  # type: Dict[int, int]
    if not command:
        command = ["sh", "-euc", 'script=$(cat <&5); exec 5<&-; eval "$script"']
        given[_SCRIPT] = _kept(sys.stdin.buffer.read())
    turn, turn_back = _pipe()
    asked, ask = _pipe()
    answer, answered = _pipe()
    given.update({_TURN: turn, _TURN_BACK: turn_back, _ASK: ask, _ANSWER: answer})
    for number, end in given.items():
        os.dup2(end, number)
    # LVM complains of each descriptor that it knows nothing of.
    environment = dict(os.environ, LVM_SUPPRESS_FD_WARNINGS="1", CBT_CRYPTO_PROVING=path)
    nothing = subprocess.DEVNULL if _SCRIPT in given else None
    script = subprocess.Popen(command, stdin=nothing, env=environment, pass_fds=tuple(given))
    os.write(turn_back, b"\n")
    for number in (*given, ask, answer):
        os.close(number)
    for request in _asked(asked, script):
        os.write(answered, _answer([path, *request]))
    status = script.wait()
    return status if status >= 0 else 128 - status


def _asked(descriptor: int, script: Any) -> Iterator[List[str]]:
    """What the script asks for, one after another, until it has ended."""
    text = b""
    # What the script has started may outlive it, and hold its end of the pipe.
    while select.select([descriptor], [], [], 0.2)[0] or script.poll() is None:
        if not select.select([descriptor], [], [], 0)[0]:
            continue
        more = os.read(descriptor, 65536)
        if not more:
            return
        text += more
        count, *parts = text.decode("utf-8", "surrogateescape").split("\0")
        if parts and len(parts) > int(count):
            text = b""
            yield parts[:-1]


def _answer(arguments: List[str]) -> bytes:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        try:
            status = main(arguments)
        except Exception:
            traceback.print_exc()
            status = 1
    sys.stderr.flush()
    lines = said.getvalue().splitlines()
    text = "\n".join([f"{status} {len(lines)}", *lines, ""])
    return text.encode("utf-8", "surrogateescape")


if __name__ == "__main__":
    if sys.argv[2:3] == ["serve"]:
        sys.exit(serve(sys.argv[1], sys.argv[3:]))
    sys.exit(main(sys.argv[1:]))

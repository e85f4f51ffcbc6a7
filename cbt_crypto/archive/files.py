"""Read files that somebody sent, within stated limits; write ours whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import itertools
import json
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Optional, Union

import yaml

if TYPE_CHECKING:
    from pydantic import ValidationError

#: Characters of a sentence about a file.
_LONGEST = 400


@dataclass(frozen=True)
class Problem:
    """One sentence about a file (relative to the archive), or about the cell if that is empty."""

    file: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.file} {self.sentence}" if self.file else self.sentence


class Malformed(Exception):
    """A file is not what it should be; the message is one printable sentence without its name."""

    def __init__(self, sentence: str) -> None:
        text = printable(" ".join(sentence.split()))
        super().__init__(text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ...")


def first_fault(error: ValidationError) -> tuple[str, ...]:
    """The first key that is wrong, unless everything is, and why."""
    first = error.errors(include_url=False, include_input=False)[0]
    return tuple(filter(None, (".".join(map(str, first["loc"])), first["msg"])))


class Unreadable(Malformed):
    """What is there and cannot be read now; `met` counts these in this process."""

    met: ClassVar[int] = 0

    def __init__(self, error: OSError) -> None:
        super().__init__(f"cannot be read ({error.strerror})")
        Unreadable.met += 1


def of_system(error: OSError) -> Malformed:
    """The problem that this error of the system is."""
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return Malformed(f"cannot be read ({error.strerror})")
    return Unreadable(error)


def printable(text: str) -> str:
    """`text` with a replacement character for each that a terminal would obey or HTML not hold."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def one_line(text: str) -> str:
    """`text` as `printable` has it, without the line that a break in it would forge."""
    return printable(text).replace("\n", " ")


#: The largest fio output and JSON document that is read whole, in bytes.
DOCUMENT_LIMIT = 64 << 20
#: Values that a JSON document may have: those of fio's histograms of hundreds of clients, and more.
JSON_VALUES = 2_000_000


def read_document(path: Path, limit: int = DOCUMENT_LIMIT, inside: Optional[Path] = None) -> bytes:
    """The whole of a regular file; Malformed if larger than `limit`, or by a link if `inside`."""
    with open_regular(path) as file:
        opened = Path(os.readlink(f"/proc/self/fd/{file.fileno()}"))
        if inside is not None and not opened.is_relative_to(inside):
            raise Malformed("is a link out of the archive, so it was not read")
        data = file.read(limit + 1)
    if len(data) > limit:
        raise Malformed(f"is larger than {limit >> 20} MiB, so it was not read")
    return data


#: A month's, one a second; each takes some hundred bytes of memory.
_MOST_SAMPLES = 31 * 86_400


def read_samples(path: Path) -> list[bytes]:
    """The lines of a document with one a second; what follows the last newline is torn."""
    data = read_document(path)
    if data.count(b"\n") > _MOST_SAMPLES:
        raise Malformed("holds too many samples, so it was not read")
    return data.split(b"\n")[:-1]


def check_values(data: bytes, most: int = JSON_VALUES) -> None:
    """Raise Malformed for JSON of more than about `most` values: 64 MiB of `[],` become 2 GB."""
    if sum(map(data.count, (b",", b"[", b"{"))) > most:
        raise Malformed("holds too many values, so it was not read")


def open_regular(path: Path) -> BinaryIO:
    """Open without waiting on a pipe. Raises Malformed for what is not a readable regular file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise of_system(error) from None
    return _regular(descriptor)


def _regular(descriptor: int) -> BinaryIO:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Malformed("is not a regular file")
    return os.fdopen(descriptor, "rb")


def open_below(root: Path, name: str) -> BinaryIO:
    """Open a file below `root` through no link, also one made meanwhile; or raise Malformed."""
    *folders, last = PurePosixPath(name).parts
    try:
        at = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for folder in folders:
                above, flags = at, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
                at = os.open(folder, flags, dir_fd=above)
                os.close(above)
            descriptor = os.open(last, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=at)
        finally:
            os.close(at)
    except OSError as error:
        raise of_system(error) from None
    return _regular(descriptor)


#: Values that a YAML document may unfold to, by its aliases, and how deep they may lie.
YAML_VALUES, YAML_DEPTH = 20_000, 32
_YAML_BYTES = 1 << 20
#: Of a whole number, in whatever base.
YAML_DIGITS = 100


def read_yaml(data: bytes) -> Any:
    """The value of another user's YAML, its aliases counted first, or Malformed."""
    if len(data) > _YAML_BYTES:
        raise Malformed("is larger than 1 MiB, so it was not read")
    try:
        depth = 0
        for event in yaml.parse(data, Loader=yaml.SafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > YAML_DEPTH:
                raise Malformed(f"is nested deeper than {YAML_DEPTH} levels")
        node = yaml.compose(data, Loader=yaml.SafeLoader)
        if node is not None:
            _count(node, 0, [0])
        return yaml.safe_load(data)
    # What PyYAML raises besides its own, as of `!!timestamp x`.
    except (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError,
            ValueError) as error:  # fmt: skip
        raise Malformed(f"is not YAML ({type(error).__name__})") from None


def _count(node: Any, depth: int, seen: list[int]) -> None:
    seen[0] += 1
    if seen[0] > YAML_VALUES or depth > YAML_DEPTH:
        raise Malformed("has aliases that unfold to too many values")
    # In base 16 or 60 as well: Python makes a number of it, and then cannot print it.
    if node.tag == "tag:yaml.org,2002:int" and len(node.value) > YAML_DIGITS:
        raise Malformed("has a number with too many digits")
    if isinstance(node, yaml.MappingNode):
        for pair in node.value:
            for child in pair:
                _count(child, depth + 1, seen)
    elif isinstance(node, yaml.SequenceNode):
        for child in node.value:
            _count(child, depth + 1, seen)


#: The largest log or raw file that is streamed, in bytes after decompression.
STREAM_LIMIT = 4 << 30
#: The longest line that a log may have, in bytes; fio's histogram lines take some 20,000.
LINE_LIMIT = 1 << 20
#: Members of a gzip file: collectl writes one, and of empty ones a MiB takes seconds.
_MOST_MEMBERS = 1000
_GZIP_MAGIC = b"\x1f\x8b"


class Stream:
    """The bytes of a plain or gzip file, recognised by its first bytes, in pieces.

    Afterwards `truncated` says whether a gzip trailer was missing. Malformed for damage or size.
    """

    def __init__(self, path: Path, limit: int = STREAM_LIMIT, piece: int = 1 << 20) -> None:
        self.truncated = False
        self._path = path
        self._limit = limit
        self._piece = piece

    def __iter__(self) -> Iterator[bytes]:
        total = 0
        with open_regular(self._path) as file:
            head = file.read(self._piece)
            pieces = self._inflated if head.startswith(_GZIP_MAGIC) else self._plain
            for piece in pieces(file, head):
                total += len(piece)
                if total > self._limit:
                    raise Malformed(f"holds more than {self._limit >> 20} MiB, so it was not read")
                yield piece

    def lines(self) -> Iterator[bytes]:
        """Pieces that end with a line, but for the last; Malformed for one beyond `LINE_LIMIT`."""
        rest = b""
        for piece in self:
            cut = piece.rfind(b"\n") + 1
            if cut:
                yield rest + piece[:cut]
                rest = piece[cut:]
            else:
                rest += piece
            if len(rest) > LINE_LIMIT:
                raise Malformed("has a line of more than 1 MiB, which no tool writes")
        if rest:
            yield rest

    def _plain(self, file: BinaryIO, head: bytes) -> Iterator[bytes]:
        while head:
            yield head
            head = file.read(self._piece)

    def _inflated(self, file: BinaryIO, head: bytes) -> Iterator[bytes]:
        # Twice as fast as zlib; distributions' packages do without it.
        inflating = importlib.import_module("isal.isal_zlib" if find_spec("isal") else "zlib")
        damaged: type[Exception] = inflating.error
        inflater, members = inflating.decompressobj(wbits=31), 0
        while head:
            try:
                piece = inflater.decompress(head, self._piece)
            except damaged as error:
                raise Malformed(f"is damaged ({error})") from None
            if piece:
                yield piece
            head = inflater.unconsumed_tail
            if inflater.eof:
                members += 1
                if members > _MOST_MEMBERS:
                    raise Malformed(
                        f"has more than {_MOST_MEMBERS} gzip members, so it was not read"
                    )
                head = inflater.unused_data
                inflater = inflating.decompressobj(wbits=31)
                self.truncated = False
            else:
                self.truncated = True
            head = head or file.read(self._piece)
        if rest := inflater.flush():
            yield rest


FORMAT = 1


def hash_of(config: Mapping[str, Any]) -> str:
    """CBT's hash of a config, with 16 hex digits: of its 8, two in 10,000 cells may be the same."""
    text = str(sorted(config.items()))
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:16]


def numbered(name: str, ending: str = "") -> Iterator[str]:
    """Names for what may be there already: as it is, then with -2, -3, ... before its ending."""
    yield f"{name}{ending}"
    yield from (f"{name}-{number}{ending}" for number in itertools.count(2))


def digest(value: Any) -> str:
    """A sha256 that is the same for the same JSON value, whatever the order of its keys."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def cell_path(config: Mapping[str, Any]) -> str:
    """The directory, below an archive, of the cell with this config of CBT's benchmark object."""
    return f"results/{int(str(config.get('iteration', 0))):08d}/id-{hash_of(config)}"


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file so that a reader, or a crash, sees the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"format": FORMAT, **value}, indent=1, ensure_ascii=False)
    write_whole(path, f"{text}\n".encode(), durable=True)


@contextlib.contextmanager
def held(directory: Path, flags: int = 0) -> Iterator[Path]:
    """The directory under a name that leads to it whatever is put in its place meanwhile."""
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | flags)
    try:
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def write_whole(
    path: Path, content: Union[str, bytes], mode: int = 0o644, durable: bool = False
) -> Path:
    """Replace what has that name, a link too; the content is there whole or not at all."""
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            # Not by its name, which may have become a link.
            os.fchmod(file.fileno(), mode)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def read_json(path: Path) -> Optional[dict[str, Any]]:
    """A JSON file's mapping, or None when it is not there, torn, or something else."""
    try:
        data = read_document(path)
        check_values(data)
        value = json.loads(data.decode("utf-8"))
    except (Malformed, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None

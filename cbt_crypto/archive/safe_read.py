"""Reading files that someone sent: regular ones only, and never more than a stated size.

An archive may hold a gzip bomb, a pipe, or a file that grew without end. Every reader of this
package gets its bytes from here.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Optional

import yaml

from cbt_crypto.archive.problem import Malformed, of_system

#: The largest fio output and JSON document that is read whole, in bytes.
DOCUMENT_LIMIT = 64 << 20
#: Values that a JSON document may have: those of fio's histograms of hundreds of clients, and more.
JSON_VALUES = 2_000_000


def read_document(path: Path, limit: int = DOCUMENT_LIMIT, inside: Optional[Path] = None) -> bytes:
    """The whole of a regular file. Raises Malformed when it is larger than `limit` bytes.

    With `inside`, a directory without links on the way, also for a file that is elsewhere: a link
    may have been put on its way after anybody looked.
    """
    with open_regular(path) as file:
        if inside is not None and not _where(file).is_relative_to(inside):
            raise Malformed("is a link out of the archive, so it was not read")
        data = file.read(limit + 1)
    if len(data) > limit:
        raise Malformed(f"is larger than {limit >> 20} MiB, so it was not read")
    return data


def _where(file: BinaryIO) -> Path:
    """The path of an open file, as the kernel knows it."""
    return Path(os.readlink(f"/proc/self/fd/{file.fileno()}"))


def check_values(data: bytes, most: int = JSON_VALUES) -> None:
    """Raise Malformed for JSON of more values than `most`, before anything makes them.

    64 MiB of `[],[],...` become 2 GB. What is counted is what begins or parts values; some of it
    may stand in texts.
    """
    if sum(map(data.count, (b",", b"[", b"{"))) > most:
        raise Malformed("holds more values than any campaign writes, so it was not read")


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
    """Open a file by its name below `root`, through no link, whoever puts one there meanwhile.

    Raises Malformed as `open_regular` does.
    """
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
    """The value of a YAML document that someone sent. Raises Malformed.

    One alias may stand for a million values, or for what it is a part of: they are counted first.
    """
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
        raise Malformed("has aliases that unfold to more than anybody wrote")
    # In base 16 or 60 as well: Python makes a number of it, and then cannot print it.
    if node.tag == "tag:yaml.org,2002:int" and len(node.value) > YAML_DIGITS:
        raise Malformed("has a number that is longer than any")
    if isinstance(node, yaml.MappingNode):
        for pair in node.value:
            for child in pair:
                _count(child, depth + 1, seen)
    elif isinstance(node, yaml.SequenceNode):
        for child in node.value:
            _count(child, depth + 1, seen)

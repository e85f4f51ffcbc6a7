"""Pack an archive into one zip, its manifest with checksums; open one of an untrusted sender."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cbt_crypto import __version__
from cbt_crypto.archive.files import (
    Malformed,
    check_values,
    first_fault,
    open_below,
    open_regular,
    printable,
)
from cbt_crypto.errors import RunError, UsageError

#: Of the pack itself; what it holds has formats of its own.
FORMAT = 1
MANIFEST = "manifest.json"
#: The report in a summary, which has nothing else.
REPORT = "report.json"
#: What is of the run and its machine, and tells a reader of results nothing.
_LEFT_OUT = {"journal.jsonl", "progress.json"}
_CHUNK = 1 << 20
#: A file of logs shrinks about tenfold; what shrinks more than this is meant to fill a disk.
MOST_TIMES, FREE_BYTES = 100, 64 << 20
#: The same archive gives the same bytes; a zip's time begins in 1980.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def pack(archive: Path, target: Path) -> int:
    """Write an archive's regular files into `target`; return how many there are.

    Raises UsageError for no archive or a target that exists, RunError when writing fails.
    """
    if not (archive / "results" / "plan.json").is_file():
        raise UsageError(
            f"{archive}: has no results/plan.json, so there is nothing to pack; "
            "name the archive of a campaign"
        )
    if (archive / "results").is_symlink():
        raise UsageError(f"{archive}/results: is a link; name the archive that it leads to")
    return _write(target, "raw", archive, list(_names(archive)))


def pack_summary(document: Mapping[str, Any], target: Path, anonymized: bool) -> int:
    """Write a report alone, as `report.json` has it. Raises as `pack` does."""
    with tempfile.TemporaryDirectory(dir=target.absolute().parent) as directory:
        text = json.dumps(document, ensure_ascii=False, allow_nan=False)
        (Path(directory) / REPORT).write_text(text, encoding="utf-8", errors="replace")
        return _write(target, "summary", Path(directory), [REPORT], anonymized=anonymized)


def _names(archive: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(archive / "results"):
        # No deeper than what a pack may hold: Python calls itself for each level.
        is_deep = len(Path(folder).relative_to(archive).parts) >= _DEEPEST
        shown = [] if is_deep else [name for name in folders if not name.startswith(".incoming")]
        folders[:] = sorted(shown)
        for name in sorted(files):
            path = Path(folder, name)
            try:
                status = path.lstat()
            except OSError:
                # A campaign that runs writes its files beside their names first.
                continue
            inner = path.relative_to(archive).as_posix()
            is_plain = stat.S_ISREG(status.st_mode) and _can_be_packed(inner)
            if is_plain and name not in _LEFT_OUT:
                _check_file(path, status)
                yield inner


def _check_file(path: Path, status: os.stat_result) -> None:
    """Raise UsageError for a file of holes, which no reader would unpack, or of somebody else."""
    shown = printable(str(path))
    if status.st_nlink > 1 and status.st_uid != path.parent.stat().st_uid:
        raise UsageError(f"{shown}: is a hard link to a file of another user; remove it")
    if status.st_size > FREE_BYTES and status.st_size > MOST_TIMES * status.st_blocks * 512:
        raise UsageError(f"{shown}: is a sparse file, which no campaign writes; remove it")


def _can_be_packed(name: str) -> bool:
    """A zip's names are text; no file of ours has a name that is none, or that is not read."""
    try:
        return bool(name.encode("utf-8")) and _is_safe(name)
    except UnicodeEncodeError:
        return False


def _write(target: Path, kind: str, root: Path, names: Sequence[str], **about: Any) -> int:
    try:
        stream = open(target, "xb")  # noqa: SIM115 - closed below
    except FileExistsError:
        raise UsageError(f"{target}: is there already; name another file with -o") from None
    except OSError as error:
        raise UsageError(f"{target}: cannot be written ({error.strerror})") from None
    # One that is killed leaves a file without the list at its end, which no reader takes.
    with contextlib.ExitStack() as unless_written:
        unless_written.callback(_remove, target, os.fstat(stream.fileno()))
        try:
            with stream, zipfile.ZipFile(stream, "w") as packed:
                sums = {name: _add(packed, root, name) for name in names}
                first = {"format": FORMAT, "kind": kind, "made_by": f"cbt-crypto {__version__}"}
                manifest = {**first, **about, "files": sums}
                with packed.open(_entry(MANIFEST), "w") as file:
                    file.write(json.dumps(manifest, indent=1).encode())
        except (OSError, Malformed) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise RunError(f"{target}: cannot be written ({why})") from None
        unless_written.pop_all()
    return len(sums)


def _remove(target: Path, made: os.stat_result) -> None:
    """Not one that somebody put in its place meanwhile."""
    with contextlib.suppress(OSError):
        if os.path.samestat(target.lstat(), made):
            target.unlink()


def _add(packed: zipfile.ZipFile, root: Path, name: str) -> dict[str, Any]:
    """Through no link: whoever may write there would get what the packer alone may read."""
    digest, size, entry = hashlib.sha256(), 0, _entry(name)
    with open_below(root, name) as source, packed.open(entry, "w", force_zip64=True) as target:
        for chunk in chunks(source):
            digest.update(chunk)
            size += len(chunk)
            target.write(chunk)
    return {"size": size, "sha256": digest.hexdigest()}


def chunks(source: IO[bytes]) -> Iterator[bytes]:
    """The rest of a file, a MiB at a time."""
    while chunk := source.read(_CHUNK):
        yield chunk


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o100644 << 16
    return entry


#: Bytes of a zip's list of files; zipfile makes 20 of memory of each. A quarter million files.
LIST_BYTES = 32 << 20
_MANIFEST_BYTES = 96 << 20
#: Of commas and brackets in the manifest, for each file; and what is free.
_VALUES, _FREE_VALUES = 16, 1000
#: Directories on the way to a file, and what a file or directory takes, however little is in it.
_DEEPEST, _LEAST_BYTES = 8, 4096
_READABLE = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
_LONGEST_NAME = 1000
_PLAIN = re.compile(r"[^\x00-\x1f\x7f\\:]+")
#: How the directory begins that a pack's content is in while it is looked at.
_TEMPORARY = "cbt-pack-"


class PackedFile(BaseModel):
    """What a manifest says of one file."""

    size: int = Field(ge=0)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class Manifest(BaseModel):
    """manifest.json of a pack."""

    model_config = ConfigDict(extra="ignore")

    format: int
    kind: Literal["raw", "summary"]
    anonymized: bool = False
    files: dict[str, PackedFile]


@dataclass(frozen=True)
class Pack:
    """A pack whose content was checked and is in `folder` for as long as it is open."""

    manifest: Manifest
    folder: Path

    @property
    def is_summary(self) -> bool:
        """Whether it holds a report alone."""
        return self.manifest.kind == "summary"

    def report(self) -> bytes:
        """The bytes of a summary's report.json, unread. Raises OSError where there is none."""
        return (self.folder / REPORT).read_bytes()


@contextlib.contextmanager
def opened(path: Path, prefix: str = _TEMPORARY, place: str | None = None) -> Iterator[Pack]:
    """A pack's content in a directory of its own, gone afterwards; UsageError for what is wrong."""
    with tempfile.TemporaryDirectory(prefix=prefix, dir=place) as directory:
        try:
            with open_regular(path) as stream:
                size = _checked_size(stream)
                with zipfile.ZipFile(stream) as packed:
                    manifest = _unpacked(packed, size, Path(directory))
        except Malformed as error:
            raise UsageError(f"{path}: {error}") from None
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError,
                ValueError, OverflowError):  # fmt: skip
            instead = "ask for it again, or name an archive's directory"
            raise UsageError(f"{path}: is not a pack, or is damaged; {instead}") from None
        except OSError as error:
            raise UsageError(f"{path}: cannot be unpacked ({error.strerror})") from None
        yield Pack(manifest, Path(directory))


def is_unpacked(folder: Path) -> bool:
    """Whether a directory is in, or is, the content of a pack, which is soon gone."""
    return any(part.startswith(_TEMPORARY) for part in folder.parts)


def is_pack(path: Path) -> bool:
    """Whether a path names a file, as packs are, and not a directory, as archives are."""
    return path.is_file()


#: How a zip ends (APPNOTE.TXT 4.3.14 to 4.3.16): if its list is large, with the list's end and
#: where that is; then with the end of every list, here without a comment.
_LARGE_END, _LARGE_AT, _END = (struct.Struct(f"<4s{form}") for form in ("36xQ8x", "4xQ4x", "8xL6x"))


def _checked_size(stream: BinaryIO) -> int:
    """Its size; BadZipFile for an end as no pack has it, of which zipfile may read another list."""
    size, length = stream.seek(0, os.SEEK_END), _LARGE_END.size + _LARGE_AT.size + _END.size
    stream.seek(max(0, size - length))
    tail = stream.read().rjust(length, b"\0")
    stream.seek(0)
    mark, listed = _END.unpack_from(tail, length - _END.size)
    if mark != b"PK\5\6" or tail[-2:] != b"\0\0":
        raise zipfile.BadZipFile
    mark, at = _LARGE_AT.unpack_from(tail, _LARGE_END.size)
    if mark == b"PK\6\7":
        mark, listed = _LARGE_END.unpack_from(tail)
        if mark != b"PK\6\6" or at != size - length:
            raise zipfile.BadZipFile
    if listed > LIST_BYTES:
        raise Malformed("lists more files than any campaign has, so it was not unpacked")
    return size


def _unpacked(packed: zipfile.ZipFile, size: int, into: Path) -> Manifest:
    entries = packed.infolist()
    manifest = _manifest(packed, len(entries))
    files = [entry for entry in entries if entry.filename != MANIFEST]
    names = [entry.filename for entry in files]
    if len(set(names)) != len(names) or set(names) != set(manifest.files):
        raise Malformed("holds other files than its manifest names")
    most = size * MOST_TIMES + FREE_BYTES
    for entry in files:
        _check(entry, manifest.kind)
    folders = {parent for name in names for parent in PurePosixPath(name).parents}
    least = _LEAST_BYTES * (len(folders) + len(names))
    if sum(packed_file.size for packed_file in manifest.files.values()) + least > most:
        raise Malformed(f"would become more than {MOST_TIMES} times its size; not unpacked")
    for entry in files:
        _extract(packed, entry, manifest.files[entry.filename], into)
    return manifest


def _manifest(packed: zipfile.ZipFile, files: int) -> Manifest:
    try:
        entry = packed.getinfo(MANIFEST)
    except KeyError:
        raise Malformed("has no manifest.json, so it is no pack") from None
    if entry.compress_type not in _READABLE:
        raise Malformed("is compressed in another way than packs are")
    with packed.open(entry) as file:
        data = file.read(_MANIFEST_BYTES + 1)
    if len(data) > _MANIFEST_BYTES:
        raise Malformed("has a manifest that is too large")
    check_values(data, files * _VALUES + _FREE_VALUES)
    try:
        manifest = Manifest.model_validate_json(data)
    except ValidationError as error:
        wrong = " ".join(first_fault(error))
        raise Malformed(f"has a manifest that is not valid: {wrong}") from None
    if not 1 <= manifest.format <= FORMAT:
        raise Malformed(f"is of format {manifest.format}; a newer cbt-crypto reads it")
    return manifest


def _is_safe(name: str) -> bool:
    parts = name.split("/")
    is_plain = _PLAIN.fullmatch(name) is not None and len(name) <= _LONGEST_NAME
    return is_plain and len(parts) <= _DEEPEST and not {"", ".", ".."} & set(parts)


def _check(entry: zipfile.ZipInfo, kind: str) -> None:
    """Raises Malformed for an entry that is more than a plain file at a plain place."""
    name, mode = entry.filename, entry.external_attr >> 16
    parts = name.split("/")
    if not _is_safe(name):
        raise Malformed(f"holds an unsafe path: {name!r}")
    expected = name == REPORT if kind == "summary" else len(parts) > 1 and parts[0] == "results"
    if not expected:
        raise Malformed(f"holds {name!r}, which no {kind} pack has")
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG) or entry.flag_bits & 1:
        raise Malformed(f"holds {name!r}, which is no plain file")
    if entry.compress_type not in _READABLE:
        raise Malformed("is compressed in another way than packs are")


def _extract(
    packed: zipfile.ZipFile, entry: zipfile.ZipInfo, promised: PackedFile, into: Path
) -> None:
    """Write one file, reading no byte more than the manifest promises."""
    target = into.joinpath(*PurePosixPath(entry.filename).parts)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except (FileExistsError, NotADirectoryError):
        raise Malformed(f"holds {entry.filename!r} twice") from None
    digest, size = hashlib.sha256(), 0
    with os.fdopen(descriptor, "wb") as file, packed.open(entry) as source:
        for chunk in chunks(source):
            size += len(chunk)
            if size > promised.size:
                break
            digest.update(chunk)
            file.write(chunk)
    if size != promised.size or digest.hexdigest() != promised.sha256:
        raise Malformed(f"{entry.filename} is not what the manifest says; ask for it again")

"""One file of an archive, to be sent: a zip whose manifest names every file with its checksum."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from cbt_crypto import __version__
from cbt_crypto.archive.problem import Malformed, printable
from cbt_crypto.archive.safe_read import open_below
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
    """Write all results of an archive into `target`; return how many files.

    Links, what is no regular file, and names that are no text are left out. Raises UsageError for
    no archive or a target that exists, RunError when it cannot be written; then there is none.
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
    with tempfile.TemporaryDirectory() as directory:
        text = json.dumps(document, ensure_ascii=False, allow_nan=False)
        (Path(directory) / REPORT).write_text(text, encoding="utf-8", errors="replace")
        return _write(target, "summary", Path(directory), [REPORT], anonymized=anonymized)


def _names(archive: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(archive / "results"):
        folders[:] = sorted(name for name in folders if not name.startswith(".incoming"))
        for name in sorted(files):
            path = Path(folder, name)
            try:
                status = path.lstat()
            except OSError:
                # A campaign that runs writes its files beside their names first.
                continue
            is_plain = stat.S_ISREG(status.st_mode) and _can_be_packed(path)
            if is_plain and name not in _LEFT_OUT:
                _check_filled(path, status)
                yield path.relative_to(archive).as_posix()


def _check_filled(path: Path, status: os.stat_result) -> None:
    """Raise UsageError for a file of holes: no reader would unpack what its zip becomes."""
    if status.st_size > FREE_BYTES and status.st_size > MOST_TIMES * status.st_blocks * 512:
        raise UsageError(
            f"{printable(str(path))}: is nearly empty for its size, and no campaign's; remove it"
        )


def _can_be_packed(path: Path) -> bool:
    """A zip's names are text; no file of ours has a name that is none."""
    try:
        return bool(str(path).encode("utf-8"))
    except UnicodeEncodeError:
        return False


def _write(target: Path, kind: str, root: Path, names: Sequence[str], **about: Any) -> int:
    if os.path.lexists(target):
        raise UsageError(f"{target}: is there already; name another file with -o")
    try:
        descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise UsageError(f"{target}: cannot be written ({error.strerror})") from None
    try:
        with os.fdopen(descriptor, "wb") as stream, zipfile.ZipFile(stream, "w") as packed:
            sums = {name: _add(packed, root, name) for name in names}
            manifest = {
                "format": FORMAT,
                "kind": kind,
                "made_by": f"cbt-crypto {__version__}",
                **about,
                "files": sums,
            }
            with packed.open(_entry(MANIFEST), "w") as file:
                file.write(json.dumps(manifest, indent=1).encode())
        os.chmod(temporary, 0o644)
        # Not over a file that somebody made meanwhile.
        os.link(temporary, target)
    except (OSError, Malformed) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise RunError(f"{target}: cannot be written ({why})") from None
    finally:
        Path(temporary).unlink(missing_ok=True)
    return len(sums)


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

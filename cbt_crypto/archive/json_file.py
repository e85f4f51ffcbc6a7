"""The archive's files that the campaign writes: docs/archive.md. Each is whole or not there."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from cbt_crypto.archive.problem import Malformed
from cbt_crypto.archive.safe_read import check_values, read_document

FORMAT = 1


def hash_of(config: Mapping[str, Any]) -> str:
    """CBT's name for a combination, longer: 16 hex digits of the sha1 of the sorted config.

    CBT takes the first 8 of them, of which two in a campaign of ten thousand cells may be the same.
    """
    text = str(sorted(config.items()))
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:16]


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
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read_json(path: Path) -> Optional[dict[str, Any]]:
    """A JSON file's mapping, or None when it is not there, torn, or something else."""
    try:
        data = read_document(path)
        check_values(data)
        value = json.loads(data.decode("utf-8"))
    except (Malformed, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None

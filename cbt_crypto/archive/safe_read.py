"""Reading files that someone sent: regular ones only, and never more than a stated size.

An archive may hold a gzip bomb, a pipe, or a file that grew without end. Every reader of this
package gets its bytes from here.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from cbt_crypto.archive.problem import Malformed

#: The largest fio output and JSON document that is read whole, in bytes.
DOCUMENT_LIMIT = 64 << 20


def read_document(path: Path, limit: int = DOCUMENT_LIMIT) -> bytes:
    """The whole of a regular file. Raises Malformed when it is larger than `limit` bytes."""
    with open_regular(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise Malformed(f"is larger than {limit >> 20} MiB, so it was not read")
    return data


def open_regular(path: Path) -> BinaryIO:
    """Open without waiting on a pipe. Raises Malformed for what is not a readable regular file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise Malformed(f"cannot be read ({error.strerror})") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Malformed("is not a regular file")
    return os.fdopen(descriptor, "rb")

"""Reading files as large as a campaign makes them, in pieces, packed or not.

Apart from `bounded`, as a node that measures reads documents alone and needs no isal: reports are
made from the archive, elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from isal import isal_zlib

from cbt_crypto.archive.problem import Malformed
from cbt_crypto.archive.safe_read import open_regular

#: The largest log or raw file that is streamed, in bytes after decompression.
STREAM_LIMIT = 4 << 30
#: The longest line that a log may have, in bytes; fio's histogram lines take some 20,000.
LINE_LIMIT = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"
#: What isal raises for damaged data; its stub takes the class for an instance.
_DAMAGED: type[Exception] = isal_zlib.error  # type: ignore[assignment]


class Stream:
    """The bytes of a plain or gzip file in pieces, the kind recognised by its first bytes.

    Once iterated, `truncated` tells whether a gzip stream ended without its trailer, which is
    how it looks when its writer was ended by a signal. Iteration raises Malformed for damaged
    data and for more than `limit` bytes.
    """

    def __init__(self, path: Path, limit: int = STREAM_LIMIT, piece: int = 1 << 20) -> None:
        """`piece` is the largest size of one piece, in bytes."""
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
        """Pieces that end at the end of a line; the last one may lack its newline.

        Raises Malformed for a line longer than `LINE_LIMIT`.
        """
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
        inflater = isal_zlib.decompressobj(wbits=31)
        while head:
            try:
                piece = inflater.decompress(head, self._piece)
            except _DAMAGED as error:
                raise Malformed(f"is damaged ({error})") from None
            if piece:
                yield piece
            head = inflater.unconsumed_tail
            if inflater.eof:
                head = inflater.unused_data
                inflater = isal_zlib.decompressobj(wbits=31)
                self.truncated = False
            else:
                self.truncated = True
            head = head or file.read(self._piece)
        if rest := inflater.flush():
            yield rest

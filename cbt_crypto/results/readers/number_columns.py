"""Columns of numbers in text, by numpy; unlike `loadtxt`, torn lines are counted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cbt_crypto.results.cell.record import Ints

_Bytes = NDArray[np.uint8]
_Words = NDArray[np.uint64]

_PAD = 16
NEWLINE, COMMA, SPACE, ZERO = 10, 44, 32, 48
_word = np.uint64
#: The mask that keeps the last n of eight bytes, which are the high ones of a little-endian word.
_KEEP: _Words = np.array([((1 << 64) - 1) ^ ((1 << 8 * (8 - n)) - 1) for n in range(9)], np.uint64)
#: `"0"`, 6, and the high four bits, in each of eight bytes.
_ZEROS, _SIXES, _HIGH_NIBBLES = (_word(byte * 0x0101010101010101) for byte in (0x30, 0x06, 0xF0))
#: How neighbours become one number, three times: digits, then pairs, then fours. The first digit is
#: in the lowest lane. A word of lanes of b bits that ends in `y << b | x`, times `10**d << b | 1`,
#: has x * 10**d + y in the lane of y; shifted down by b it is alone in a lane twice as wide. After
#: D. Lemire, "Quickly parsing eight digits" (2018).
_JOIN = tuple(
    (_word((10**digits << bits) + 1), _word(bits), _word(lanes))
    for digits, bits, lanes in (
        (1, 8, 0x00FF00FF00FF00FF),
        (2, 16, 0x0000FFFF0000FFFF),
        (4, 32, 0x00000000FFFFFFFF),
    )
)


@dataclass(frozen=True)
class Columns:
    """`values` has one row a line and one column a field; `torn` counts the lines left out."""

    values: Ints
    torn: int


def parse_columns(text: bytes, width: int) -> Columns:
    """The rows of `text` of `width` numbers; all other lines are counted.

    So is a last line without newline: its last number may be cut.
    """
    whole = text[: text.rfind(b"\n") + 1]
    numbers, lines, fields, are_numbers = number_fields(whole)
    good = are_numbers & (fields == width)
    if not good.all():
        numbers = numbers[good[lines]]
    rows = numbers.reshape(-1, width)
    return Columns(rows, len(fields) - len(rows) + (len(whole) < len(text)))


class _DigitText:
    """Bytes of whole lines, padded in front so that the 8 before any digit can be loaded."""

    def __init__(self, text: bytes) -> None:
        padded = b" " * _PAD + text
        self._padded = np.frombuffer(padded, np.uint8)
        self._words: _Words = np.ndarray((len(padded) - 7,), "<u8", padded, strides=(1,))
        self.bytes: _Bytes = self._padded[_PAD:]

    def numbers(self, starts: Ints, ends: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        """Numbers in `[starts, ends)` after a space at most, and which are 1 to 16 digits."""
        lengths = ends - starts
        lengths -= self._padded[starts + _PAD] == SPACE
        values, right = self._eight(ends, lengths)
        long = np.flatnonzero(lengths > 8)
        if len(long):
            upper, valid = self._eight(ends[long] - 8, lengths[long] - 8)
            values[long] += upper * _word(10**8)
            right[long] &= valid
        right &= (lengths > 0) & (lengths <= _PAD)
        return values.view(np.int64), right

    def _eight(self, ends: Ints, lengths: Ints) -> tuple[_Words, NDArray[np.bool_]]:
        """The numbers made of the last `lengths` (8 where it is more) bytes before `ends`."""
        word = self._words[ends + (_PAD - 8)]
        word ^= _ZEROS  # each byte is its digit now
        word &= _KEEP.take(lengths, mode="clip")
        # A digit is at most 9: adding 6 to it leaves its high four bits clear.
        bad = (word + _SIXES) | word
        bad &= _HIGH_NIBBLES
        for factor, bits, lanes in _JOIN:
            word *= factor
            word >>= bits
            word &= lanes
        return word, bad == 0


def number_fields(text: bytes) -> tuple[Ints, Ints, Ints, NDArray[np.bool_]]:
    """The number and the line of every field, and the fields of every line.

    The last says of each line whether all its fields are numbers. `text` ends with a newline.
    """
    digits = _DigitText(text)
    ends = np.flatnonzero((digits.bytes == COMMA) | (digits.bytes == NEWLINE))
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1] + 1))[: len(ends)]
    numbers, right = digits.numbers(starts, ends)
    fields = np.diff(np.flatnonzero(digits.bytes[ends] == NEWLINE), prepend=-1)
    lines = np.repeat(np.arange(len(fields)), fields)
    are_numbers = np.ones(len(fields), bool)
    are_numbers[lines[~right]] = False
    return numbers, lines, fields, are_numbers
